//! Two ends over a real socketpair.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_transport::calls::{Connection, Options, Outcome, Outgoing, Taker};
use forebay_transport::link::{Head, Payload};
use forebay_transport::stream::unix::{Listener, connect, pair};
use forebay_transport::wire::{Codec, Incoming, Reason, Role};
use forebay_transport::{Cause, Delivered, Error, Violation};
use rustix::net::{Shutdown, send, shutdown, sockopt::set_socket_send_buffer_size};

fn ends() -> (Connection, Connection) {
    let (left, right) = pair().expect("pair");
    let caller = Connection::new(left, Options::new(Role::Caller, "server")).expect("caller");
    let server = Connection::new(right, Options::new(Role::Server, "caller")).expect("server");
    (caller, server)
}

fn call(head: &[u8], segments: Vec<Payload>) -> Outgoing<'_> {
    let head = Head::Borrowed(head);
    Outgoing {
        codec: Codec::Msgpack,
        one_way: false,
        remaining: None,
        generation: 0,
        head,
        segments,
    }
}

#[allow(clippy::unnecessary_wraps)] // every wait takes an optional deadline
fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(20))
}

fn reply_of(outcome: Outcome) -> Incoming {
    match outcome {
        Outcome::Reply(frame) => frame,
        other => panic!("no reply but {other:?}"),
    }
}

fn echo(server: &Connection) {
    while let Some(call) = server.next_call(soon()).expect("serves") {
        let segments = call
            .segments
            .into_iter()
            .map(|segment| Box::new(segment) as Payload)
            .collect();
        server
            .reply(
                call.id,
                call.codec,
                Head::Borrowed(call.head.as_slice()),
                segments,
            )
            .expect("replies");
        server.drain(soon()).expect("drains");
    }
}

#[test]
fn calls_are_answered_in_order_with_their_segments() {
    let (caller, server) = ends();
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&server));
        for bytes in [0usize, 1, 100, 70_000, 3_000_000] {
            let payload: Payload = Box::new(vec![7u8; bytes]);
            let id = caller
                .start(call(b"head", vec![payload]), Taker::Thread)
                .expect("starts");
            let reply = reply_of(caller.wait(id, soon()).expect("waits"));
            assert_eq!(reply.head.as_slice(), b"head");
            assert!(reply.segments[0].as_slice() == vec![7u8; bytes]);
            assert_eq!(reply.segments[0].pointer() as usize % 64, 0);
        }
        caller.close();
    });
}

#[test]
fn many_threads_share_one_connection() {
    let (caller, server) = ends();
    let caller = Arc::new(caller);
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&server));
        let threads: Vec<_> = (0..8u32)
            .map(|thread| {
                let caller = caller.clone();
                scope.spawn(move || {
                    for round in 0..300u32 {
                        let head = (thread * 1000 + round).to_le_bytes();
                        let filler: Payload = Box::new(vec![0u8; (round as usize % 7) * 20_000]);
                        let id = caller
                            .start(call(&head, vec![filler]), Taker::Thread)
                            .expect("starts");
                        let reply = reply_of(caller.wait(id, soon()).expect("waits"));
                        assert_eq!(reply.head.as_slice(), head);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(caller.counters().in_flight, 0);
        caller.close();
    });
}

#[test]
fn a_tiny_send_buffer_loses_nothing() {
    let (left, right) = pair().expect("pair");
    for end in [&left, &right] {
        set_socket_send_buffer_size(end, 1).expect("set");
    }
    let caller = Connection::new(left, Options::new(Role::Caller, "server")).expect("caller");
    let server = Connection::new(right, Options::new(Role::Server, "caller")).expect("server");
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&server));
        let ids: Vec<_> = (0..50usize)
            .map(|at| {
                let payload: Payload = Box::new(vec![u8::try_from(at).expect("small"); at * 4000]);
                caller
                    .start(call(&at.to_le_bytes(), vec![payload]), Taker::Thread)
                    .expect("starts")
            })
            .collect();
        for (at, id) in ids.into_iter().enumerate() {
            let reply = reply_of(caller.wait(id, soon()).expect("waits"));
            assert_eq!(reply.head.as_slice(), at.to_le_bytes());
            assert!(
                reply.segments[0].as_slice() == vec![u8::try_from(at).expect("small"); at * 4000]
            );
        }
        caller.close();
    });
}

