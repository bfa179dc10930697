//! What an end learns when it exceeds a limit of the other one.

use std::time::{Duration, Instant};

use forebay_transport::calls::{Connection, LastLook, Options, Outcome, Outgoing, Taker, Work};
use forebay_transport::limit::{PEER_FRAME_BYTES_MIN, STREAM_CREDIT_MAX};
use forebay_transport::link::Head;
use forebay_transport::stream::unix;
use forebay_transport::wire::{Codec, Reason, Role};
use forebay_transport::{Error, Result};

fn ends() -> (Connection, Connection) {
    let (ours, theirs) = unix::pair().expect("sockets");
    let caller = Connection::new(ours, Options::new(Role::Caller, "the service"));
    let server = Connection::new(theirs, Options::new(Role::Server, "the caller"));
    (caller.expect("a caller"), server.expect("a server"))
}

fn question() -> Outgoing<'static> {
    Outgoing {
        codec: Codec::Msgpack,
        one_way: false,
        remaining: Some(Duration::from_secs(20)),
        generation: 0,
        head: Head::Borrowed(b"items"),
        segments: Vec::new(),
    }
}

fn start(caller: &Connection, credit: u32) -> Result<u64> {
    caller.start_stream(question(), Taker::Thread, credit)
}

#[test]
fn a_credit_out_of_range_is_told_with_its_range() {
    let (caller, _server) = ends();
    for value in [0, STREAM_CREDIT_MAX + 1] {
        let error = start(&caller, value).expect_err("out of range");
        let expected = Error::Credit {
            peer: "the service".into(),
            limit: STREAM_CREDIT_MAX,
            value,
        };
        assert_eq!(error, expected);
        let text = error.to_string();
        assert!(text.contains(&format!("{value} items")) && text.contains("from 1 to"));
    }
}

#[test]
fn an_item_without_credit_is_told_with_its_stream() {
    let (caller, server) = ends();
    let id = start(&caller, 1).expect("asked for");
    let Ok(Work::Call(call)) = server.next_work() else {
        panic!("no call came");
    };
    let mut look = LastLook::now();
    let mut send = || {
        let head = Head::Borrowed(b"item");
        server.send_item(call.id, Codec::Msgpack, head, Vec::new(), false, &mut look)
    };
    assert!(send().is_ok());
    let error = send().expect_err("no credit is left");
    let peer = "the caller".to_owned();
    assert_eq!(error, Error::NoCredit { peer, id });
    let text = error.to_string();
    assert!(text.contains("stream 1 to the caller") && text.contains("limit of 0"));
}

#[test]
fn a_failure_whose_description_is_too_long_is_answered_without_it() {
    let (ours, theirs) = unix::pair().expect("sockets");
    let mut options = Options::new(Role::Caller, "the service");
    options.limits.frame_bytes_max = PEER_FRAME_BYTES_MIN;
    let caller = Connection::new(ours, options).expect("a caller");
    let server = Connection::new(theirs, Options::new(Role::Server, "the caller"));
    let server = server.expect("a server");
    let most = usize::try_from(PEER_FRAME_BYTES_MIN).expect("short");
    for (bytes, expected, arrives) in [
        (most, Reason::Raised, most),
        (most + 1, Reason::Undescribed, 0),
    ] {
        let id = caller.start(question(), Taker::Thread).expect("sent");
        let soon = Some(Instant::now() + Duration::from_secs(20));
        let running = server.next_call(soon).expect("alive").expect("a call");
        let head = Head::Lent(Box::new(vec![0_u8; bytes]));
        let answered = server.fail(running.id, Reason::Raised, Codec::Msgpack, head);
        answered.expect("answered");
        let Outcome::Failure(reason, frame) = caller.wait(id, soon).expect("ends") else {
            panic!("it did not fail");
        };
        assert_eq!((reason, frame.head.len()), (expected, arrives));
    }
}
