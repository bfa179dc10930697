//! Waiting for calls on several connections at once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use forebay_transport::calls::wait_all;
use forebay_transport::calls::{Connection, Options, Outcome, Outgoing, Taker};
use forebay_transport::link::Head;
use forebay_transport::stream::unix::pair;
use forebay_transport::wire::{Codec, Role};
use forebay_transport::{Error, Result};

/// As for calls that take long.
const LOOK: bool = false;

fn ends() -> (Connection, Connection) {
    let (left, right) = pair().expect("pair");
    let caller = Connection::new(left, Options::new(Role::Caller, "server")).expect("caller");
    let server = Connection::new(right, Options::new(Role::Server, "caller")).expect("server");
    (caller, server)
}

fn begin(caller: &Connection) -> u64 {
    let call = Outgoing {
        codec: Codec::Msgpack,
        one_way: false,
        remaining: None,
        generation: 0,
        head: Head::Borrowed(b"call"),
        segments: Vec::new(),
    };
    caller.start(call, Taker::Thread).expect("starts")
}

fn answer(server: &Connection, head: &[u8]) {
    let call = server.next_call(soon(20_000)).expect("serves");
    let id = call.expect("a call").id;
    let head = Head::Borrowed(head);
    server
        .reply(id, Codec::Msgpack, head, Vec::new())
        .expect("replies");
    server.drain(soon(20_000)).expect("drains");
}

#[allow(clippy::unnecessary_wraps)] // every wait takes an optional deadline
fn soon(ms: u64) -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(ms))
}

fn said(ended: Option<&Result<Outcome>>) -> &[u8] {
    match ended {
        Some(Ok(Outcome::Reply(frame))) => frame.head.as_slice(),
        other => panic!("no reply but {other:?}"),
    }
}

#[test]
fn outcomes_stand_where_their_calls_do_whoever_answers_first() {
    let all: Vec<_> = (0..5).map(|_| ends()).collect();
    let calls: Vec<_> = all
        .iter()
        .map(|(caller, _)| (caller, begin(caller)))
        .collect();
    let mut ended: Vec<_> = calls.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (place, (_, server)) in all.iter().enumerate().rev() {
                answer(server, &[u8::try_from(place).expect("few")]);
            }
        });
        wait_all(&calls, &mut ended, soon(20_000), LOOK).expect("all end");
    });
    let heads: Vec<_> = ended.iter().map(|one| said(one.as_ref())[0]).collect();
    assert_eq!(heads, [0, 1, 2, 3, 4]);
}

#[test]
fn past_the_deadline_the_answers_that_came_are_there_and_the_others_go_on() {
    let (first, second) = (ends(), ends());
    let calls = [(&first.0, begin(&first.0)), (&second.0, begin(&second.0))];
    let mut ended = vec![None, None];
    answer(&first.1, b"in time");
    let waited = wait_all(&calls, &mut ended, soon(1_000), LOOK);
    assert!(matches!(waited, Err(Error::Deadline { .. })), "{waited:?}");
    assert_eq!(said(ended[0].as_ref()), b"in time");
    assert!(ended[1].is_none());
    answer(&second.1, b"late");
    wait_all(&calls, &mut ended, soon(20_000), LOOK).expect("the rest ends");
    assert_eq!(said(ended[1].as_ref()), b"late");
}

#[test]
fn one_that_breaks_ends_alone() {
    let (first, second) = (ends(), ends());
    let calls = [(&first.0, begin(&first.0)), (&second.0, begin(&second.0))];
    let mut ended = vec![None, None];
    drop(first.1);
    answer(&second.1, b"well");
    wait_all(&calls, &mut ended, soon(20_000), LOOK).expect("all end");
    assert!(
        matches!(ended[0], Some(Ok(Outcome::Broken { .. }))),
        "{:?}",
        ended[0]
    );
    assert_eq!(said(ended[1].as_ref()), b"well");
}

#[test]
fn a_call_that_is_not_known_ends_as_closed() {
    let (first, second) = (ends(), ends());
    let calls = [(&first.0, 99), (&second.0, begin(&second.0))];
    let mut ended = vec![None, None];
    answer(&second.1, b"well");
    wait_all(&calls, &mut ended, soon(20_000), LOOK).expect("all end");
    assert!(
        matches!(ended[0], Some(Err(Error::Closed { .. }))),
        "{:?}",
        ended[0]
    );
}

#[test]
fn threads_that_wait_for_one_call_share_a_connection_with_one_that_gathers() {
    let (first, second) = (ends(), ends());
    let served = AtomicU32::new(0);
    let rounds = 200;
    std::thread::scope(|scope| {
        for (_, server) in [&first, &second] {
            let times = if std::ptr::eq(server, &raw const first.1) {
                2
            } else {
                1
            };
            let served = &served;
            scope.spawn(move || {
                for _ in 0..rounds * times {
                    answer(server, b"x");
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..rounds {
                let id = begin(&first.0);
                let outcome = first.0.wait(id, soon(20_000)).expect("waits");
                assert!(matches!(outcome, Outcome::Reply(_)));
            }
        });
        for _ in 0..rounds {
            let calls = [(&first.0, begin(&first.0)), (&second.0, begin(&second.0))];
            let mut ended = vec![None, None];
            wait_all(&calls, &mut ended, soon(20_000), LOOK).expect("all end");
            assert_eq!(
                (said(ended[0].as_ref()), said(ended[1].as_ref())),
                (&b"x"[..], &b"x"[..])
            );
        }
    });
    assert_eq!(served.into_inner(), 3 * rounds);
}