#[test]
fn a_deadline_cancels_and_leaves_the_connection_usable() {
    let (caller, server) = ends();
    let id = caller
        .start(call(b"slow", vec![]), Taker::Thread)
        .expect("starts");
    let slow = server.next_call(soon()).expect("serves").expect("a call");
    let error = caller
        .wait(id, Some(Instant::now() + Duration::from_millis(20)))
        .expect_err("late");
    assert!(matches!(error, Error::Deadline { .. }));
    assert!(server.is_cancelled(slow.id).expect("looks"));
    server
        .reply(slow.id, slow.codec, Head::Borrowed(b"late"), vec![])
        .expect("dropped");
    let id = caller
        .start(call(b"next", vec![]), Taker::Thread)
        .expect("starts");
    let next = server.next_call(soon()).expect("serves").expect("a call");
    server
        .reply(next.id, next.codec, Head::Borrowed(b"answer"), vec![])
        .expect("replies");
    assert_eq!(
        reply_of(caller.wait(id, soon()).expect("waits"))
            .head
            .as_slice(),
        b"answer"
    );
}

#[test]
fn a_cancelled_call_is_removed_from_the_queue() {
    let (caller, server) = ends();
    let ids: Vec<_> = (0..3)
        .map(|_| {
            caller
                .start(call(b"x", vec![]), Taker::Queue)
                .expect("starts")
        })
        .collect();
    caller.cancel(ids[1]).expect("cancels");
    let first = server.next_call(soon()).expect("serves").expect("a call");
    let second = server.next_call(soon()).expect("serves").expect("a call");
    assert_eq!((first.id, second.id), (ids[0], ids[2]));
    assert_eq!(server.counters().cancelled, 1);
}

#[test]
fn expired_and_stale_calls_are_refused_unstarted() {
    let (caller, server) = ends();
    server.set_generation(5).expect("set");
    let stale = caller
        .start(
            Outgoing {
                generation: 4,
                ..call(b"", vec![])
            },
            Taker::Thread,
        )
        .expect("starts");
    let short = Some(Duration::from_millis(1));
    let expired = caller
        .start(
            Outgoing {
                generation: 5,
                remaining: short,
                ..call(b"", vec![])
            },
            Taker::Thread,
        )
        .expect("starts");
    let good = caller
        .start(
            Outgoing {
                generation: 5,
                ..call(b"go", vec![])
            },
            Taker::Thread,
        )
        .expect("starts");
    server.receive().expect("reads the three calls");
    let arrived = Instant::now();
    while arrived.elapsed() < Duration::from_millis(3) {
        std::hint::spin_loop();
    }
    let run = server.next_call(soon()).expect("serves").expect("a call");
    assert_eq!(run.id, good);
    for (id, reason) in [(stale, Reason::Stale), (expired, Reason::Expired)] {
        let outcome = caller.wait(id, soon()).expect("waits");
        assert!(matches!(outcome, Outcome::Failure(found, _) if found == reason));
    }
}

