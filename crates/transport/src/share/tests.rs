//! Two ends in one process over a real socket.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use forebay_base::process::in_child;

use crate::alone::alone;
use crate::calls::call::{Outcome, Taker};
use crate::calls::state::ConnectionState;
use crate::calls::{Connection, Options, Outgoing};
use crate::limit::{COPIES_AFTER_WRITING, LEND_BYTES_MIN, LENT_BYTES_MAX};
use crate::link::outbox::{Head, Payload};
use crate::share::held::{keep_borrowed, while_locked};
use crate::share::pool::SharePool;
use crate::stream::socket::Wire;
use crate::stream::unix;
use crate::sys::buffer::{Buffer, write_at};
use crate::wire::frame::{Codec, Header, Kind};
use crate::wire::role::Role;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn ends(lends: [bool; 2]) -> (Connection, Connection) {
    let (ours, theirs) = unix::pair().expect("sockets");
    let make = |socket, role, lends| {
        let options = Options {
            lends,
            ..Options::new(role, "the other end")
        };
        Connection::new(socket, options).expect("an end")
    };
    (
        make(ours, Role::Caller, lends[0]),
        make(theirs, Role::Server, lends[1]),
    )
}

fn call(caller: &Connection, segments: Vec<Vec<u8>>) -> u64 {
    let segments = segments.into_iter().map(|bytes| Box::new(bytes) as Payload);
    let outgoing = Outgoing {
        codec: Codec::Pickle,
        one_way: false,
        remaining: None,
        generation: 0,
        head: Head::Borrowed(b"head"),
        segments: segments.collect(),
    };
    caller.start(outgoing, Taker::Thread).expect("sent")
}

fn answer(
    caller: &Connection,
    server: &Connection,
    id: u64,
    segments: Vec<Vec<u8>>,
) -> Vec<Buffer> {
    let segments = segments.into_iter().map(|bytes| Box::new(bytes) as Payload);
    let head = Head::Borrowed(b"head");
    server
        .reply(id, Codec::Pickle, head, segments.collect())
        .expect("sent");
    std::thread::scope(|scope| {
        scope.spawn(|| server.drain(Some(soon())));
        match caller.wait(id, Some(soon())).expect("an answer") {
            Outcome::Reply(frame) => frame.segments,
            other => panic!("{other:?}"),
        }
    })
}

fn taken(caller: &Connection, server: &Connection) -> Vec<Buffer> {
    std::thread::scope(|scope| {
        scope.spawn(|| caller.drain(Some(soon())));
        let call = server.next_call(Some(soon())).expect("alive");
        call.expect("a call").segments
    })
}

/// One call with these arguments and results, as they arrive.
fn exchange(
    (caller, server): (&Connection, &Connection),
    arguments: Vec<Vec<u8>>,
    results: Vec<Vec<u8>>,
) -> (Vec<Buffer>, Vec<Buffer>) {
    let id = call(caller, arguments);
    let arguments = taken(caller, server);
    (arguments, answer(caller, server, id, results))
}

/// Two ends that both lend and borrow from now on.
fn lending_ends() -> (Connection, Connection) {
    let (caller, server) = ends([true, true]);
    let long = || vec![vec![1; LEND_BYTES_MIN]];
    for _ in 0..2 {
        // In the first call the server does not know yet whether its caller lends: it has read its preface.
        exchange((&caller, &server), long(), long());
    }
    (caller, server)
}

fn is_lent(segments: &[Buffer]) -> Vec<bool> {
    segments.iter().map(Buffer::is_shared).collect()
}

#[test]
fn from_the_second_time_on_long_segments_are_lent_in_both_directions() {
    let _alone = alone();
    let (caller, server) = ends([true, true]);
    let both = (&caller, &server);
    let long = || vec![vec![1; LEND_BYTES_MIN]];
    let (arguments, results) = exchange(both, long(), long());
    assert_eq!(
        (is_lent(&arguments), is_lent(&results)),
        (vec![false], vec![false])
    );
    let (arguments, results) = exchange(both, long(), long());
    assert_eq!(
        (is_lent(&arguments), is_lent(&results)),
        (vec![true], vec![true])
    );
    assert!(
        arguments
            .iter()
            .chain(&results)
            .all(|one| one.as_slice() == long()[0])
    );
}

