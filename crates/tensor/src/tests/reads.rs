//! A shard whose rows are in a file that the tests play: what is read when, what goes out, what comes back.
use std::time::{Duration, Instant};

use crate::wire::{Entry, Kind, RESPONSE_BYTES, RequestHeader, ResponseHeader, Status};
use crate::{
    Description, Dtype, Error, FileRows, Number, PeerId, ReadId, Released, Room, Shard,
    ShardLimits, Span,
};

const ROW_BYTES: usize = 4096;
const FILE: u32 = 7;

struct Server {
    shard: Shard<()>,
    /// The tensor of id 0 has its address.
    _memory: Box<[u8]>,
    /// What is read, whatever it is.
    staging: Box<[u8]>,
    now: Instant,
}

fn description(rows: u64, row_bytes: usize) -> Description {
    Description {
        dtype: Dtype {
            number: Number::Unsigned,
            item_bytes: 1,
            text: "|u1".into(),
        },
        shape: vec![rows, row_bytes as u64],
    }
}

/// One answer that went out.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    status: Status,
    tag: u32,
    last: bool,
    bytes: u64,
}

impl Server {
    fn new() -> Self {
        let now = Instant::now();
        let limits = ShardLimits {
            slots: 4,
            grant_bytes: 1 << 20,
            staging_bytes: 16 * (ROW_BYTES as u64 + 32),
            ..ShardLimits::default()
        };
        let mut shard = Shard::new(limits).expect("the limits can be");
        let mut memory: Box<[u8]> = (0..32).collect();
        let span = Span::of(&mut memory);
        let published = shard.publish("memory", description(8, 4), span, ());
        assert_eq!(published.expect("published").id, 0);
        let rows = FileRows {
            offset: 512,
            stride_bytes: ROW_BYTES as u64,
            first: 0,
            checksums: false,
        };
        let key = shard.publish_file("file", description(1000, ROW_BYTES), rows, FILE);
        assert_eq!(key.expect("published").id, 1);
        Self {
            shard,
            _memory: memory,
            staging: (0..=250).cycle().take(16 * ROW_BYTES).collect(),
            now,
        }
    }

    fn connect(&mut self) -> PeerId {
        self.shard.connect(4, self.now).expect("there are few")
    }

    fn pull(&mut self, peer: PeerId, slot: u32, entries: &[(u32, u32, u32)]) {
        let entry = |&(tensor, rows, tag): &(u32, u32, u32)| Entry {
            tensor,
            indexed: false,
            generation: 1,
            first: 1,
            rows,
            tag,
        };
        let header = RequestHeader {
            kind: Kind::Pull,
            entries: u16::try_from(entries.len()).expect("few"),
            slot,
            bytes: entries.len() as u64 * 24,
        };
        let mut bytes = header.encode().to_vec();
        for each in entries.iter().map(entry) {
            bytes.extend(each.encode());
        }
        let fed = self.shard.feed(peer, &bytes, self.now);
        fed.expect("it keeps to the protocol");
    }

    /// Pull rows of the file by their numbers.
    fn pull_numbered(&mut self, peer: PeerId, slot: u32, rows: &[u64], tag: u32) {
        let entry = Entry {
            tensor: 1,
            indexed: true,
            generation: 1,
            first: 0,
            rows: u32::try_from(rows.len()).expect("few"),
            tag,
        };
        let header = RequestHeader {
            kind: Kind::Pull,
            entries: 1,
            slot,
            bytes: 24 + 8 * rows.len() as u64,
        };
        let mut bytes = [&header.encode()[..], &entry.encode()].concat();
        bytes.extend(rows.iter().flat_map(|row| row.to_le_bytes()));
        let fed = self.shard.feed(peer, &bytes, self.now);
        fed.expect("it keeps to the protocol");
    }

    /// The file, and the rows that follow each other in it, which a read takes.
    fn runs(&self, read: ReadId) -> Vec<(u32, u64, u64)> {
        let mut runs = Vec::new();
        self.shard.each_run(read, |filed, run| {
            runs.push((filed.number, run.first, run.rows));
        });
        runs
    }

    fn cancel(&mut self, peer: PeerId, slot: u32, tag: u32) {
        let header = RequestHeader {
            kind: Kind::Cancel,
            entries: 1,
            slot,
            bytes: 4,
        };
        let bytes = [&header.encode()[..], &tag.to_le_bytes()].concat();
        self.shard.feed(peer, &bytes, self.now).expect("it may");
    }

