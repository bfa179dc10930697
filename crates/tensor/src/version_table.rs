//! The generation and version of each tensor in shared memory: a seqlock per tensor.
//!
//! Each id has two words: its generation, 0 if it has none, and twice its version, odd while the owner writes.
//! A reader loads both, copies rows, and loads both again. If either changed it retries, and finally asks the server.
//!
//! The owner's stores are ordered by a fence after the word is odd and a release store of the even one;
//! the reader's by an acquire load before its copy and an acquire fence after it.
//! So a copy that saw a byte of a write finds the word changed, and one that saw a byte of reused memory finds another
//! generation.
//! Source: Boehm, "Can seqlocks get along with programming language memory models?", 2012.
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use crate::error::Error;
use crate::sync::fence;
use crate::sys::shared_words::SharedWords;
use crate::sys::span::Span;
use crate::table::Key;

/// Bytes of the table for each tensor.
pub const VERSION_BYTES: usize = 16;
/// Attempts of a reader before it asks the server.
const TRIES: u32 = 4;

/// The table, in memory that the owner writes and readers map.
#[derive(Debug)]
pub struct VersionTable {
    words: SharedWords,
}

/// Why rows cannot be read from shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// The tensor has another generation: this one, or 0 if it was dropped.
    Stale(u32),
    /// The owner was writing at each attempt.
    Busy,
    /// The table has no entry for the id.
    Absent,
}

impl VersionTable {
    /// A table in `memory`, [`VERSION_BYTES`] for each id; it has no entry for higher ids.
    ///
    /// Owner and readers use the memory as a version table only, and the owner provides it zeroed.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for memory that is not aligned to 8 bytes.
    pub fn new(memory: Span) -> Result<Self, Error> {
        let words = SharedWords::new(memory).ok_or(Error::Config {
            setting: "the address of a version table",
            value: memory.address().as_ptr() as u64,
            advice: "use a multiple of 8",
        })?;
        Ok(Self { words })
    }

    fn position(&self, id: u32) -> Option<usize> {
        let at = id as usize * 2;
        (at + 1 < self.words.count()).then_some(at)
    }

    /// The id names this tensor, at version 0, whose memory is ready. Only the owner calls it, one thread at a time.
    pub(crate) fn publish(&self, key: Key) {
        let Some(at) = self.position(key.id) else {
            return;
        };
        self.begin(key.id);
        self.words.at(at).store(u64::from(key.generation), Relaxed);
        self.words.at(at + 1).store(0, Release);
    }

    /// The id names no tensor; after this its memory may be reused.
    pub(crate) fn retire(&self, id: u32) {
        if let Some(at) = self.position(id) {
            self.words.at(at).store(0, Relaxed);
            self.begin(id);
        }
    }

    /// The tensor's memory is about to change.
    pub(crate) fn begin(&self, id: u32) {
        if let Some(at) = self.position(id) {
            let before = self.words.at(at + 1).load(Relaxed);
            self.words.at(at + 1).store(before | 1, Relaxed);
            // A release fence would do for ordinary stores. Long copies are made of non-temporal ones (glibc's
            // `memcpy`), which x86 does not keep behind this one by itself. Source: Intel SDM, volume 1, 10.4.6.2.
            fence(SeqCst);
        }
    }

    /// The tensor has this version; `begin` was called before.
    pub(crate) fn end(&self, id: u32, version: u64) {
        if let Some(at) = self.position(id) {
            self.words.at(at + 1).store(2 * version, Release);
        }
    }

    /// Whether the id names this tensor now.
    pub(crate) fn has(&self, key: Key) -> bool {
        let at = self.position(key.id);
        at.is_some_and(|at| check(self.words.at(at).load(Acquire), key).is_ok())
    }

