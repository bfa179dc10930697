//! Whoever stops waiting lets another thread read: it would sleep for ever.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::calls::call::{Outcome, Taker};
use crate::calls::connection::Connection;
use crate::calls::gather::wait_all;
use crate::calls::options::{Options, Outgoing};
use crate::error::{Error, Result};
use crate::link::outbox::{Head, Payload};
use crate::stream::unix::pair;
use crate::wire::frame::Codec;
use crate::wire::role::Role;
use forebay_base::waiters::Reader;

/// Enough for a thread to get to its sleep.
const SHORT: Duration = Duration::from_millis(500);
/// More than the kernel takes for a peer that does not read.
const LONG_BYTES: usize = 4 << 20;

#[allow(clippy::unnecessary_wraps)] // every wait takes an optional deadline
fn within(time: Duration) -> Option<Instant> {
    Some(Instant::now() + time)
}

fn soon() -> Option<Instant> {
    within(Duration::from_secs(10))
}

fn end(socket: OwnedFd, role: Role) -> Connection {
    let options = Options {
        lends: false,
        ..Options::new(role, "the other end")
    };
    Connection::new(socket, options).expect("an end")
}

fn ends() -> (Connection, Connection) {
    let (ours, theirs) = pair().expect("sockets");
    (end(ours, Role::Caller), end(theirs, Role::Server))
}

fn start(caller: &Connection, one_way: bool, segments: Vec<Payload>) -> u64 {
    let call = Outgoing {
        codec: Codec::Msgpack,
        one_way,
        remaining: None,
        generation: 0,
        head: Head::Borrowed(b"call"),
        segments,
    };
    caller.start(call, Taker::Thread).expect("sent")
}

/// Answer the call `id`, which may come behind others.
fn answer(server: &Connection, id: u64) {
    while server.next_call(soon()).expect("alive").expect("a call").id != id {}
    let head = Head::Borrowed(b"answer");
    let answered = server.reply(id, Codec::Msgpack, head, Vec::new());
    answered.expect("sent");
}

/// Have a thread lead and another one follow it, waiting for `id`, while `act` makes the first one leave; returns both outcomes.
fn leader_and_follower<R: Send>(
    caller: &Connection,
    lead: impl FnOnce() -> R + Send,
    id: u64,
    act: impl FnOnce(),
    answer: impl FnOnce(),
) -> (R, Result<Outcome>) {
    std::thread::scope(|scope| {
        let leader = scope.spawn(lead);
        let stopped = || leader.is_finished(); // on a machine that stood still; then nobody follows
        let reader = || caller.lock().expect("ours").reader();
        let is_led = || matches!(reader(), Reader::Thread(_));
        until(|| stopped() || is_led());
        let follower = scope.spawn(|| caller.wait(id, soon()));
        let follows = || caller.lock().expect("ours").waiters().follows(id);
        until(|| stopped() || follows());
        act();
        let ended = leader.join().expect("no panic");
        answer();
        (ended, follower.join().expect("no panic"))
    })
}

fn until(is_so: impl Fn() -> bool) {
    let late = soon();
    while !is_so() {
        assert!(Some(Instant::now()) < late, "it took too long");
        std::thread::yield_now();
    }
}

#[test]
fn a_thread_that_gives_up_sending_lets_a_follower_read() {
    type Waits = fn(&Connection, Option<Instant>) -> Result<()>;
    let waits: [Waits; 2] = [Connection::drain, Connection::wait_for_room];
    for wait in waits {
        let (caller, server) = ends();
        let id = start(&caller, false, Vec::new());
        let call = server.next_call(soon()).expect("alive").expect("a call");
        assert_eq!(call.id, id);
        start(&caller, true, vec![Box::new(vec![0_u8; LONG_BYTES])]); // the server does not read it
        let lead = || wait(&caller, within(SHORT));
        let reply = || {
            let head = Head::Borrowed(b"answer");
            let answered = server.reply(id, Codec::Msgpack, head, Vec::new());
            answered.expect("sent");
        };
        let (ended, taken) = leader_and_follower(&caller, lead, id, || {}, reply);
        assert!(matches!(ended, Err(Error::Deadline { .. })), "{ended:?}");
        assert!(matches!(taken, Ok(Outcome::Reply(_))), "{taken:?}");
    }
}

#[test]
fn a_thread_that_stops_meeting_the_peer_lets_a_follower_read() {
    for handshakes in [false, true] {
        let (ours, theirs) = pair().expect("sockets");
        let caller = end(ours, Role::Caller);
        let id = start(&caller, false, Vec::new());
        let lead = || caller.handshake(if handshakes { soon() } else { within(SHORT) });
        let server = std::cell::OnceCell::new();
        let theirs = std::cell::Cell::new(Some(theirs));
        let serve = || end(theirs.take().expect("once"), Role::Server);
        let act = || {
            if handshakes {
                server.get_or_init(serve);
            }
        };
        let reply = || answer(server.get_or_init(serve), id);
        let (ended, taken) = leader_and_follower(&caller, lead, id, act, reply);
        assert_eq!(ended.is_ok(), handshakes, "{ended:?}");
        assert!(matches!(taken, Ok(Outcome::Reply(_))), "{taken:?}");
    }
}

#[test]
fn a_thread_whose_gathered_call_is_cancelled_lets_a_follower_read() {
    let (caller, server) = ends();
    let [cancelled, id] = [(); 2].map(|()| start(&caller, false, Vec::new()));
    let lead = || {
        let mut ended = [None];
        wait_all(&[(&caller, cancelled)], &mut ended, soon(), false).map(|()| ended)
    };
    let act = || {
        caller.cancel(cancelled).expect("open");
        server.ping().expect("open"); // which wakes it
    };
    let (ended, taken) = leader_and_follower(&caller, lead, id, act, || answer(&server, id));
    assert!(
        matches!(ended, Ok([Some(Err(Error::Closed { .. }))])),
        "{ended:?}"
    );
    assert!(matches!(taken, Ok(Outcome::Reply(_))), "{taken:?}");
}