    fn next(&mut self) -> (ReadId, Room) {
        self.shard.next_read().expect("there is something to read")
    }

    /// A read goes well.
    fn read(&mut self, (read, room): (ReadId, Room), number: u32) -> bool {
        let memory = Span::of(&mut self.staging[..room.rows_bytes]);
        self.shard.read(read, Ok((memory, number)), self.now)
    }

    /// Memory that nothing needs any more.
    fn let_go(&mut self) -> Vec<Released> {
        std::iter::from_fn(|| self.shard.take_released()).collect()
    }

    /// All that goes out to a peer.
    fn sent(&mut self, peer: PeerId) -> Vec<Sent> {
        let mut bytes = Vec::new();
        loop {
            assert!(bytes.len() < 1 << 20, "the same bytes go out without end");
            let mut spans = [Span::EMPTY; 8];
            let count = self.shard.outgoing(peer, &mut spans);
            let before = bytes.len();
            for span in &spans[..count] {
                span.append_to(&mut bytes);
            }
            if bytes.len() == before {
                break;
            }
            self.shard.sent(peer, bytes.len() - before, self.now);
        }
        let (mut at, mut all) = (0, Vec::new());
        while at < bytes.len() {
            let header = ResponseHeader::decode(&bytes[at..]).expect("a header");
            at += RESPONSE_BYTES + usize::try_from(header.bytes).expect("few");
            all.push(Sent {
                status: header.status,
                tag: header.tag,
                last: header.last,
                bytes: header.bytes,
            });
        }
        all
    }
}

fn sent(status: Status, tag: u32, last: bool, bytes: usize) -> Sent {
    Sent {
        status,
        tag,
        last,
        bytes: bytes as u64,
    }
}

#[test]
fn answers_that_need_no_read_go_out_first_and_the_last_says_so() {
    let mut server = Server::new();
    let peer = server.connect();
    server.pull(peer, 0, &[(1, 2, 10), (0, 3, 11), (1, 1, 12)]);
    assert_eq!(server.sent(peer), [sent(Status::Ok, 11, false, 12)]);
    let (first, second) = (server.next(), server.next());
    assert!(server.shard.next_read().is_none());
    assert!(!server.shard.wants_write(peer) && server.shard.has_pending_output(peer));
    assert!(server.read(second, 2));
    assert_eq!(server.sent(peer), [sent(Status::Ok, 12, false, ROW_BYTES)]);
    assert_eq!(server.shard.take_released(), Some(Released::Staged(2)));
    assert!(server.read(first, 1));
    assert_eq!(
        server.sent(peer),
        [sent(Status::Ok, 10, true, 2 * ROW_BYTES)]
    );
    assert_eq!(server.shard.take_released(), Some(Released::Staged(1)));
    assert!(server.shard.is_quiet(peer));
}

#[test]
fn a_read_that_fails_fails_its_pull_alone() {
    let mut server = Server::new();
    let peer = server.connect();
    server.pull(peer, 1, &[(1, 1, 10), (1, 1, 11)]);
    let (first, second) = (server.next(), server.next());
    let error = Error::Unread {
        path: "/file".into(),
        first: 3,
        last: 3,
        errno: 5,
        what: "it is broken".into(),
    };
    let text = error.to_string();
    assert_eq!(
        text,
        "row 3 of /file cannot be read: it is broken (errno 5)"
    );
    assert!(server.shard.read(first.0, Err(error), server.now));
    assert!(server.read(second, 1));
    assert_eq!(
        server.sent(peer),
        [
            sent(Status::Broken, 10, false, text.len()),
            sent(Status::Ok, 11, true, ROW_BYTES)
        ]
    );
}

#[test]
fn what_is_canceled_ends_at_once_and_its_memory_is_not_kept() {
    let mut server = Server::new();
    let peer = server.connect();
    let canceled = [sent(Status::Canceled, 10, true, 0)];
    // before its read has begun
    server.pull(peer, 0, &[(1, 2, 10)]);
    server.cancel(peer, 0, 10);
    assert_eq!(server.sent(peer), canceled);
    assert!(server.shard.next_read().is_none());
    // while it is read
    server.pull(peer, 0, &[(1, 2, 10)]);
    let read = server.next();
    server.cancel(peer, 0, 10);
    assert_eq!(server.sent(peer), canceled);
    assert!(!server.shard.is_wanted(read.0));
    assert!(!server.read(read, 1), "the memory is the driver's still");
    // when it was read
    server.pull(peer, 0, &[(1, 2, 10)]);
    let read = server.next();
    assert!(server.read(read, 2));
    server.cancel(peer, 0, 10);
    assert_eq!(server.shard.take_released(), Some(Released::Staged(2)));
    assert_eq!(server.sent(peer), canceled);
    // the slot and the share are free again
    server.pull(peer, 0, &[(1, 4, 10)]);
    let read = server.next();
    assert!(server.read(read, 3));
    assert_eq!(
        server.sent(peer),
        [sent(Status::Ok, 10, true, 4 * ROW_BYTES)]
    );
}

