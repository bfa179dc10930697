//! A client that lies: each lie is a `ProtocolError` that says what; what may happen is an answer.
use std::time::{Duration, Instant};

use super::Dice;
use crate::wire::{Entry, Kind, NO_SLOT, RESPONSE_BYTES, RequestHeader, ResponseHeader, Status};
use crate::{
    Class, Description, Dtype, Error, Number, Operation, PeerId, Shard, ShardLimits, Span,
};

const ROWS: u64 = 8;

struct Server {
    shard: Shard<()>,
    peer: PeerId,
    /// What the tensor's memory is: the shard has its address.
    memory: Box<[u8]>,
    now: Instant,
}

impl Server {
    fn new() -> Self {
        let limits = ShardLimits {
            slots: 2,
            grant_bytes: 64,
            ..ShardLimits::default()
        };
        let now = Instant::now();
        let mut shard = Shard::new(limits).expect("the limits can be");
        let mut memory: Box<[u8]> = (0..32).collect();
        let description = Description {
            dtype: Dtype {
                number: Number::Opaque,
                item_bytes: 4,
                text: "V4".into(),
            },
            shape: vec![ROWS],
        };
        let key = shard
            .publish("a", description, Span::of(&mut memory), ())
            .expect("it can be published");
        assert_eq!((key.id, key.generation), (0, 1));
        let peer = shard.connect(2, now).expect("it is the first");
        Self {
            shard,
            peer,
            memory,
            now,
        }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.shard.feed(self.peer, bytes, self.now)
    }

    /// All that it wants to send.
    fn answers(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            assert!(bytes.len() < 1 << 20, "the same bytes go out without end");
            let mut spans = [Span::EMPTY; 4];
            let count = self.shard.outgoing(self.peer, &mut spans);
            let before = bytes.len();
            for span in &spans[..count] {
                span.append_to(&mut bytes);
            }
            if bytes.len() == before {
                return bytes;
            }
            self.shard.sent(self.peer, bytes.len() - before, self.now);
        }
    }
}

fn entry() -> Entry {
    Entry {
        tensor: 0,
        indexed: false,
        generation: 1,
        first: 1,
        rows: 2,
        tag: 5,
    }
}

fn request(kind: Kind, slot: u32, entries: &[Entry], rest: &[u8]) -> Vec<u8> {
    let header = RequestHeader {
        kind,
        entries: u16::try_from(entries.len()).expect("few"),
        slot,
        bytes: (entries.len() * 24 + rest.len()) as u64,
    };
    let mut bytes = header.encode().to_vec();
    for entry in entries {
        bytes.extend(entry.encode());
    }
    bytes.extend(rest);
    bytes
}

