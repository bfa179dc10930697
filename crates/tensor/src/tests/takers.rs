//! A client that sends and takes nothing: for how long it may, and what it holds meanwhile.
use std::time::{Duration, Instant};

use crate::wire::{Entry, Kind, NO_SLOT, RESPONSE_BYTES, RequestHeader};
use crate::{Class, Description, Dtype, Number, PeerId, Shard, ShardLimits, Span};

const ROWS: u32 = 1024;
const ROW_BYTES: usize = 1024;

struct Server {
    shard: Shard<()>,
    peer: PeerId,
    _memory: Box<[u8]>,
    now: Instant,
}

impl Server {
    fn new() -> Self {
        let now = Instant::now();
        let mut shard = Shard::new(ShardLimits::default()).expect("the limits can be");
        let mut memory = vec![7; ROWS as usize * ROW_BYTES].into_boxed_slice();
        let description = Description {
            dtype: Dtype {
                number: Number::Unsigned,
                item_bytes: 1,
                text: "|u1".into(),
            },
            shape: vec![u64::from(ROWS), ROW_BYTES as u64],
        };
        let published = shard.publish("a", description, Span::of(&mut memory), ());
        published.expect("it can be published");
        let peer = shard.connect(2, now).expect("it is the first");
        Self {
            shard,
            peer,
            _memory: memory,
            now,
        }
    }

    fn feed(&mut self, bytes: &[u8]) {
        let fed = self.shard.feed(self.peer, bytes, self.now);
        fed.expect("it keeps to the protocol");
    }

    /// Pull the whole tensor.
    fn pull(&mut self) {
        let header = RequestHeader {
            kind: Kind::Pull,
            entries: 1,
            slot: 0,
            bytes: 24,
        };
        let entry = Entry {
            tensor: 0,
            indexed: false,
            generation: 1,
            first: 0,
            rows: ROWS,
            tag: 5,
        };
        self.feed(&[&header.encode()[..], &entry.encode()].concat());
    }

    /// A message that nothing answers.
    fn cancel(&mut self) {
        let header = RequestHeader {
            kind: Kind::Cancel,
            entries: 1,
            slot: 1,
            bytes: 4,
        };
        self.feed(&[&header.encode()[..], &[9; 4]].concat());
    }

    /// Bytes that it would send now.
    fn outgoing(&mut self) -> usize {
        let mut spans = [Span::EMPTY; 64];
        let count = self.shard.outgoing(self.peer, &mut spans);
        spans[..count].iter().map(Span::bytes).sum()
    }

    fn later(&mut self, seconds: u64) -> Result<Option<Instant>, crate::Error> {
        self.now += Duration::from_secs(seconds);
        self.shard.expire(self.peer, self.now)
    }
}

#[test]
fn a_peer_that_takes_nothing_is_given_up_whatever_it_sends() {
    let mut server = Server::new();
    server.later(60).expect("it owes nothing");
    server.pull();
    assert!(server.outgoing() > 0);
    server.cancel();
    let due = server.now + Duration::from_secs(5);
    assert_eq!(server.later(4), Ok(Some(due)));
    server.cancel();
    server.feed(&[1]); // and half a header
    let error = server.later(1).expect_err("it takes nothing");
    assert_eq!(error.class(), Class::Broken, "{error}");
}

#[test]
fn a_peer_that_takes_a_byte_now_and_then_stays() {
    let mut server = Server::new();
    server.pull();
    for _ in 0..10 {
        assert!(server.outgoing() > 0);
        server.shard.sent(server.peer, 1, server.now);
        server.later(4).expect("it takes what it is sent");
    }
    server.feed(&[1]); // half a header, and no more of it
    for _ in 0..2 {
        let taken = server.outgoing().min(1);
        server.shard.sent(server.peer, taken, server.now);
        server.later(2).expect("it is not late yet");
    }
    server.outgoing();
    server.shard.sent(server.peer, 1, server.now);
    assert!(server.later(2).is_err(), "it has left a request half sent");
}

/// Each question would be 24 bytes more to keep.
#[test]
fn a_question_whether_the_server_lives_waits_behind_what_is_not_taken() {
    let mut server = Server::new();
    server.pull();
    let before = server.outgoing();
    assert!(before > ROWS as usize * ROW_BYTES);
    let header = RequestHeader {
        kind: Kind::Names,
        entries: 0,
        slot: NO_SLOT,
        bytes: 4,
    };
    let question = [&header.encode()[..], &[9; 4]].concat();
    server.feed(&question);
    assert_eq!(server.outgoing(), before);
    let again = server.shard.feed(server.peer, &question, server.now);
    assert!(again.is_err_and(|error| error.class() == Class::Protocol));
    server.shard.sent(server.peer, before, server.now);
    assert_eq!(server.outgoing(), RESPONSE_BYTES);
}