#[test]
fn peers_take_turns_and_have_a_quarter_of_the_memory_each() {
    let mut server = Server::new();
    let (greedy, modest) = (server.connect(), server.connect());
    server.pull(greedy, 0, &[(1, 3, 10), (1, 3, 11)]);
    server.pull(greedy, 1, &[(1, 1, 12)]);
    server.pull(modest, 0, &[(1, 1, 20), (1, 1, 21)]);
    let begun: Vec<_> = std::iter::from_fn(|| server.shard.next_read()).collect();
    let whose: Vec<_> = begun.iter().map(|(read, _)| read.peer()).collect();
    assert_eq!(whose, [greedy, modest, greedy, modest]);
    for (read, number) in begun.into_iter().zip(0..) {
        assert!(server.read(read, number));
    }
    assert!(server.shard.next_read().is_none(), "it has its share");
    assert_eq!(server.sent(modest).len(), 2);
    assert_eq!(server.sent(greedy).len(), 2);
    assert!(
        server.shard.next_read().is_none(),
        "it is told of what has gone"
    );
    assert_eq!(server.let_go().len(), 4);
    let last = server.next();
    assert_eq!(last.0.peer(), greedy);
    assert!(server.read(last, 9));
    assert_eq!(
        server.sent(greedy),
        [sent(Status::Ok, 11, true, 3 * ROW_BYTES)]
    );
}

/// Their answers have begun, and lie with them.
#[test]
fn two_peers_that_take_nothing_do_not_stop_the_pulls_of_a_third() {
    let mut server = Server::new();
    let liars = [server.connect(), server.connect()];
    for (peer, slot) in liars
        .into_iter()
        .flat_map(|peer| (0..4).map(move |slot| (peer, slot)))
    {
        server.pull(
            peer,
            slot,
            &[(1, 3, 10), (1, 3, 11), (1, 1, 12), (1, 1, 13)],
        );
    }
    let mut held_bytes = 0;
    while let Some((read, room)) = server.shard.next_read() {
        held_bytes += room.bytes;
        assert!(server.read((read, room), 1));
        server.shard.outgoing(read.peer(), &mut [Span::EMPTY; 8]);
        assert_eq!(server.let_go(), []);
    }
    assert!(held_bytes <= 8 * (ROW_BYTES + 32), "they hold {held_bytes}");
    let honest = server.connect();
    server.pull(honest, 0, &[(1, 4, 20)]);
    let read = server.next();
    assert!(server.read(read, 2));
    let whole = sent(Status::Ok, 20, true, 4 * ROW_BYTES);
    assert_eq!(server.sent(honest), [whole]);
}

/// A read that goes on has its memory, whoever waits for it.
#[test]
fn a_canceled_read_takes_its_share_until_it_has_ended() {
    let mut server = Server::new();
    let peer = server.connect();
    server.pull(peer, 0, &[(1, 3, 10)]);
    let first = server.next();
    server.cancel(peer, 0, 10);
    assert_eq!(server.sent(peer).len(), 1);
    server.pull(peer, 0, &[(1, 3, 11)]);
    assert!(server.shard.next_read().is_none(), "it has its share");
    assert!(!server.read(first, 1));
    let second = server.next();
    server.cancel(peer, 0, 11);
    assert!(!server.shard.is_wanted(second.0));
    server.shard.give_up(second.0);
    server.shard.give_up(second.0);
    server.pull(peer, 1, &[(1, 4, 12)]);
    server.next();
}

#[test]
fn a_peer_that_goes_gives_everything_back() {
    let mut server = Server::new();
    let peer = server.connect();
    server.pull(peer, 0, &[(1, 1, 10), (1, 1, 11), (1, 1, 12)]);
    let (staged, reading) = (server.next(), server.next());
    assert!(server.read(staged, 1));
    server.shard.disconnect(peer);
    assert_eq!(server.shard.take_released(), Some(Released::Staged(1)));
    assert!(!server.read(reading, 2));
    assert!(server.shard.next_read().is_none());
    server.shard.drop_tensor("file").expect("it is there");
    assert_eq!(server.shard.take_released(), Some(Released::File(FILE)));
}

