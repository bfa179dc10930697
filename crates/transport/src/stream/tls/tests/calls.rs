//! Calls over TLS: waits that find input in the stream, long segments, an end that is told well.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::calls::call::{Outcome, Taker};
use crate::calls::{Connection, Options, Outgoing};
use crate::error::{Cause, Error, Fault};
use crate::link::outbox::Head;
use crate::stream::tls::tests::authority::{Authority, both};
use crate::wire::frame::Codec;
use crate::wire::role::Role;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn ends() -> (Connection, Connection) {
    let (server, client) = both(&Authority::new());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let ours = TcpStream::connect(listener.local_addr().expect("a port")).expect("connected");
    let (theirs, _) = listener.accept().expect("accepted");
    let ours = client
        .connect(Arc::new(ours.into()), "localhost")
        .expect("TLS");
    let theirs = server.accept(Arc::new(theirs.into())).expect("TLS");
    let caller = Connection::new(ours, Options::new(Role::Caller, "server")).expect("caller");
    let server = Connection::new(theirs, Options::new(Role::Server, "caller")).expect("server");
    (caller, server)
}

/// Answer every call with its own segments.
fn echo(server: &Connection) -> Result<(), Error> {
    while let Some(call) = server.next_call(Some(soon()))? {
        let segments = call.segments.into_iter();
        let lent = segments.map(|segment| Box::new(segment.as_slice().to_vec()) as _);
        server.reply(
            call.id,
            call.codec,
            Head::Borrowed(b"answer"),
            lent.collect(),
        )?;
        server.drain(Some(soon()))?;
    }
    Ok(())
}

fn call(caller: &Connection, bytes: usize) -> Outcome {
    let call = Outgoing {
        codec: Codec::Msgpack,
        one_way: false,
        remaining: None,
        generation: 0,
        head: Head::Borrowed(b"question"),
        segments: vec![Box::new(vec![7u8; bytes])],
    };
    let id = caller.start(call, Taker::Thread).expect("sent");
    caller.wait(id, Some(soon())).expect("an outcome")
}

#[test]
fn calls_of_any_size_are_answered_and_closing_is_told() {
    let (caller, server) = ends();
    thread::scope(|scope| {
        let serving = scope.spawn(|| echo(&server));
        caller.handshake(Some(soon())).expect("connected");
        assert!(
            !caller.is_trusted(),
            "pickle is for one user of one machine"
        );
        for bytes in [0, 1, 100, 70_000, 3_000_000] {
            match call(&caller, bytes) {
                Outcome::Reply(reply) => assert_eq!(reply.segments[0].len(), bytes),
                other => panic!("{other:?}"),
            }
        }
        caller.close();
        serving.join().expect("no panic").expect("an orderly end");
    });
}

#[test]
fn a_server_that_closes_says_so_to_waiting_callers() {
    let (caller, server) = ends();
    thread::scope(|scope| {
        scope.spawn(|| {
            let call = server.next_call(Some(soon())).expect("alive");
            assert!(call.is_some());
            server.close();
        });
        caller.handshake(Some(soon())).expect("connected");
        match call(&caller, 10) {
            Outcome::Broken { fault, sent } => {
                assert!(sent);
                assert_eq!(fault, Fault::Broken(Cause::EndOfFile), "not a cut");
            }
            other => panic!("{other:?}"),
        }
    });
}