#[test]
fn short_segments_follow_between_lent_ones_in_their_order() {
    let _alone = alone();
    let (caller, server) = lending_ends();
    let sizes = [3, LEND_BYTES_MIN, LEND_BYTES_MIN - 1, LEND_BYTES_MIN + 1, 0];
    let made = || {
        let part = |(at, &bytes): (usize, &usize)| vec![u8::try_from(at).expect("few"); bytes];
        sizes.iter().enumerate().map(part).collect::<Vec<_>>()
    };
    let (arguments, results) = exchange((&caller, &server), made(), made());
    for received in [arguments, results] {
        assert_eq!(is_lent(&received), [false, true, false, true, false]);
        let bytes: Vec<_> = received.iter().map(|one| one.as_slice().to_vec()).collect();
        assert_eq!(bytes, made());
    }
}

#[test]
fn a_dropped_segment_comes_back_and_its_place_is_used_again() {
    let _alone = alone();
    let (caller, server) = lending_ends();
    let mut places = Vec::new();
    for _ in 0..3 {
        let id = call(&caller, vec![vec![7; LEND_BYTES_MIN]]);
        let arguments = taken(&caller, &server);
        assert_eq!(caller.counters().lent_segments, 1);
        places.push(arguments[0].pointer());
        drop(arguments);
        assert_eq!(caller.counters().lent_segments, 0);
        answer(&caller, &server, id, Vec::new());
    }
    assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
}

#[test]
fn kept_segments_outlive_both_ends_and_are_not_written_meanwhile() {
    let _alone = alone();
    let (caller, server) = lending_ends();
    let (kept, _) = exchange(
        (&caller, &server),
        vec![vec![5; LEND_BYTES_MIN]],
        Vec::new(),
    );
    drop((caller, server));
    let (caller, server) = lending_ends();
    let (others, _) = exchange(
        (&caller, &server),
        vec![vec![6; LEND_BYTES_MIN]; 9],
        Vec::new(),
    );
    assert_eq!(is_lent(&others), [true; 9]);
    assert!(kept[0].as_slice().iter().all(|&byte| byte == 5));
}

#[test]
fn a_cancelled_call_gives_back_what_it_was_sent_with() {
    let _alone = alone();
    let (caller, server) = lending_ends();
    let id = call(&caller, vec![vec![5; LEND_BYTES_MIN]]);
    caller.cancel(id).expect("open");
    server.receive().expect("open");
    assert_eq!(server.counters().cancelled, 1);
    assert_eq!(caller.counters().lent_segments, 0);
}

#[test]
fn what_was_never_received_comes_back_when_the_receiver_closes() {
    let _alone = alone();
    let (caller, server) = lending_ends();
    let pool = SharePool::here().expect("a pool");
    let held = call(&caller, vec![vec![5; LEND_BYTES_MIN]]);
    let arguments = taken(&caller, &server);
    call(&caller, vec![vec![6; LEND_BYTES_MIN]]);
    caller.close();
    drop(caller);
    let loans = pool.closed_with(2).expect("both are lent still");
    drop(server);
    assert_eq!(loans.lent(), 1, "call {held} was received");
    assert!(arguments[0].as_slice().iter().all(|&byte| byte == 5));
    drop(arguments);
    assert_eq!(loans.lent(), 0);
}

#[test]
fn what_a_receiver_writes_is_not_seen_in_the_next_segment() {
    let _alone = alone();
    let (caller, server) = lending_ends();
    let (arguments, _) = exchange(
        (&caller, &server),
        vec![vec![5; LEND_BYTES_MIN]],
        Vec::new(),
    );
    let place = write_at(&arguments[0], 0, 9);
    assert_eq!(arguments[0].as_slice()[..2], [9, 5]);
    drop(arguments);
    let (arguments, _) = exchange(
        (&caller, &server),
        vec![vec![6; LEND_BYTES_MIN]],
        Vec::new(),
    );
    assert_eq!(arguments[0].pointer(), place);
    assert!(arguments[0].as_slice().iter().all(|&byte| byte == 6));
}