#[test]
fn a_dropped_file_is_kept_until_what_was_asked_for_is_read() {
    let mut server = Server::new();
    let peer = server.connect();
    server.pull(peer, 0, &[(1, 1, 10)]);
    server.shard.drop_tensor("file").expect("it is there");
    assert_eq!(server.shard.take_released(), None);
    let read = server.next();
    assert_eq!(read.1.file, FILE);
    assert!(server.read(read, 1));
    assert_eq!(server.shard.take_released(), Some(Released::File(FILE)));
    assert_eq!(server.sent(peer), [sent(Status::Ok, 10, true, ROW_BYTES)]);
}

#[test]
fn a_peer_that_waits_for_a_disk_is_not_silent() {
    let mut server = Server::new();
    let peer = server.connect();
    server.pull(peer, 0, &[(1, 1, 10)]);
    let read = server.next();
    server.now += Duration::from_secs(60);
    assert!(matches!(
        server.shard.expire(peer, server.now),
        Ok(Some(due)) if due > server.now
    ));
    assert!(server.read(read, 1));
    let later = server.now + Duration::from_secs(4);
    assert!(
        server.shard.expire(peer, later).is_ok(),
        "it had no time yet"
    );
    let late = server.now + Duration::from_secs(6);
    assert!(server.shard.expire(peer, late).is_err(), "it takes nothing");
}

/// The driver reads what it is shown: other rows would go out as those that were asked for.
#[test]
fn a_read_takes_the_rows_that_were_asked_for_in_their_order() {
    let mut server = Server::new();
    let peer = server.connect();
    assert!(!server.shard.has_reads());
    server.pull(peer, 0, &[(1, 3, 10)]);
    server.pull_numbered(peer, 1, &[9, 4, 5, 9], 11);
    assert!(server.shard.has_reads());
    let expected = [
        (peer, 10, vec![(FILE, 1, 3)], 3),
        (peer, 11, vec![(FILE, 9, 1), (FILE, 4, 2), (FILE, 9, 1)], 4),
    ];
    for (number, (whose, tag, runs, rows)) in (0..).zip(expected) {
        if number == 1 {
            assert!(server.shard.next_read().is_none(), "it has its share");
            assert!(server.shard.has_reads(), "it waits for it");
            assert_eq!(server.let_go().len(), 1);
        }
        let (read, room) = server.next();
        assert_eq!((read.peer(), server.runs(read)), (whose, runs));
        assert_eq!(room.runs, server.runs(read).len());
        assert_eq!(room.rows_bytes, rows * ROW_BYTES);
        assert!(room.bytes >= room.rows_bytes && server.shard.is_wanted(read));
        assert!(server.read((read, room), number));
        assert_eq!(server.runs(read), [], "it was read");
        let whole = sent(Status::Ok, tag, true, rows * ROW_BYTES);
        assert_eq!(server.sent(peer), [whole]);
    }
    assert!(server.shard.next_read().is_none());
    assert!(!server.shard.has_reads());
}

#[test]
fn a_read_of_a_peer_that_is_gone_takes_nothing() {
    let mut server = Server::new();
    let gone = server.connect();
    server.pull(gone, 0, &[(1, 3, 10)]);
    let (read, _) = server.next();
    server.shard.disconnect(gone);
    let peer = server.connect();
    assert_eq!(peer.index(), gone.index());
    server.pull(peer, 0, &[(1, 2, 10)]);
    assert_eq!(server.runs(read), []);
    assert!(!server.shard.is_wanted(read));
    server.shard.give_up(read);
    let (own, _) = server.next();
    assert_eq!(server.runs(own), [(FILE, 1, 2)]);
}

/// Only one that the memory has no room for at any time is refused.
#[test]
fn a_pull_above_the_staging_memory_is_refused_by_its_name() {
    let mut server = Server::new();
    let memory = server.shard.staging_bytes();
    assert_eq!(memory, 16 * (ROW_BYTES as u64 + 32));
    let peer = server.connect();
    let rows = u32::try_from(memory).expect("small") / 4096;
    server.pull(peer, 0, &[(1, rows, 10)]);
    assert_eq!(server.next().1.rows_bytes, rows as usize * ROW_BYTES);
    server.pull(peer, 1, &[(1, rows + 1, 11)]);
    let refused = server.sent(peer);
    assert_eq!((refused[0].status, refused[0].last), (Status::Limit, true));
}