fn assert_lie(bytes: &[u8], words: &str) {
    let error = Server::new().feed(bytes).expect_err("it is a lie");
    assert_eq!(error.class(), Class::Protocol);
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn a_tensor_or_generation_that_never_was_is_a_lie() {
    let unknown = Entry {
        tensor: 1,
        ..entry()
    };
    assert_lie(
        &request(Kind::Pull, 0, &[unknown], &[]),
        "generation 1 of tensor 1, which never existed",
    );
    for generation in [0, 2] {
        let unknown = Entry {
            generation,
            ..entry()
        };
        assert_lie(
            &request(Kind::Pull, 0, &[unknown], &[]),
            "which never existed",
        );
    }
}

#[test]
fn a_slot_that_was_not_granted_or_is_taken_is_a_lie() {
    assert_lie(
        &request(Kind::Pull, 2, &[entry()], &[]),
        "slot 2, which was not granted",
    );
    let twice = [
        request(Kind::Pull, 1, &[entry()], &[]),
        request(Kind::Pull, 1, &[entry()], &[]),
    ]
    .concat();
    assert_lie(&twice, "slot 1, which is in use");
    let cancel = RequestHeader {
        kind: Kind::Cancel,
        entries: 1,
        slot: 2,
        bytes: 4,
    };
    assert_lie(&cancel.encode(), "slot 2, which was not granted");
    let mut server = Server::new();
    let modest = server.shard.connect(1, server.now).expect("there is room");
    let beyond = request(Kind::Pull, 1, &[entry()], &[]);
    let fed = server.shard.feed(modest, &beyond, server.now);
    assert!(fed.is_err_and(|error| error.to_string().contains("slot 1, which was not granted")));
}

#[test]
fn more_than_the_grant_is_a_lie() {
    let all = Entry {
        first: 0,
        rows: 17,
        ..entry()
    };
    assert_lie(
        &request(Kind::Pull, 0, &[all], &[]),
        "68 bytes, where 64 are left of the 64",
    );
    let half = Entry {
        first: 0,
        rows: 8,
        ..entry()
    };
    let third = [
        request(Kind::Pull, 0, &[half, half], &[]),
        request(Kind::Pull, 1, &[entry()], &[]),
    ];
    assert_lie(&third.concat(), "8 bytes, where 0 are left");
}

#[test]
fn a_length_that_the_entries_do_not_make_is_a_lie() {
    assert_lie(
        &request(Kind::Pull, 0, &[entry()], &[0]),
        "25 bytes, but its entries need 24",
    );
    assert_lie(
        &request(Kind::Push(Operation::Set), 0, &[entry()], &[0; 7]),
        "31 bytes, but its entries need 32",
    );
    let huge = RequestHeader {
        kind: Kind::Pull,
        entries: 1,
        slot: 0,
        bytes: u64::MAX,
    };
    assert_lie(&huge.encode(), "instead of 24 to 88");
    let short = RequestHeader {
        kind: Kind::Pull,
        entries: 2,
        slot: 0,
        bytes: 24,
    };
    assert_lie(&short.encode(), "instead of 48 to 112");
    // Of a push the grant bounds row numbers and values each; beside them is one number of a single row.
    let header = |kind, entries, bytes| RequestHeader {
        kind,
        entries,
        slot: 0,
        bytes,
    };
    let push = |entries, bytes| header(Kind::Push(Operation::Set), entries, bytes).encode();
    assert_lie(&push(1, 161), "161 bytes instead of 24 to 160");
    assert_lie(&push(2, 47), "47 bytes instead of 48 to 184");
    for bytes in [7, 9] {
        let cancel = header(Kind::Cancel, 2, bytes).encode();
        assert_lie(&cancel, "bytes instead of 8 to 8");
    }
    assert_lie(&header(Kind::Names, 1, 3).encode(), "instead of 4 to 65796");
    assert_lie(
        &header(Kind::Names, 1, 65_797).encode(),
        "instead of 4 to 65796",
    );
    for (bytes, kind) in [(88, Kind::Pull), (160, Kind::Push(Operation::Set))] {
        let mut server = Server::new();
        let longest = header(kind, 1, bytes).encode();
        server.feed(&longest).expect("so many may follow");
    }
}

/// The size of its rows is not known any more, so nobody can tell where its values end.
#[test]
fn a_push_to_a_tensor_that_is_forgotten_is_a_lie_that_says_what_to_do() {
    let limits = ShardLimits {
        tensors_max: 65,
        ..ShardLimits::default()
    };
    let mut shard = Shard::new(limits).expect("the limits can be");
    let mut memory = [0; 8];
    let mut publish = |shard: &mut Shard<()>, name: &str, bytes: u32| {
        let description = Description {
            dtype: Dtype {
                number: Number::Opaque,
                item_bytes: bytes,
                text: "V".into(),
            },
            shape: vec![1],
        };
        let span = Span::of(&mut memory[..bytes as usize]);
        let published = shard.publish(name, description, span, ());
        published.expect("it can be published")
    };
    for number in 0..65 {
        publish(&mut shard, &number.to_string(), 4);
    }
    for number in 0..65 {
        shard.drop_tensor(&number.to_string()).expect("it is there");
    }
    let again = publish(&mut shard, "again", 8);
    assert_eq!((again.id, again.generation), (0, 2));
    let now = Instant::now();
    let peer = shard.connect(2, now).expect("it is the first");
    let old = Entry {
        first: 0,
        rows: 1,
        ..entry()
    };
    let pull = request(Kind::Pull, 0, &[old], &[]);
    shard.feed(peer, &pull, now).expect("it may be late");
    let mut spans = [Span::EMPTY; 4];
    let count = shard.outgoing(peer, &mut spans);
    let mut answer = Vec::new();
    spans[..count]
        .iter()
        .for_each(|span| span.append_to(&mut answer));
    let answer = ResponseHeader::decode(&answer).expect("it answers well");
    assert_eq!((answer.status, answer.version), (Status::Stale, 2));
    let push = request(Kind::Push(Operation::Set), 1, &[old], &[1; 4]);
    let error = shard
        .feed(peer, &push, now)
        .expect_err("its end is not known");
    let text = error.to_string();
    for words in [
        "a push to generation 1 of tensor 0",
        "look its name up again",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_second_question_before_the_first_was_answered_is_a_lie() {
    let header = RequestHeader {
        kind: Kind::Names,
        entries: 0,
        slot: NO_SLOT,
        bytes: 4,
    };
    let question = [&header.encode()[..], &[9, 0, 0, 0]].concat();
    assert_lie(
        &[&question[..], &question].concat(),
        "a second liveness probe",
    );
    let mut server = Server::new();
    server.feed(&question).expect("it may ask");
    let answer = ResponseHeader::decode(&server.answers()).expect("it answers well");
    assert_eq!((answer.tag, answer.bytes), (9, 0));
    server.feed(&question).expect("it may ask again");
    assert_lie(
        &RequestHeader { slot: 0, ..header }.encode(),
        "a liveness probe with slot 0",
    );
}

/// An honest client may be late, or its caller may not know the shape.
#[test]
fn what_an_honest_client_can_ask_for_is_refused_by_an_answer() {
    let mut server = Server::new();
    let outside = Entry {
        first: 7,
        ..entry()
    };
    let far = Entry {
        indexed: true,
        first: 0,
        rows: 1,
        ..entry()
    };
    server
        .feed(&request(
            Kind::Pull,
            0,
            &[outside, far],
            &u64::MAX.to_le_bytes(),
        ))
        .expect("it keeps to the protocol");
    server
        .feed(&request(Kind::Push(Operation::Add), 1, &[entry()], &[1; 8]))
        .expect("it keeps to the protocol");
    server.shard.drop_tensor("a").expect("it is there");
    let mut answers = &server.answers()[..];
    let mut found = Vec::new();
    while !answers.is_empty() {
        let header = ResponseHeader::decode(answers).expect("it answers well");
        answers = &answers[RESPONSE_BYTES + usize::try_from(header.bytes).expect("short")..];
        found.push((header.status, header.version));
    }
    let expected = [
        (Status::OutOfRange, 8),
        (Status::Config, 0),
        (Status::OutOfRange, u64::MAX),
    ];
    assert_eq!(found, expected);
    server
        .feed(&request(Kind::Push(Operation::Set), 0, &[entry()], &[1; 8]))
        .expect("it keeps to the protocol");
    let stale = ResponseHeader::decode(&server.answers()).expect("it answers well");
    assert_eq!((stale.status, stale.version), (Status::Stale, 0));
    assert_eq!(
        server.memory[..],
        (0..32).collect::<Vec<u8>>()[..],
        "nothing was applied"
    );
}

#[test]
fn a_push_that_is_cut_off_is_not_applied() {
    let mut server = Server::new();
    let second = Entry {
        first: 5,
        ..entry()
    };
    let bytes = request(Kind::Push(Operation::Set), 0, &[entry(), second], &[77; 16]);
    server
        .feed(&bytes[..bytes.len() - 1])
        .expect("it keeps to the protocol");
    server.shard.disconnect(server.peer);
    assert_eq!(server.memory[4..12], [77; 8], "the first entry came whole");
    assert_eq!(server.memory[20..28], (20..28).collect::<Vec<u8>>()[..]);
    server.shard.disconnect(server.peer);
    assert_eq!(server.feed(&bytes), Ok(()), "nobody is there");
}

#[test]
fn rows_that_are_not_needed_any_more_are_not_sent() {
    let mut server = Server::new();
    let other = Entry { tag: 6, ..entry() };
    server
        .feed(&request(Kind::Pull, 0, &[entry(), other], &[]))
        .expect("it keeps to the protocol");
    let header = RequestHeader {
        kind: Kind::Cancel,
        entries: 2,
        slot: 0,
        bytes: 8,
    };
    server
        .feed(&[&header.encode()[..], &[5, 0, 0, 0, 99, 0, 0, 0]].concat())
        .expect("it may cancel");
    let answers = server.answers();
    let canceled = ResponseHeader::decode(&answers).expect("it answers well");
    assert_eq!(
        (canceled.status, canceled.tag, canceled.last),
        (Status::Canceled, 5, false)
    );
    let sent = ResponseHeader::decode(&answers[RESPONSE_BYTES..]).expect("it answers well");
    assert_eq!((sent.status, sent.tag, sent.last), (Status::Ok, 6, true));
    assert_eq!(answers[2 * RESPONSE_BYTES..], server.memory[4..12]);
}

#[test]
fn a_peer_that_stops_in_the_middle_is_given_up() {
    let mut server = Server::new();
    let later = server.now + Duration::from_secs(6);
    assert_eq!(
        server.shard.expire(server.peer, later),
        Ok(None),
        "it owes nothing"
    );
    server
        .feed(&request(Kind::Pull, 0, &[entry()], &[])[..20])
        .expect("it keeps to the protocol");
    let due = server.now + Duration::from_secs(5);
    assert_eq!(server.shard.expire(server.peer, server.now), Ok(Some(due)));
    assert!(
        server
            .shard
            .expire(server.peer, later)
            .is_err_and(|error| error.class() == Class::Broken)
    );
}

#[test]
fn there_are_no_more_peers_than_there_may_be() {
    let limits = ShardLimits {
        peers_max: 1,
        ..ShardLimits::default()
    };
    let mut shard = Shard::<()>::new(limits).expect("the limits can be");
    let now = Instant::now();
    let first = shard.connect(2, now).expect("it is the first");
    assert!(
        shard
            .connect(2, now)
            .is_err_and(|error| error.class() == Class::Limit)
    );
    shard.disconnect(first);
    let second = shard.connect(2, now).expect("there is room again");
    assert_eq!((second.index(), second == first), (first.index(), false));
    assert_eq!(shard.incoming(first), [Span::EMPTY; 2]);
}

/// A driver keeps a table of its sockets by them.
#[test]
fn peers_that_are_there_together_have_a_place_each() {
    let mut shard = Shard::<()>::new(ShardLimits::default()).expect("the limits can be");
    let now = Instant::now();
    let peers = [2; 3].map(|slots| shard.connect(slots, now).expect("there are few"));
    assert_eq!(peers.map(PeerId::index), [0, 1, 2]);
}

/// Whatever comes, the shard answers or refuses, and stays whole.
#[test]
fn no_bytes_make_a_shard_panic() {
    let far = Entry {
        indexed: true,
        first: 0,
        rows: 2,
        ..entry()
    };
    let good = [
        request(Kind::Pull, 0, &[entry(), far], &[1; 16]),
        request(Kind::Push(Operation::Set), 1, &[entry()], &[1; 8]),
        request(Kind::Push(Operation::Set), 0, &[far], &[0; 24]),
    ];
    let mut dice = Dice::new(8);
    let mut refused = 0;
    for _ in 0..3000 {
        let mut server = Server::new();
        let mut bytes = good[dice.below(3)].clone();
        for _ in 0..dice.below(3) {
            let at = dice.below(bytes.len());
            bytes[at] ^= 1 << dice.below(8);
        }
        bytes.extend(&good[dice.below(3)]);
        refused += u32::from(server.feed(&bytes).is_err());
        server.answers();
        server.shard.disconnect(server.peer);
        server.shard.drop_tensor("a").expect("it is there");
        assert_eq!(server.shard.take_retired(), Some(()));
    }
    assert!(refused > 300, "only {refused} were refused");
}

/// The answer to its first entry is taken before the second is whole: the row numbers stay until then.
#[test]
fn row_numbers_of_a_push_stay_until_all_of_it_has_come() {
    let mut server = Server::new();
    let numbered = |tag| Entry {
        indexed: true,
        first: 0,
        tag,
        ..entry()
    };
    let rows = [3_u64, 1, 6, 5].map(u64::to_le_bytes).concat();
    let values: Vec<u8> = (100..116).collect();
    let bytes = request(
        Kind::Push(Operation::Set),
        0,
        &[numbered(5), numbered(6)],
        &[rows, values].concat(),
    );
    let (most, rest) = bytes.split_at(bytes.len() - 1);
    server.feed(most).expect("it keeps to the protocol");
    let first = ResponseHeader::decode(&server.answers()).expect("it answers well");
    assert_eq!((first.tag, first.last), (5, false));
    server.feed(rest).expect("it keeps to the protocol");
    let second = ResponseHeader::decode(&server.answers()).expect("it answers well");
    assert_eq!((second.status, second.last), (Status::Ok, true));
    let row = |at: usize| server.memory[4 * at];
    assert_eq!([3, 1, 6, 5].map(row), [100, 104, 108, 112]);
}
