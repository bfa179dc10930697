//! What an end is told that asks a stream for more than it may.

use std::time::Duration;

use forebay_transport::call::Taker;
use forebay_transport::connection::Outgoing;
use forebay_transport::limit::STREAM_CREDIT_MAX;
use forebay_transport::streaming::{LastLook, Work};
use forebay_transport::{Codec, Connection, Error, Head, Options, Result, Role, unix};

fn ends() -> (Connection, Connection) {
    let (ours, theirs) = unix::pair().expect("sockets");
    let caller = Connection::new(ours, Options::new(Role::Caller, "the service"));
    let server = Connection::new(theirs, Options::new(Role::Server, "the caller"));
    (caller.expect("a caller"), server.expect("a server"))
}

fn start(caller: &Connection, credit: u32) -> Result<u64> {
    let call = Outgoing {
        codec: Codec::Msgpack,
        one_way: false,
        remaining: Some(Duration::from_secs(20)),
        generation: 0,
        head: Head::Borrowed(b"items"),
        segments: Vec::new(),
    };
    caller.start_stream(call, Taker::Thread, credit)
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
