//! An owner and readers of one process, through mappings of their own as between two.
mod windows;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, TryRecvError};

use forebay_memory::{Backing, Config, Lease, Region};

use super::{Chunks, IndexLocation, Reader, SharedIndex};
use crate::dtype::{Dtype, Number};
use crate::requester::{Pull, Rows};
use crate::responder::{Shard, ShardLimits};
use crate::sys::arena;
use crate::sys::span::{Span, Words};
use crate::table::{Description, Exports, Key};
use crate::wire::Operation;

const INCARNATION: u64 = 0x1234_5678_9abc_def0;
const ROW_BYTES: usize = 64;

/// An owner without a thread or socket.
struct Owner {
    shard: Shard<Lease>,
    chunks: Chunks,
    region: Region,
    location: IndexLocation,
}

impl Owner {
    fn new() -> Self {
        Self::named("tensors")
    }

    /// With chunks of 1 MiB, which are seen under this name in the maps of a process.
    fn named(region: &str) -> Self {
        let limits = ShardLimits {
            tensors_max: 8,
            ..ShardLimits::default()
        };
        let mut shard = Shard::new(limits).expect("limits");
        let index = SharedIndex::new(limits.tensors_max, INCARNATION).expect("memory");
        let location = index.location();
        shard.attach_index(index).expect("aligned");
        let config = Config::new(region, 64 << 20)
            .chunk_bytes(1 << 20)
            .backing(Backing::Pages);
        Self {
            shard,
            chunks: Chunks::default(),
            region: Region::new(config).expect("a region"),
            location,
        }
    }

    fn reader(&self) -> Reader {
        Reader::open(self.location, INCARNATION).expect("it is this process's")
    }

    /// Publish rows of 64 bytes, all of which are `value`.
    fn publish(&mut self, name: &str, rows: usize, value: u8) -> Key {
        let mut lease = self.region.allocate(rows * ROW_BYTES).expect("room");
        lease.bytes_mut().expect("sole").fill(value);
        let memory = arena::of_lease(&lease);
        let exports = Exports {
            location: self.chunks.find(&lease, memory),
            block: None,
        };
        assert!(exports.location.is_some(), "it lies in the region");
        let published =
            self.shard
                .publish_exported(name, described(rows), (memory, exports), lease);
        self.retire();
        published.map_err(|(error, _)| error).expect("published")
    }

    fn retire(&mut self) {
        while let Some(lease) = self.shard.take_retired() {
            drop(lease);
        }
    }

    fn fill(&mut self, key: Key, rows: u64, value: u8) -> u64 {
        let bytes = usize::try_from(rows).expect("few") * ROW_BYTES;
        let mut values = vec![value; bytes];
        let all = Rows::Slice {
            first: 0,
            count: rows,
        };
        let written = self
            .shard
            .write(key, all, Operation::Set, Span::of(&mut values));
        written.expect("written")
    }
}

fn described(rows: usize) -> Description {
    Description {
        dtype: Dtype {
            number: Number::Unsigned,
            item_bytes: 1,
            text: "|u1".to_owned(),
        },
        shape: vec![rows as u64, ROW_BYTES as u64],
    }
}

fn pull(tensor: Key, rows_total: u64, rows: Rows, out: &mut [u8]) -> Pull {
    Pull {
        tensor,
        row_bytes: ROW_BYTES as u64,
        rows_total,
        rows,
        out: Span::of(out),
        places: None,
    }
}

fn all(tensor: Key, rows: u64, out: &mut [u8]) -> Pull {
    let slice = Rows::Slice {
        first: 0,
        count: rows,
    };
    pull(tensor, rows, slice, out)
}

fn words(numbers: &mut [u64]) -> Words {
    Words::new(Span::of_words(numbers))
}

#[test]
fn rows_are_read_where_they_lie() {
    let mut owner = Owner::new();
    owner.publish("other", 3, 9);
    let key = owner.publish("table", 4, 0);
    for row in 0..4_u8 {
        let mut values = [row; ROW_BYTES];
        let one = Rows::Slice {
            first: row.into(),
            count: 1,
        };
        let written = owner
            .shard
            .write(key, one, Operation::Set, Span::of(&mut values));
        assert_eq!(written, Ok(u64::from(row) + 1));
    }
    let reader = owner.reader();
    let firsts = |out: &[u8]| -> Vec<u8> { out.chunks(ROW_BYTES).map(|row| row[0]).collect() };

    let mut out = vec![7; 2 * ROW_BYTES];
    let slice = Rows::Slice { first: 1, count: 2 };
    assert_eq!(reader.pull(&pull(key, 4, slice, &mut out)), Some(4));
    assert_eq!(firsts(&out), [1, 2]);

    let mut out = vec![7; 3 * ROW_BYTES];
    let mut numbers = [3, 0, 3];
    let some = Rows::Indices(words(&mut numbers));
    assert_eq!(reader.pull(&pull(key, 4, some, &mut out)), Some(4));
    assert_eq!(firsts(&out), [3, 0, 3]);

    let mut out = vec![7; 4 * ROW_BYTES];
    let mut targets = [2, 0];
    let placed = Pull {
        places: Some(words(&mut targets)),
        ..pull(key, 4, slice, &mut out)
    };
    assert_eq!(reader.pull(&placed), Some(4));
    assert_eq!(firsts(&out), [2, 7, 1, 7]);
    let counted = reader.counters();
    assert_eq!((counted.pulls, counted.bytes), (3, 7 * ROW_BYTES as u64));
}