    /// Call `copy` to copy rows out of shared memory until they are of one version, which is returned.
    ///
    /// If this fails the copied bytes are meaningless; they may come from any memory of the chunk.
    ///
    /// # Errors
    ///
    /// [`Missed`]: ask the server for the rows.
    pub fn read(&self, key: Key, mut copy: impl FnMut()) -> Result<u64, Missed> {
        let at = self.position(key.id).ok_or(Missed::Absent)?;
        let (generation, version) = (self.words.at(at), self.words.at(at + 1));
        for _ in 0..TRIES {
            let before = version.load(Acquire);
            // Acquired too: the version may still be that of the generation before, and be the same number.
            check(generation.load(Acquire), key)?;
            if before % 2 == 0 {
                copy();
                fence(Acquire);
                let is_same = version.load(Relaxed) == before;
                check(generation.load(Relaxed), key)?;
                if is_same {
                    return Ok(before / 2);
                }
            }
            std::hint::spin_loop();
        }
        Err(Missed::Busy)
    }
}

fn check(found: u64, key: Key) -> Result<(), Missed> {
    if found == u64::from(key.generation) {
        return Ok(());
    }
    Err(Missed::Stale(u32::try_from(found).unwrap_or(0)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;

    const KEY: Key = Key {
        id: 1,
        generation: 7,
    };

    fn versions(words: &mut [u64]) -> VersionTable {
        // Of whole words, so that it is aligned.
        let memory = Span::of_words(words);
        VersionTable::new(memory).expect("words are aligned")
    }

    #[test]
    fn rows_are_read_while_nobody_writes() {
        let mut words = [0; 4];
        let versions = versions(&mut words);
        let other = |key: Key, copies: u32| {
            let mut count = 0;
            let result = versions.read(key, || count += 1);
            assert_eq!(count, copies);
            result
        };
        assert_eq!(other(KEY, 0), Err(Missed::Stale(0)));
        versions.publish(KEY);
        assert_eq!(other(KEY, 1), Ok(0));
        assert_eq!(
            other(
                Key {
                    id: 1,
                    generation: 6
                },
                0
            ),
            Err(Missed::Stale(7))
        );
        assert_eq!(
            other(
                Key {
                    id: 2,
                    generation: 7
                },
                0
            ),
            Err(Missed::Absent)
        );
        versions.begin(1);
        assert_eq!(other(KEY, 0), Err(Missed::Busy));
        versions.end(1, 1);
        assert_eq!(other(KEY, 1), Ok(1));
        versions.retire(1);
        assert_eq!(other(KEY, 0), Err(Missed::Stale(0)));
    }

    #[test]
    fn what_changes_during_a_copy_is_noticed() {
        let mut words = [0; 4];
        let versions = versions(&mut words);
        versions.publish(KEY);
        let mut tries = 0;
        let result = versions.read(KEY, || {
            tries += 1;
            if tries < 4 {
                versions.begin(1);
                versions.end(1, tries);
            }
        });
        assert_eq!((result, tries), (Ok(3), 4));
        let replaced = versions.read(KEY, || {
            versions.retire(1);
            versions.publish(Key {
                id: 1,
                generation: 8,
            });
        });
        assert_eq!(replaced, Err(Missed::Stale(8)));
    }

    /// The rows hold their version in each word: a mixture would show.
    #[test]
    fn a_reader_beside_a_writer_sees_whole_versions() {
        const WRITES: u64 = 20_000;
        let mut words = [0; 4];
        let versions = versions(&mut words);
        versions.publish(KEY);
        let rows: Vec<AtomicU64> = (0..32).map(|_| AtomicU64::new(0)).collect();
        let is_over = AtomicBool::new(false);
        let mut seen = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for version in 1..=WRITES {
                    versions.begin(KEY.id);
                    for row in &rows {
                        row.store(version, Relaxed);
                    }
                    versions.end(KEY.id, version);
                }
                is_over.store(true, Release);
            });
            let mut copied = [0; 32];
            loop {
                let last = is_over.load(Acquire);
                let version = versions.read(KEY, || {
                    for (to, from) in copied.iter_mut().zip(&rows) {
                        *to = from.load(Relaxed);
                    }
                });
                if let Ok(version) = version {
                    assert_eq!(copied, [version; 32]);
                    assert!(version >= seen, "versions go up");
                    seen = version;
                }
                if last {
                    break;
                }
            }
        });
        assert_eq!(seen, WRITES);
    }
}
