//! A live connection goes from one process to another between two frames.

use std::time::{Duration, Instant};

use std::os::fd::OwnedFd;

use super::Connection;
use crate::calls::call::Outcome;
use crate::calls::{Options, Outgoing, Taker};
use crate::link::outbox::Head;
use crate::stream::unix;
use crate::wire::frame::Codec;
use crate::wire::role::Role;

fn call(connection: &Connection) -> u64 {
    let call = Outgoing {
        codec: Codec::Msgpack,
        one_way: false,
        remaining: None,
        generation: 0,
        head: Head::Borrowed(b"question"),
        segments: Vec::new(),
    };
    connection.start(call, Taker::Thread).expect("sent")
}

fn answer(server: &Connection) {
    let deadline = Some(Instant::now() + Duration::from_secs(5));
    let call = server.next_call(deadline).expect("alive").expect("a call");
    server
        .reply(
            call.id,
            Codec::Msgpack,
            Head::Borrowed(b"answer"),
            Vec::new(),
        )
        .expect("sent");
}

fn reply_of(connection: &Connection, id: u64) -> bool {
    let deadline = Some(Instant::now() + Duration::from_secs(5));
    matches!(connection.wait(id, deadline), Ok(Outcome::Reply(_)))
}

fn served() -> (Connection, OwnedFd, Connection) {
    let (ours, theirs) = unix::pair().expect("a pair");
    let duplicate = ours.try_clone().expect("a duplicate");
    let server = Connection::new(theirs, Options::new(Role::Server, "caller"));
    let options = Options {
        lends: false,
        ..Options::new(Role::Caller, "service")
    };
    let first = Connection::new(ours, options);
    (first.expect("first"), duplicate, server.expect("server"))
}

fn resume(socket: OwnedFd, preface_read: bool) -> Connection {
    let options = Options::new(Role::Caller, "service");
    Connection::resume(socket, options, preface_read).expect("second")
}

#[test]
fn an_owed_answer_is_read_by_whoever_is_next() {
    let (first, socket, server) = served();
    let id = call(&first);
    answer(&server);
    assert!(reply_of(&first, id));

    let owed = call(&first);
    assert!(first.is_quiescent(1).expect("open"));
    first.forget_call(owed).expect("open");
    assert!(first.is_quiescent(0).expect("open"));
    answer(&server);
    let second = resume(socket, first.is_open().expect("open"));
    second.expect_reply(owed, Taker::Thread).expect("open");
    assert!(reply_of(&second, owed));
    let own = call(&second);
    answer(&server);
    assert!(reply_of(&second, own));

    second.close_local().expect("open");
    let again = call(&first);
    answer(&server);
    assert!(reply_of(&first, again), "the first goes on where it was");
}

#[test]
fn a_call_that_was_given_up_and_still_runs_is_no_other_processes_call() {
    let (first, socket, server) = served();
    let deadline = || Some(Instant::now() + Duration::from_secs(5));
    let answered = call(&first);
    answer(&server);
    assert!(reply_of(&first, answered));
    let given_up = call(&first);
    let runs = server.next_call(deadline()).expect("alive");
    assert_eq!(runs.expect("a call").id, given_up);
    first.cancel(given_up).expect("open");
    let ids: Vec<u64> = (0..2)
        .map(|_| {
            let socket = socket.try_clone().expect("a duplicate");
            let next = resume(socket, first.is_open().expect("open"));
            let id = call(&next);
            answer(&server);
            assert!(reply_of(&next, id));
            next.close_local().expect("open");
            id
        })
        .collect();
    assert!(given_up < ids[0] && ids[0] < ids[1], "{ids:?}");
}

#[test]
fn a_start_that_nobody_waited_for_is_read_with_the_preface() {
    let (first, socket, server) = served();
    let owed = call(&first);
    assert!(!first.is_quiescent(0).expect("open"), "a call is in flight");
    first.forget_call(owed).expect("open");
    let preface_read = first.is_open().expect("open");
    assert!(!preface_read);
    let second = resume(socket, preface_read);
    second.expect_reply(owed, Taker::Thread).expect("open");
    answer(&server);
    assert!(reply_of(&second, owed));
    assert!(second.is_open().expect("open"));
}