#[test]
fn the_end_of_a_peer_breaks_its_calls() {
    let (caller, server) = ends();
    let id = caller
        .start(call(b"x", vec![]), Taker::Thread)
        .expect("starts");
    drop(server);
    let outcome = caller.wait(id, soon()).expect("waits");
    assert!(
        matches!(outcome, Outcome::Broken { sent: true, .. }),
        "{outcome:?}"
    );
    let error = caller
        .start(call(b"y", vec![]), Taker::Thread)
        .expect_err("broken");
    assert!(
        matches!(
            error,
            Error::Broken {
                delivered: Delivered::No,
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_frame_that_did_not_leave_is_not_delivered() {
    let (caller, server) = ends();
    let payload: Payload = Box::new(vec![0u8; 8 << 20]);
    let id = caller
        .start(call(b"x", vec![payload]), Taker::Thread)
        .expect("starts");
    drop(server);
    let outcome = caller.wait(id, soon()).expect("waits");
    assert!(
        matches!(outcome, Outcome::Broken { sent: false, .. }),
        "{outcome:?}"
    );
}

#[test]
fn a_half_closed_caller_still_gets_its_replies() {
    let (left, right) = pair().expect("pair");
    let half = left.try_clone().expect("clone");
    let caller = Connection::new(left, Options::new(Role::Caller, "server")).expect("caller");
    let server = Connection::new(right, Options::new(Role::Server, "caller")).expect("server");
    let ids: Vec<_> = (0..2)
        .map(|_| {
            caller
                .start(call(b"x", vec![]), Taker::Thread)
                .expect("starts")
        })
        .collect();
    shutdown(&half, Shutdown::Write).expect("shutdown");
    echo(&server);
    for id in ids {
        assert_eq!(
            reply_of(caller.wait(id, soon()).expect("waits"))
                .head
                .as_slice(),
            b"x"
        );
    }
}

#[test]
fn the_inbox_stops_reading_at_its_limit() {
    let (left, right) = pair().expect("pair");
    let caller = Connection::new(left, Options::new(Role::Caller, "server")).expect("caller");
    let mut options = Options::new(Role::Server, "caller");
    options.limits.inbox_bytes_max = 100_000;
    let server = Connection::new(right, options).expect("server");
    for _ in 0..100 {
        let payload: Payload = Box::new(vec![1u8; 20_000]);
        caller
            .start(call(b"", vec![payload]), Taker::Queue)
            .expect("starts");
    }
    server.receive().expect("receives");
    for _ in 0..20 {
        server.receive().expect("receives");
        caller.flush().expect("flushes");
    }
    let held = server.counters().inbox_bytes;
    assert!((100_000..400_000).contains(&held), "{held}");
    assert!(!server.wants().expect("open").0);
    let mut taken = 0;
    while taken < 100 {
        taken += server.poll_calls(10).expect("polls").len();
        server.receive().expect("receives");
        caller.flush().expect("flushes");
    }
}

#[test]
fn garbage_is_refused_with_its_offset() {
    let (left, right) = pair().expect("pair");
    send(
        &left,
        b"GET / HTTP/1.1\r\nHost: nobody.invalid\r\n\r\n",
        rustix::net::SendFlags::empty(),
    )
    .expect("send");
    let server = Connection::new(right, Options::new(Role::Server, "caller")).expect("server");
    let error = server.next_call(soon()).expect_err("refused");
    let Error::Protocol {
        offset, violation, ..
    } = error
    else {
        panic!("{error:?}")
    };
    assert_eq!((offset, violation), (32, Violation::Magic(*b"GET ")));
}

#[test]
fn a_call_to_a_caller_breaks_the_protocol() {
    let (left, right) = pair().expect("pair");
    let one = Connection::new(left, Options::new(Role::Caller, "other")).expect("caller");
    let other = Connection::new(right, Options::new(Role::Caller, "one")).expect("caller");
    let id = one
        .start(call(b"x", vec![]), Taker::Thread)
        .expect("starts");
    let mine = other
        .start(call(b"y", vec![]), Taker::Thread)
        .expect("starts");
    assert!(matches!(
        other.wait(mine, soon()),
        Ok(Outcome::Broken { .. })
    ));
    assert!(matches!(one.wait(id, soon()), Ok(Outcome::Broken { .. })));
    assert!(matches!(
        other.fault(),
        Some(Error::Protocol {
            violation: Violation::NotServing,
            ..
        })
    ));
}

#[test]
fn closing_wakes_blocked_threads() {
    let (caller, server) = ends();
    let ids: Vec<_> = (0..3)
        .map(|_| {
            caller
                .start(call(b"x", vec![]), Taker::Thread)
                .expect("starts")
        })
        .collect();
    std::thread::scope(|scope| {
        let waits: Vec<_> = ids
            .iter()
            .map(|&id| {
                scope.spawn({
                    let caller = &caller;
                    move || caller.wait(id, soon())
                })
            })
            .collect();
        for _ in 0..3 {
            server.next_call(soon()).expect("serves").expect("a call");
        }
        caller.close();
        for wait in waits {
            let outcome = wait.join().expect("no panic");
            assert!(
                matches!(
                    outcome,
                    Ok(Outcome::Broken { .. }) | Err(Error::Closed { .. })
                ),
                "{outcome:?}"
            );
        }
    });
}

#[test]
fn goodbye_refuses_new_calls_and_finishes_the_running() {
    let (caller, server) = ends();
    let first = caller
        .start(call(b"x", vec![]), Taker::Thread)
        .expect("starts");
    let running = server.next_call(soon()).expect("serves").expect("a call");
    server.goodbye().expect("says goodbye");
    let crossing = caller
        .start(call(b"y", vec![]), Taker::Thread)
        .expect("not yet known");
    server
        .reply(running.id, running.codec, Head::Borrowed(b"done"), vec![])
        .expect("replies");
    assert!(server.next_call(soon()).expect("ends").is_none());
    assert_eq!(
        reply_of(caller.wait(first, soon()).expect("waits"))
            .head
            .as_slice(),
        b"done"
    );
    let error = caller
        .start(call(b"z", vec![]), Taker::Thread)
        .expect_err("refused");
    assert!(matches!(
        error,
        Error::Broken {
            cause: Cause::Goodbye,
            delivered: Delivered::No,
            ..
        }
    ));
    server.receive().expect("receives");
    let outcome = caller.wait(crossing, soon()).expect("waits");
    assert!(
        matches!(outcome, Outcome::Failure(Reason::Closing, _)),
        "{outcome:?}"
    );
}

#[test]
fn pings_are_answered() {
    let (caller, server) = ends();
    caller.ping().expect("sends");
    server.receive().expect("receives");
    caller.receive().expect("receives");
    assert_eq!(caller.counters().pongs, 1);
}

#[test]
fn listeners_replace_stale_files_and_respect_live_ones() {
    let directory = std::env::temp_dir().join(format!("forebay-unix-{}", std::process::id()));
    let path = directory.join("socket");
    let listener = Listener::bind(&path).expect("binds");
    assert!(
        matches!(Listener::bind(&path), Err(Error::Config(_))),
        "in use"
    );
    let client = connect(&path, None).expect("connects");
    let accepted = listener.accept().expect("accepts").expect("waits");
    assert_eq!(
        forebay_transport::stream::unix::peer_uid(&accepted),
        forebay_transport::stream::unix::peer_uid(&client)
    );
    drop(listener);
    assert!(!path.exists());
    drop(std::os::unix::net::UnixListener::bind(&path).expect("leaves a stale file"));
    drop(Listener::bind(&path).expect("replaces it"));
    let long = directory.join("x".repeat(120));
    assert!(matches!(Listener::bind(&long), Err(Error::Config(_))));
    std::fs::remove_dir_all(&directory).expect("removes");
}

/// A directory of its own, for sockets.
fn sockets(name: &str) -> std::path::PathBuf {
    let name = format!("forebay-{name}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&directory).expect("made");
    directory
}

#[test]
fn a_lock_that_is_a_link_is_not_followed() {
    let directory = sockets("linked-lock");
    let target = directory.join("of somebody else");
    std::os::unix::fs::symlink(&target, directory.join("socket.lock")).expect("links");
    assert!(Listener::bind(&directory.join("socket")).is_err());
    assert!(!target.exists(), "nothing was made through the link");
    std::fs::remove_dir_all(&directory).expect("removes");
}

#[test]
fn a_lock_that_is_a_pipe_is_refused_and_not_waited_for() {
    let directory = sockets("piped-lock");
    let pipe = directory.join("socket.lock");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).expect("a pipe");
    assert!(Listener::bind(&directory.join("socket")).is_err());
    std::fs::remove_dir_all(&directory).expect("removes");
}

#[test]
fn a_listener_removes_its_own_socket_alone() {
    let directory = sockets("successor");
    let path = directory.join("socket");
    let first = Listener::bind(&path).expect("binds");
    for name in ["socket", "socket.lock"] {
        std::fs::remove_file(directory.join(name)).expect("as who cleans /tmp does");
    }
    let second = Listener::bind(&path).expect("the name is free");
    drop(first);
    connect(&path, None).expect("the second one's socket is there");
    assert!(
        matches!(Listener::bind(&path), Err(Error::Config(_))),
        "and so is its lock"
    );
    drop(second);
    assert!(!path.exists());
    std::fs::remove_dir_all(&directory).expect("removes");
}
