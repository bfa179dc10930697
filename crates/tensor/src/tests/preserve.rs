//! What is copied before a push changes rows that answers read: those rows' answers, and no others.
use std::time::Instant;

use crate::wire::{Entry, Kind, RequestHeader};
use crate::{
    Description, Dtype, Key, Number, Operation, PeerId, Rows, Shard, ShardLimits, Span, Words,
};

const ROWS: usize = 16;
/// Rows that are lent to the socket, not copied behind their header.
const ROW_BYTES: usize = 2048;

struct Server {
    shard: Shard<()>,
    key: Key,
    memory: Box<[u8]>,
    now: Instant,
}

impl Server {
    fn new() -> Self {
        let now = Instant::now();
        let mut shard = Shard::new(ShardLimits::default()).expect("the limits can be");
        let rows = (0..ROWS).flat_map(|row| [u8::try_from(row).expect("few"); ROW_BYTES]);
        let mut memory: Box<[u8]> = rows.collect();
        let description = Description {
            dtype: Dtype {
                number: Number::Unsigned,
                item_bytes: 1,
                text: "|u1".into(),
            },
            shape: vec![ROWS as u64, ROW_BYTES as u64],
        };
        let key = shard.publish("a", description, Span::of(&mut memory), ());
        Self {
            shard,
            key: key.expect("it can be published"),
            memory,
            now,
        }
    }

    /// A peer that pulls these rows with one request each, and takes nothing yet; `begins` where its answers begin.
    fn reader(&mut self, pulls: &[&[u64]], begins: bool) -> PeerId {
        let peer = self.shard.connect(16, self.now).expect("there are few");
        for (slot, rows) in (0..).zip(pulls) {
            let entry = Entry {
                tensor: self.key.id,
                indexed: true,
                generation: self.key.generation,
                first: 0,
                rows: u32::try_from(rows.len()).expect("few"),
                tag: slot,
            };
            let header = RequestHeader {
                kind: Kind::Pull,
                entries: 1,
                slot,
                bytes: 24 + 8 * rows.len() as u64,
            };
            let mut frame = [&header.encode()[..], &entry.encode()].concat();
            frame.extend(rows.iter().flat_map(|row| row.to_le_bytes()));
            let fed = self.shard.feed(peer, &frame, self.now);
            fed.expect("it keeps to the protocol");
        }
        if begins {
            self.shard.outgoing(peer, &mut [Span::EMPTY; 1]);
        }
        peer
    }

    /// Set these rows to 99.
    fn write(&mut self, rows: &mut [u64]) {
        let values = vec![99; rows.len() * ROW_BYTES];
        let rows = Rows::Indices(Words::new(Span::of_words(rows)));
        let written = self
            .shard
            .write(self.key, rows, Operation::Set, Span::sending(&values));
        written.expect("it is inside");
    }

    /// Of each row that goes out whether it lies in the tensor, and its first byte; all of it is taken.
    fn rows(&mut self, peer: PeerId) -> Vec<(bool, u8)> {
        let tensor = Span::sending(&self.memory);
        let mut rows = Vec::new();
        loop {
            assert!(rows.len() < 1 << 16, "the same rows go out without end");
            let mut spans = [Span::EMPTY; 64];
            let count = self.shard.outgoing(peer, &mut spans);
            let spans = &spans[..count];
            for span in spans.iter().filter(|span| span.bytes() >= ROW_BYTES) {
                let mut bytes = Vec::new();
                span.append_to(&mut bytes);
                let each = bytes.chunks(ROW_BYTES);
                rows.extend(each.map(|row| (span.overlaps(tensor), row[0])));
            }
            let bytes = spans.iter().map(Span::bytes).sum();
            if bytes == 0 {
                return rows;
            }
            self.shard.sent(peer, bytes, self.now);
        }
    }
}

#[test]
fn only_answers_with_rows_that_change_are_copied() {
    let mut server = Server::new();
    let pulls: [&[u64]; 2] = [&[3, 8], &[1, 5]];
    let waiting = server.reader(&pulls, false);
    let begun = server.reader(&pulls, true);
    server.write(&mut [9, 8, 0]);
    server.write(&mut [7]);
    let untouched = [(true, 1), (true, 5)];
    // One that has begun is in pieces: of those only the one that changes.
    let expected = [&[(true, 3), (false, 8)][..], &untouched].concat();
    assert_eq!(server.rows(begun), expected);
    let expected = [&[(false, 3), (false, 8)][..], &untouched].concat();
    assert_eq!(server.rows(waiting), expected);
    assert_eq!(server.memory[8 * ROW_BYTES], 99);
}

/// Otherwise each push of the others would look at all of them again.
#[test]
fn a_peer_with_very_many_rows_has_them_copied_unseen() {
    let mut server = Server::new();
    let many: Vec<u64> = vec![3; 2049];
    let peer = server.reader(&[&many, &many], false);
    let other = server.reader(&[&[3]], false);
    assert_eq!(server.shard.readers(server.key), 2);
    server.write(&mut [9]);
    assert_eq!(server.rows(other), [(true, 3)]);
    let rows = server.rows(peer);
    // The first was looked at, and the second was not.
    assert_eq!(rows[..2049], [(true, 3); 2049]);
    assert_eq!(rows[2049..], [(false, 3); 2049]);
}

#[test]
fn a_peer_that_has_taken_all_or_goes_is_no_reader_any_more() {
    let mut server = Server::new();
    let pulls: [&[u64]; 2] = [&[3, 8], &[1, 5]];
    let peers = [true, false, true].map(|begins| server.reader(&pulls, begins));
    assert_eq!(server.shard.readers(server.key), 3);
    server.shard.disconnect(peers[1]);
    assert_eq!(server.shard.readers(server.key), 2);
    assert_eq!(server.rows(peers[2]).len(), 4);
    assert_eq!(server.shard.readers(server.key), 1);
    server.write(&mut [1, 3, 5, 8]);
    assert_eq!(server.shard.readers(server.key), 0, "all of it was copied");
    assert_eq!(
        server.rows(peers[0]),
        [(false, 3), (false, 8), (false, 1), (false, 5)]
    );
}
