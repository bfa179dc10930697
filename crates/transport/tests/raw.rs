//! Streams that are given away after a greeting.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use forebay_transport::link::Admission;
use forebay_transport::messages::{MessageOptions, Messages};
use forebay_transport::stream::unix::pair;
use forebay_transport::stream::{Stream, StreamFault, Wire};
use forebay_transport::{Error, Violation};
use rustix::event::{PollFd, PollFlags, poll};

fn messages(wire: impl Into<Wire>, peer: &str) -> Messages {
    let options = MessageOptions {
        limits: forebay_transport::limit::Limits::of_messages(),
        peer: peer.to_owned(),
        admission: Admission::Anybody,
        token: None,
        trusted: true,
        allocator: None,
    };
    Messages::new(wire, options)
}

fn ends() -> (Messages, Messages) {
    let (left, right) = pair().expect("pair");
    (messages(left, "server"), messages(right, "client"))
}

#[allow(clippy::unnecessary_wraps)] // every wait takes an optional deadline
fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(20))
}

fn greet(from: &Messages, to: &Messages, word: &[u8]) {
    from.send(&mut vec![word.to_vec()]).expect("sent");
    let message = to.recv(soon()).expect("received");
    assert_eq!(message[0].as_slice(), word);
}

/// The next bytes of a stream, waited for.
fn next(wire: &mut Wire) -> Vec<u8> {
    let mut room = [MaybeUninit::uninit(); 64];
    loop {
        match wire.receive(&mut room) {
            Ok(bytes) => return bytes.to_vec(),
            Err(fault) => assert!(fault.is_transient(), "{fault}"),
        }
        let watch = wire.watch();
        poll(&mut [PollFd::new(&watch, PollFlags::IN)], None).expect("polled");
    }
}

fn say(wire: &mut Wire, bytes: &[u8]) -> Result<usize, StreamFault> {
    wire.send(&[std::io::IoSlice::new(bytes)])
}

#[test]
fn after_a_greeting_each_way_the_stream_carries_what_its_takers_say() {
    let (client, server) = ends();
    greet(&client, &server, b"hello");
    greet(&server, &client, b"welcome");
    let mut accepted = server.take_stream().expect("between two messages");
    let mut connected = client.take_stream().expect("between two messages");
    assert_eq!(say(&mut connected, b"\xff\xff\xff\xffraw"), Ok(7));
    assert_eq!(next(&mut accepted), b"\xff\xff\xff\xffraw");
    assert_eq!(say(&mut accepted, b"back"), Ok(4));
    assert_eq!(next(&mut connected), b"back");
    assert_eq!(client.descriptor(), None);
    assert!(matches!(client.take_stream(), Err(Error::Closed { .. })));
    assert!(matches!(
        server.send(&mut vec![b"late".to_vec()]),
        Err(Error::Closed { .. })
    ));
    client.close();
    drop(client);
    assert_eq!(
        say(&mut accepted, b"!"),
        Ok(1),
        "the old face closes nothing"
    );
    assert_eq!(next(&mut connected), b"!");
}

#[test]
fn an_end_that_answers_last_takes_the_stream_before_anything_else_comes() {
    let (client, server) = ends();
    greet(&client, &server, b"hello");
    server.send(&mut vec![b"welcome".to_vec()]).expect("sent");
    let mut accepted = server.take_stream().expect("its answer is gone");
    client.recv(soon()).expect("received");
    let mut connected = client.take_stream().expect("between two messages");
    say(&mut connected, b"first").expect("sent");
    assert_eq!(next(&mut accepted), b"first");
}

#[test]
fn a_message_that_waits_keeps_the_stream() {
    let (client, server) = ends();
    greet(&client, &server, b"hello");
    client.send(&mut vec![b"more".to_vec()]).expect("sent");
    while !server.step(true, false).expect("steps").ready {}
    assert!(matches!(server.take_stream(), Err(Error::Busy { .. })));
    assert_eq!(
        server.recv(soon()).expect("still there")[0].as_slice(),
        b"more"
    );
    assert!(server.take_stream().is_ok());
}

#[test]
fn before_the_peer_is_let_in_there_is_nothing_to_take() {
    let (client, server) = ends();
    assert!(matches!(client.take_stream(), Err(Error::Busy { .. })));
    greet(&client, &server, b"hello");
    greet(&server, &client, b"welcome");
    assert!(client.take_stream().is_ok());
}

#[test]
fn other_bytes_behind_a_message_are_refused_as_one() {
    let (left, right) = pair().expect("pair");
    let client = messages(left, "server");
    let server = messages(right, "client");
    greet(&client, &server, b"hello");
    greet(&server, &client, b"welcome");
    let mut connected = client.take_stream().expect("between two messages");
    say(&mut connected, &[0xee; 64]).expect("sent");
    let refused = server.recv(soon()).expect_err("no message");
    assert!(
        matches!(
            refused,
            Error::Protocol {
                violation: Violation::Kind(0xee),
                ..
            }
        ),
        "{refused:?}"
    );
    assert!(server.take_stream().is_err());
}
