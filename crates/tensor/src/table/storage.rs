//! The storages of tensors, memory or files: kept while a tensor or an answer uses them.
use std::collections::VecDeque;

use forebay_base::slots::{self, Slots};

/// A resource that the driver of a shard numbered, and that is no longer used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// A file that rows were read from.
    File(u32),
    /// Memory that rows were read into.
    Staged(u32),
}

/// The peer whose part of the staging memory holds the rows, and the part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StagingShare {
    pub(crate) peer: slots::Key,
    pub(crate) part: slots::Key,
}

/// What keeps a storage.
#[derive(Debug)]
pub(crate) enum Keeper<K> {
    /// The keeper of lent memory.
    Lender(K),
    /// The driver of the shard, by its number of the file.
    File(u32),
    /// The driver of the shard, by its number of the memory that rows were read into.
    Staged(u32, StagingShare),
}

#[derive(Debug)]
struct Storage<K> {
    keeper: Keeper<K>,
    /// Unsent pieces of answers that read it.
    pieces: u32,
    /// Their peers in ascending order, each with the count of its pieces.
    /// Empty for a read-only storage: it serves to copy rows before a write.
    readers: Vec<(u32, u32)>,
    is_retired: bool,
}

impl<K> Storage<K> {
    /// Whether its bytes may change while answers read it.
    fn is_written(&self) -> bool {
        matches!(self.keeper, Keeper::Lender(_))
    }
}

/// All storages of tensors, and of dropped tensors that answers still read.
#[derive(Debug)]
pub(crate) struct Storages<K> {
    all: Slots<Storage<K>>,
    retired: VecDeque<K>,
    released: VecDeque<(Released, Option<StagingShare>)>,
}

impl<K> Storages<K> {
    pub(crate) fn new() -> Self {
        Self {
            all: Slots::new(),
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
        self.all.insert(storage).index
    }

    /// No tensor uses it any more.
    pub(crate) fn retire(&mut self, storage: u32) {
        if let Some((_, found)) = self.all.at_mut(storage) {
            found.is_retired = true;
        }
        self.settle(storage);
    }

    /// `count` more pieces of answers to `reader` read it.
    pub(crate) fn hold(&mut self, storage: u32, reader: u32, count: u32) {
        let found = self.all.at_mut(storage);
        let (_, found) = found.expect("kept while a tensor or an answer uses it");
        found.pieces += count;
        if found.is_written() {
            let at = found.readers.partition_point(|&(other, _)| other < reader);
            match found.readers.get_mut(at) {
                Some((other, pieces)) if *other == reader => *pieces += count,
                _ => found.readers.insert(at, (reader, count)),
            }
        }
    }

    /// `count` pieces of answers to `reader` were sent or copied.
    pub(crate) fn release(&mut self, storage: u32, reader: u32, count: u32) {
        let found = self.all.at_mut(storage);
        let (_, found) = found.expect("kept while answers read it");
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

    /// Whether an unsent answer reads it.
    pub(crate) fn has_readers(&self, storage: u32) -> bool {
        self.readers(storage) > 0
    }

    /// How many peers have unsent answers that read it.
    pub(crate) fn readers(&self, storage: u32) -> usize {
        self.all
            .at(storage)
            .map_or(0, |(_, found)| found.readers.len())
    }

    /// One of these peers, and the count of its pieces.
    pub(crate) fn reader(&self, storage: u32, at: usize) -> (u32, u32) {
        let (_, found) = self.all.at(storage).expect("it has readers");
        found.readers[at]
    }

    fn settle(&mut self, storage: u32) {
        if let Some((key, found)) = self.all.at(storage)
            && found.is_retired
            && found.pieces == 0
            && let Some(gone) = self.all.remove(key)
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

    /// The keeper of memory that is no longer used.
    pub(crate) fn take_retired(&mut self) -> Option<K> {
        self.retired.pop_front()
    }

    /// A resource of the driver that is no longer used; memory comes with its share.
    pub(crate) fn take_released(&mut self) -> Option<(Released, Option<StagingShare>)> {
        self.released.pop_front()
    }
}
