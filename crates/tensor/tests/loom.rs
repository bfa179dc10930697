//! Every interleaving of an owner and a reader of the version table: copied rows have the returned version.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p forebay-tensor --test loom --release`
#![cfg(loom)]

// The version table as it ships, over loom's atomics.
#[path = "../src/version_table.rs"]
#[allow(dead_code)]
mod version_table;

mod sync {
    pub(crate) use loom::sync::atomic::fence;
}

mod error {
    /// What the version table needs of the crate's.
    #[derive(Debug)]
    pub enum Error {
        Config {
            #[allow(dead_code)] // shown where it is unexpected
            setting: &'static str,
            #[allow(dead_code)]
            value: u64,
            #[allow(dead_code)]
            advice: &'static str,
        },
    }
}

mod table {
    #[derive(Clone, Copy)]
    pub struct Key {
        pub id: u32,
        pub generation: u32,
    }
}

mod sys {
    pub mod span {
        use std::ptr::NonNull;

        /// Stands for memory: loom's words are objects.
        #[derive(Clone, Copy)]
        pub struct Span;

        impl Span {
            pub fn address(&self) -> NonNull<u8> {
                NonNull::dangling()
            }
        }
    }

    pub mod shared_words {
        use loom::sync::atomic::AtomicU64;

        #[derive(Debug)]
        pub struct SharedWords([AtomicU64; 2]);

        impl SharedWords {
            pub fn new(_: super::span::Span) -> Option<Self> {
                Some(Self([AtomicU64::new(0), AtomicU64::new(0)]))
            }

            pub fn count(&self) -> usize {
                2
            }

            pub fn at(&self, index: usize) -> &AtomicU64 {
                &self.0[index]
            }
        }
    }
}

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;
use table::Key;
use version_table::{Missed, VersionTable};

const FIRST: Key = Key {
    id: 0,
    generation: 1,
};

/// A version table with one tensor, and two words of rows.
fn published() -> (Arc<VersionTable>, Arc<[AtomicU64; 2]>) {
    let versions = VersionTable::new(sys::span::Span).expect("it is aligned");
    versions.publish(FIRST);
    let rows = [AtomicU64::new(0), AtomicU64::new(0)];
    (Arc::new(versions), Arc::new(rows))
}

fn read(
    versions: &VersionTable,
    key: Key,
    rows: &[AtomicU64; 2],
) -> (Result<u64, Missed>, [u64; 2]) {
    let mut copied = [u64::MAX; 2];
    let result = versions.read(key, || {
        copied = [rows[0].load(Relaxed), rows[1].load(Relaxed)]
    });
    (result, copied)
}

fn put(rows: &[AtomicU64; 2], value: u64) {
    rows[0].store(value, Relaxed);
    rows[1].store(value, Relaxed);
}

#[test]
fn a_copy_is_of_one_version() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let (versions, rows) = published();
        let (owners, written) = (Arc::clone(&versions), Arc::clone(&rows));
        let owner = thread::spawn(move || {
            owners.begin(0);
            put(&written, 1);
            owners.end(0, 1);
        });
        match read(&versions, FIRST, &rows) {
            (Ok(version), copied) => assert_eq!(copied, [version; 2]),
            (Err(missed), _) => assert_eq!(missed, Missed::Busy),
        }
        owner.join().expect("it does not panic");
        assert_eq!(read(&versions, FIRST, &rows), (Ok(1), [1; 2]));
    });
}

/// The second tensor lies where the first one was.
#[test]
fn a_copy_is_of_the_generation_that_was_asked_for() {
    const SECOND: Key = Key {
        id: 0,
        generation: 2,
    };
    for key in [FIRST, SECOND] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let (versions, rows) = published();
            let (owners, written) = (Arc::clone(&versions), Arc::clone(&rows));
            let owner = thread::spawn(move || {
                owners.retire(0);
                put(&written, 2);
                owners.publish(SECOND);
            });
            let expected = if key.generation == 1 { 0 } else { 2 };
            if let (Ok(version), copied) = read(&versions, key, &rows) {
                assert_eq!((version, copied), (0, [expected; 2]));
            }
            owner.join().expect("it does not panic");
            assert_eq!(read(&versions, FIRST, &rows).0, Err(Missed::Stale(2)));
        });
    }
}