#[test]
fn whoever_writes_much_gets_copies_for_a_while() {
    let _alone = alone();
    let (caller, server) = lending_ends();
    let one = || vec![vec![5; LEND_BYTES_MIN]];
    let (arguments, _) = exchange((&caller, &server), one(), Vec::new());
    for page in 0..LEND_BYTES_MIN / 4096 {
        write_at(&arguments[0], page * 4096, 9);
    }
    drop(arguments);
    // The pages are found to be written when the next segment is opened, which is lent still.
    let lent = (0..COPIES_AFTER_WRITING + 2).map(|_| {
        let (arguments, _) = exchange((&caller, &server), one(), Vec::new());
        assert!(arguments[0].as_slice() == one()[0]);
        arguments[0].is_shared()
    });
    let lent: Vec<bool> = lent.collect();
    let copies = lent.iter().filter(|lent| !**lent).count();
    assert_eq!(copies, COPIES_AFTER_WRITING as usize);
    assert!(lent[lent.len() - 1], "after that it is lent again");
}

#[test]
fn above_its_limit_a_server_sends_bytes() {
    let _alone = alone();
    let (caller, server) = lending_ends();
    let bytes = 16 << 20;
    let room = usize::try_from(LENT_BYTES_MAX).expect("fits") / bytes;
    let mut kept = Vec::new();
    for _ in 0..room {
        kept.push(exchange((&caller, &server), Vec::new(), vec![vec![3; bytes]]).1);
    }
    let (_, last) = exchange((&caller, &server), Vec::new(), vec![vec![4; bytes]]);
    assert!(kept.iter().all(|results| results[0].is_shared()));
    assert!(!last[0].is_shared() && last[0].as_slice().iter().all(|&byte| byte == 4));
    kept.clear();
    let (_, again) = exchange((&caller, &server), Vec::new(), vec![vec![4; bytes]]);
    assert!(again[0].is_shared());
}

#[test]
fn a_child_is_not_held_up_by_a_thread_that_its_parent_has() {
    let _alone = alone();
    let (caller, server) = lending_ends();
    let (_, results) = exchange(
        (&caller, &server),
        Vec::new(),
        vec![vec![3; LEND_BYTES_MIN]],
    );
    assert!(results[0].is_shared());
    let mut results = Some(results);
    let done = while_locked(|| {
        in_child(|| {
            keep_borrowed();
            drop(results.take());
            keep_borrowed();
            true
        })
    });
    assert!(done && results.is_some());
}

#[test]
fn the_segments_of_one_frame_count_together() {
    let _alone = alone();
    let (caller, server) = lending_ends();
    let bytes = 16 << 20;
    let room = usize::try_from(LENT_BYTES_MAX).expect("fits") / bytes;
    let results = (0..=room).map(|_| vec![3; bytes]).collect();
    let (_, results) = exchange((&caller, &server), Vec::new(), results);
    let expected: Vec<bool> = (0..=room).map(|index| index < room).collect();
    assert_eq!(is_lent(&results), expected);
    assert!(results[room].as_slice().iter().all(|&byte| byte == 3));
}

#[test]
fn what_two_threads_put_aside_at_once_is_lent_within_the_limit() {
    let _alone = alone();
    let (_caller, server) = lending_ends();
    let half = usize::try_from(LENT_BYTES_MAX).expect("fits") / 2;
    let segments = || -> Vec<Payload> { vec![Box::new(vec![3_u8; half]), Box::new(vec![3; half])] };
    let staged = [(); 2].map(|()| server.stage(&segments()[..]).expect("open"));
    let following = staged.map(|staged| {
        assert!(staged.iter().all(Option::is_some));
        let mut header = Header::control(Kind::Reply, 1);
        let name_staged = |state: &mut ConnectionState<Wire>| {
            state.name_staged(&mut header, segments(), staged).len()
        };
        let left = server.step(name_staged).expect("open");
        (header.named, left)
    });
    assert_eq!(
        following,
        [(true, 1), (false, 2)],
        "a table, or both segments"
    );
}

