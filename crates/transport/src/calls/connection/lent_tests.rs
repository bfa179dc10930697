//! What a step is lent is given back outside of the lock: its owner may wait for another one there.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::Connection;
use crate::calls::call::Taker;
use crate::calls::options::{Options, Outgoing};
use crate::calls::streaming::LastLook;
use crate::error::Fault;
use crate::limit::{Limits, PEER_FRAME_BYTES_MIN};
use crate::link::outbox::{Head, Payload};
use crate::stream::unix;
use crate::wire::frame::{Codec, Reason};
use crate::wire::preface::Preface;
use crate::wire::role::Role;

/// Lent bytes that tell whether the connection was locked when they were given back.
struct Witness {
    connection: Arc<Connection>,
    bytes: Vec<u8>,
    told: Sender<bool>,
}

impl AsRef<[u8]> for Witness {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let locked = self.connection.state.try_lock().is_err();
        let _ = self.told.send(locked);
    }
}

/// Lends a connection witnesses, and hears of them.
struct Lends {
    connection: Arc<Connection>,
    teller: Sender<bool>,
    told: Receiver<bool>,
}

impl Lends {
    fn new(connection: &Arc<Connection>) -> Self {
        let (teller, told) = channel();
        Self {
            connection: Arc::clone(connection),
            teller,
            told,
        }
    }

    fn witness(&self, bytes: u64) -> Payload {
        Box::new(Witness {
            connection: Arc::clone(&self.connection),
            bytes: vec![1; usize::try_from(bytes).expect("short")],
            told: self.teller.clone(),
        })
    }

    fn head(&self) -> Head<'static> {
        Head::Lent(self.witness(10))
    }

    /// A segment for each length.
    fn segments(&self, lengths: &[u64]) -> Vec<Payload> {
        lengths.iter().map(|&bytes| self.witness(bytes)).collect()
    }

    fn call(&self, lengths: &[u64]) -> Outgoing<'static> {
        Outgoing {
            codec: Codec::Msgpack,
            one_way: false,
            remaining: None,
            generation: 0,
            head: self.head(),
            segments: self.segments(lengths),
        }
    }

    /// All of it has been given back by now, and not under the lock.
    fn expect_back(&self, count: usize, why: &str) {
        let told: Vec<bool> = self.told.try_iter().collect();
        assert_eq!(told, vec![false; count], "{why}");
    }
}

fn ends() -> [Arc<Connection>; 2] {
    let (ours, theirs) = unix::pair().expect("sockets");
    let make = |socket, role| {
        let mut options = Options::new(role, "the other end");
        options.limits.frame_bytes_max = PEER_FRAME_BYTES_MIN;
        options.limits.segments_max = 2;
        Arc::new(Connection::new(socket, options).expect("an end"))
    };
    [make(ours, Role::Caller), make(theirs, Role::Server)]
}

fn plain_call() -> Outgoing<'static> {
    Outgoing {
        codec: Codec::Msgpack,
        one_way: false,
        remaining: None,
        generation: 0,
        head: Head::Borrowed(b"head"),
        segments: Vec::new(),
    }
}

/// Run the next call; its id.
fn running(server: &Connection) -> u64 {
    let soon = Some(Instant::now() + Duration::from_secs(20));
    server.next_call(soon).expect("alive").expect("a call").id
}

#[test]
fn a_call_that_is_refused_gives_back_what_it_was_lent_without_the_lock() {
    type Arranged = fn(&Connection, &Connection);
    let refusals: [(&str, &[u64], Arranged); 4] = [
        ("frame_bytes_max", &[PEER_FRAME_BYTES_MIN], |_, _| {}),
        ("segments_max", &[1, 1, 1], |_, _| {}),
        ("said goodbye", &[1, 1], |caller, server| {
            server.goodbye().expect("open");
            assert!(!caller.probe().expect("open"));
        }),
        ("broken", &[1, 1], |caller, _| {
            caller.lock_any().break_with(Fault::Closed);
        }),
    ];
    for (why, lengths, arrange) in refusals {
        let [caller, server] = ends();
        arrange(&caller, &server);
        let lends = Lends::new(&caller);
        let count = 1 + lengths.len();
        let call = lends.call(lengths);
        caller.start(call, Taker::Thread).expect_err(why);
        lends.expect_back(count, why);
        let call = lends.call(lengths);
        caller
            .start_stream(call, Taker::Thread, 1)
            .expect_err("refused");
        lends.expect_back(count, why);
    }
}

#[test]
fn a_stream_that_the_peer_does_not_speak_gives_back_what_it_was_lent_without_the_lock() {
    let [caller, _server] = ends();
    let mut preface = Preface::new(Role::Server, &Limits::default(), 0);
    preface.features = 0;
    caller.lock_any().link.accept_preface(preface);
    let lends = Lends::new(&caller);
    let call = lends.call(&[1, 1]);
    caller
        .start_stream(call, Taker::Thread, 1)
        .expect_err("refused");
    lends.expect_back(3, "no streams");
}

#[test]
fn an_answer_that_is_refused_or_that_nobody_awaits_gives_back_what_it_was_lent_without_the_lock() {
    let [caller, server] = ends();
    caller.start(plain_call(), Taker::Thread).expect("sent");
    let id = running(&server);
    let lends = Lends::new(&server);
    let reply =
        |id, lengths| server.reply(id, Codec::Msgpack, lends.head(), lends.segments(lengths));
    reply(id, &[PEER_FRAME_BYTES_MIN]).expect_err("too long");
    lends.expect_back(2, "frame_bytes_max");
    reply(id, &[1, 1, 1]).expect_err("too many");
    lends.expect_back(4, "segments_max");
    reply(id + 1, &[1, 1]).expect("dropped");
    lends.expect_back(3, "nobody awaits it");
    let long = Head::Lent(lends.witness(PEER_FRAME_BYTES_MIN + 1));
    let failed = server.fail(id + 1, Reason::Raised, Codec::Msgpack, long);
    failed.expect("dropped");
    lends.expect_back(1, "a failure that nobody awaits");
    let long = Head::Lent(lends.witness(PEER_FRAME_BYTES_MIN + 1));
    let failed = server.fail(id, Reason::Raised, Codec::Msgpack, long);
    failed.expect("answered without it");
    lends.expect_back(1, "a description that is too long");
}

#[test]
fn an_item_that_is_refused_gives_back_what_it_was_lent_without_the_lock() {
    let [caller, server] = ends();
    let id = caller.start_stream(plain_call(), Taker::Thread, 1);
    assert_eq!(id.expect("sent"), running(&server));
    let lends = Lends::new(&server);
    let mut look = LastLook::now();
    let mut send = |id, lengths| {
        let (head, segments) = (lends.head(), lends.segments(lengths));
        server.send_item(id, Codec::Msgpack, head, segments, false, &mut look)
    };
    send(1, &[PEER_FRAME_BYTES_MIN]).expect_err("too long");
    lends.expect_back(2, "frame_bytes_max");
    send(1, &[1, 1, 1]).expect_err("too many");
    lends.expect_back(4, "segments_max");
    send(2, &[1]).expect("says that it is cancelled");
    lends.expect_back(2, "no such stream");
    send(1, &[1]).expect("sent");
    lends.expect_back(2, "sent");
    send(1, &[1]).expect_err("no credit is left");
    lends.expect_back(2, "no credit");
}
