//! The memory of tensors: kept while a tensor or an answer needs it.
use std::collections::VecDeque;

use crate::slab::{Id, Slab};

/// What the driver of a shard gave a number, and needs no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// A file that rows were read from.
    File(u32),
    /// Memory that rows were read into.
    Staged(u32),
}

/// Whose part of the staging memory rows lie in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StagingShare {
    pub(crate) peer: Id,
    pub(crate) part: Id,
}

/// Who keeps what answers read.
#[derive(Debug)]
pub(crate) enum Keeper<K> {
    /// Whoever lent the memory.
    Lender(K),
    /// The driver of the shard, which has this number for the file.
    File(u32),
    /// The same with memory that rows were read into.
    Staged(u32, StagingShare),
}

#[derive(Debug)]
struct Storage<K> {
    keeper: Keeper<K>,
    /// Pieces of answers that read it and have not gone out.
    pieces: u32,
    /// Whose they are: peers in ascending order, each with the number of its pieces.
    /// Empty for what nobody writes: it is asked for to copy what would change.
    readers: Vec<(u32, u32)>,
    is_retired: bool,
}

impl<K> Storage<K> {
    /// Whether its bytes may change while answers read it.
    fn is_written(&self) -> bool {
        matches!(self.keeper, Keeper::Lender(_))
    }
}

/// All memory that tensors have, or had while an answer still reads it.
#[derive(Debug)]
pub(crate) struct Storages<K> {
    places: Slab<Storage<K>>,
    retired: VecDeque<K>,
    released: VecDeque<(Released, Option<StagingShare>)>,
}

impl<K> Storages<K> {
    pub(crate) fn new() -> Self {
        Self {
            places: Slab::new(),
            retired: VecDeque::new(),
            released: VecDeque::new(),
        }
    }

    pub(crate) fn insert(&mut self, keeper: Keeper<K>) -> u32 {
        let storage = Storage {
            keeper,
            pieces: 0,
            readers: Vec::new(),
            is_retired: false,
        };
        self.places.insert(storage).index
    }

    /// No tensor needs it any more.
    pub(crate) fn retire(&mut self, storage: u32) {
        if let Some(found) = self.places.get_mut(storage) {
            found.is_retired = true;
        }
        self.settle(storage);
    }

    /// `count` further pieces of answers to `reader` read it.
    pub(crate) fn hold(&mut self, storage: u32, reader: u32, count: u32) {
        let found = self.places.get_mut(storage);
        let found = found.expect("held while a tensor or an answer needs it");
        found.pieces += count;
        if found.is_written() {
            let at = found.readers.partition_point(|&(other, _)| other < reader);
            match found.readers.get_mut(at) {
                Some((other, pieces)) if *other == reader => *pieces += count,
                _ => found.readers.insert(at, (reader, count)),
            }
        }
    }

    /// `count` pieces of answers to `reader` have gone out, or were copied.
    pub(crate) fn release(&mut self, storage: u32, reader: u32, count: u32) {
        let found = self.places.get_mut(storage);
        let found = found.expect("kept while answers read it");
        found.pieces -= count;
        if found.is_written() {
            let at = found.readers.partition_point(|&(other, _)| other < reader);
            found.readers[at].1 -= count;
            if found.readers[at].1 == 0 {
                found.readers.remove(at);
            }
        }
        if found.is_retired {
            self.settle(storage);
        }
    }

    /// Whether an answer that has not gone out reads it.
    pub(crate) fn has_readers(&self, storage: u32) -> bool {
        self.readers(storage) > 0
    }

    /// Peers with answers that have not gone out and read it.
    pub(crate) fn readers(&self, storage: u32) -> usize {
        self.places
            .get(storage)
            .map_or(0, |found| found.readers.len())
    }

    /// One of these peers, and the number of the pieces that read it.
    pub(crate) fn reader(&self, storage: u32, at: usize) -> (u32, u32) {
        self.places.get(storage).expect("it has readers").readers[at]
    }

    fn settle(&mut self, storage: u32) {
        let done = |found: &Storage<K>| found.is_retired && found.pieces == 0;
        if self.places.get(storage).is_some_and(done)
            && let Some(gone) = self.places.remove(storage)
        {
            match gone.keeper {
                Keeper::Lender(keeper) => self.retired.push_back(keeper),
                Keeper::File(number) => self.released.push_back((Released::File(number), None)),
                Keeper::Staged(number, share) => {
                    self.released
                        .push_back((Released::Staged(number), Some(share)));
                }
            }
        }
    }

    /// The keeper of memory that nothing needs any more.
    pub(crate) fn take_retired(&mut self) -> Option<K> {
        self.retired.pop_front()
    }

    /// What the driver gave a number, and nothing needs any more; of memory with whose share it was.
    pub(crate) fn take_released(&mut self) -> Option<(Released, Option<StagingShare>)> {
        self.released.pop_front()
    }
}