#[test]
fn a_caller_lends_a_longer_segment_alone() {
    let _alone = alone();
    let (caller, server) = lending_ends();
    let bytes = usize::try_from(LENT_BYTES_MAX).expect("fits") + 1;
    let (alone, _) = exchange((&caller, &server), vec![vec![3; bytes]], Vec::new());
    assert!(alone[0].is_shared());
    let (beside, _) = exchange(
        (&caller, &server),
        vec![vec![4; LEND_BYTES_MIN]],
        Vec::new(),
    );
    assert!(!beside[0].is_shared() && beside[0].as_slice()[0] == 4);
}

#[test]
fn nothing_is_lent_where_either_end_does_not() {
    let _alone = alone();
    for lends in [[true, false], [false, true], [false, false]] {
        let (caller, server) = ends(lends);
        let long = || vec![vec![1; LEND_BYTES_MIN]];
        for _ in 0..3 {
            let (arguments, results) = exchange((&caller, &server), long(), long());
            assert!(!arguments[0].is_shared() && !results[0].is_shared());
        }
    }
}

/// The answer to a call whose arguments are long.
fn long_exchange(caller: &Connection, server: &Connection, fill: u8) -> (Vec<bool>, Vec<bool>) {
    let long = || vec![vec![fill; LEND_BYTES_MIN]];
    let (arguments, results) = exchange((caller, server), long(), long());
    for received in arguments.iter().chain(&results) {
        assert!(received.as_slice().iter().all(|&byte| byte == fill));
    }
    (is_lent(&arguments), is_lent(&results))
}

/// A caller that has called before, the duplicate of its socket, and the server.
fn shared_caller() -> (Connection, OwnedFd, Connection) {
    let (ours, theirs) = unix::pair().expect("sockets");
    let duplicate = ours.try_clone().expect("a duplicate");
    let first = Connection::new(ours, Options::new(Role::Caller, "service")).expect("a caller");
    let server = Connection::new(theirs, Options::new(Role::Server, "caller")).expect("a server");
    (first, duplicate, server)
}

/// Another process that goes on where `first` has stopped.
fn take_over(first: &Connection, socket: OwnedFd) -> Connection {
    let preface_read = first.is_open().expect("open");
    let options = Options::new(Role::Caller, "service");
    Connection::resume(socket, options, preface_read).expect("a caller")
}

#[test]
fn a_process_that_takes_over_lends_and_borrows_anew() {
    let _alone = alone();
    let (first, socket, server) = shared_caller();
    let (kept, _) = exchange((&first, &server), vec![vec![9; LEND_BYTES_MIN]], Vec::new());
    for _ in 0..2 {
        long_exchange(&first, &server, 1);
    }
    let both = (vec![true], vec![true]);
    assert_eq!(long_exchange(&first, &server, 2), both);
    assert!(first.is_quiescent(0).expect("open"));

    let second = take_over(&first, socket);
    assert!(
        second.is_quiescent(0).expect("open"),
        "nothing is to be sent"
    );
    let as_bytes = (vec![false], vec![false]);
    assert_eq!(long_exchange(&second, &server, 3), as_bytes);
    long_exchange(&second, &server, 4);
    assert_eq!(long_exchange(&second, &server, 5), both);
    assert!(second.is_quiescent(0).expect("open"));

    first.renew().expect("open");
    assert!(first.is_quiescent(0).expect("open"));
    assert_eq!(long_exchange(&first, &server, 6), as_bytes);
    long_exchange(&first, &server, 7);
    assert_eq!(long_exchange(&first, &server, 8), both);
    assert!(kept[0].as_slice().iter().all(|&byte| byte == 9));
}

#[test]
fn what_was_announced_to_the_process_before_is_ignored() {
    let _alone = alone();
    let (first, socket, server) = shared_caller();
    let id = call(&first, vec![vec![1; LEND_BYTES_MIN]]);
    drop(taken(&first, &server));
    // The answer comes behind the words by which the server borrows from the first process.
    first.forget_call(id).expect("open");
    let second = take_over(&first, socket);
    second.expect_reply(id, Taker::Thread).expect("open");
    answer(&second, &server, id, Vec::new());
    assert!(
        second.is_quiescent(0).expect("open"),
        "no descriptor is left"
    );
    for fill in 2..5 {
        long_exchange(&second, &server, fill);
    }
    let both = (vec![true], vec![true]);
    assert_eq!(long_exchange(&second, &server, 5), both);
}