#[test]
fn what_does_not_fit_is_left_to_the_stream() {
    let mut owner = Owner::new();
    let key = owner.publish("table", 4, 5);
    let mut elsewhere = vec![1; ROW_BYTES];
    let lease = owner.region.allocate(1).expect("room");
    let memory = Span::of(&mut elsewhere);
    assert!(owner.chunks.find(&lease, memory).is_none());
    let published = owner.shard.publish("far", described(1), memory, lease);
    let far = published.map_err(|(error, _)| error).expect("published");
    let reader = owner.reader();

    let mut out = vec![0; ROW_BYTES];
    // What is lent stays for as long as it is pulled.
    let (mut fourth, mut last, mut first) = ([4], [u64::MAX], [1]);
    let refused = [
        pull(key, 4, Rows::Slice { first: 4, count: 1 }, &mut out),
        pull(key, 5, Rows::Slice { first: 4, count: 1 }, &mut out),
        pull(key, 4, Rows::Slice { first: 0, count: 2 }, &mut out),
        pull(key, 4, Rows::Indices(words(&mut fourth)), &mut out),
        pull(key, 4, Rows::Indices(words(&mut last)), &mut out),
        Pull {
            places: Some(words(&mut first)),
            ..pull(key, 4, Rows::Slice { first: 0, count: 1 }, &mut out)
        },
        all(far, 1, &mut out),
    ];
    for refused in &refused {
        assert_eq!(reader.pull(refused), None, "{refused:?}");
    }
    assert_eq!(reader.counters().elsewhere, refused.len() as u64);
}

/// Rows hold their version in each byte: a mixture would show.
#[test]
fn a_pull_beside_a_writer_is_of_one_version() {
    const ROWS: u64 = 256;
    const MET: u64 = 20;
    let mut owner = Owner::new();
    let key = owner.publish("table", 256, 0);
    let reader = owner.reader();
    let written = AtomicU64::new(0);
    let (reading, over) = mpsc::channel::<()>();
    let mut read = 0;
    std::thread::scope(|scope| {
        let _reading = reading; // dropped in a panic too, so that the writer ends
        let (owner, written) = (&mut owner, &written);
        scope.spawn(move || {
            // Until they have met: if they never do, this test shows nothing, and does not end.
            let mut version: u64 = 0;
            while over.try_recv() == Err(TryRecvError::Empty) {
                version += 1;
                let value = version.to_le_bytes()[0];
                assert_eq!(owner.fill(key, ROWS, value), version);
                written.store(version, Ordering::Release);
            }
        });
        let mut out = vec![0; 256 * ROW_BYTES];
        let (mut seen, mut met) = (0, 0);
        while met < MET || reader.counters().busy == 0 {
            let before = written.load(Ordering::Acquire);
            let Some(version) = reader.pull(&all(key, ROWS, &mut out)) else {
                continue;
            };
            let value = version.to_le_bytes()[0];
            assert!(out.iter().all(|&byte| byte == value), "torn at {version}");
            assert!(version >= seen.max(before), "versions go up");
            met += u64::from(version > seen);
            (seen, read) = (version, read + 1);
        }
    });
    assert_eq!(reader.counters().pulls, read);
}

/// The blocks of dropped tensors are used again at once, for those that are published next.
#[test]
fn a_pull_beside_a_drop_is_of_its_own_generation() {
    const ROWS: u64 = 64;
    let mut owner = Owner::new();
    let reader = owner.reader();
    let first = owner.publish("table", 64, 1);
    let generation = AtomicU64::new(1);
    let (writing, over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let (owner, generation) = (&mut owner, &generation);
        scope.spawn(move || {
            let _writing = writing; // dropped in a panic too, so that the reader ends
            for value in 2..=250_u8 {
                owner.shard.drop_tensor("table").expect("it is there");
                owner.retire();
                let key = owner.publish("table", 64, value);
                assert_eq!((key.id, key.generation), (first.id, value.into()));
                generation.store(value.into(), Ordering::Release);
            }
        });
        let mut out = vec![0; 64 * ROW_BYTES];
        let mut last = None;
        while last.is_none() {
            last = (over.try_recv() == Err(TryRecvError::Disconnected)).then_some(());
            let known = u32::try_from(generation.load(Ordering::Acquire)).expect("few");
            let key = Key {
                id: first.id,
                generation: known,
            };
            if reader.pull(&all(key, ROWS, &mut out)).is_some() {
                assert!(out.iter().all(|&byte| u32::from(byte) == known));
            }
        }
    });
    let mut out = vec![0; 64 * ROW_BYTES];
    assert_eq!(reader.pull(&all(first, ROWS, &mut out)), None);
    assert!(reader.counters().stale > 0);
}

#[test]
fn nothing_is_read_of_an_owner_that_has_closed() {
    let mut owner = Owner::new();
    let key = owner.publish("table", 1, 3);
    let reader = owner.reader();
    let mut out = vec![0; ROW_BYTES];
    assert_eq!(reader.pull(&all(key, 1, &mut out)), Some(0));
    assert!(!reader.is_closed());
    drop(owner.shard);
    assert!(reader.is_closed());
    assert_eq!(reader.pull(&all(key, 1, &mut out)), None);
}

#[test]
fn memory_that_is_not_the_announced_index_is_refused() {
    let owner = Owner::new();
    let refused = |location, incarnation| {
        Reader::open(location, incarnation).expect_err("it is another one's")
    };
    let right = owner.location;
    assert!(refused(right, INCARNATION + 1).contains("another"));
    let other_memory = IndexLocation {
        inode: right.inode + 1,
        ..right
    };
    assert!(refused(other_memory, INCARNATION).contains("opened"));
    let no_memory = IndexLocation {
        descriptor: 0,
        ..right
    };
    assert!(refused(no_memory, INCARNATION).contains("opened"));
    let no_process = IndexLocation {
        process: i32::MAX.unsigned_abs(),
        ..right
    };
    assert!(refused(no_process, INCARNATION).contains("process"));
}
