//! The memory of tensors: kept while a tensor or an answer needs it.
use std::collections::VecDeque;

use crate::slab::{Id, Slab};

/// What the driver of a shard gave a number, and needs no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetGo {
    /// A file that rows were read from.
    File(u32),
    /// Memory that rows were read into.
    Staged(u32),
}

/// Whose part of the staging memory rows lie in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
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
    Staged(u32, Share),
}

#[derive(Debug)]
struct Ground<K> {
    keeper: Keeper<K>,
    /// Pieces of answers that read it and have not gone out.
    readers: u32,
    is_retired: bool,
}

/// All memory that tensors have, or had while an answer still reads it.
#[derive(Debug)]
pub(crate) struct Grounds<K> {
    places: Slab<Ground<K>>,
    retired: VecDeque<K>,
    let_go: VecDeque<(LetGo, Option<Share>)>,
}

impl<K> Grounds<K> {
    pub(crate) fn new() -> Self {
        Self {
            places: Slab::new(),
            retired: VecDeque::new(),
            let_go: VecDeque::new(),
        }
    }

    pub(crate) fn insert(&mut self, keeper: Keeper<K>) -> u32 {
        let ground = Ground {
            keeper,
            readers: 0,
            is_retired: false,
        };
        self.places.insert(ground).index
    }

    /// No tensor needs it any more.
    pub(crate) fn retire(&mut self, ground: u32) {
        if let Some(found) = self.places.get_mut(ground) {
            found.is_retired = true;
        }
        self.settle(ground);
    }

    /// `count` further pieces of answers read it.
    pub(crate) fn hold(&mut self, ground: u32, count: u32) {
        let found = self.places.get_mut(ground);
        found
            .expect("held while a tensor or an answer needs it")
            .readers += count;
    }

    /// `count` pieces of answers have gone out, or were copied.
    pub(crate) fn release(&mut self, ground: u32, count: u32) {
        let found = self.places.get_mut(ground);
        let found = found.expect("kept while answers read it");
        found.readers -= count;
        if found.is_retired {
            self.settle(ground);
        }
    }

    /// Whether an answer that has not gone out reads it.
    pub(crate) fn has_readers(&self, ground: u32) -> bool {
        self.places
            .get(ground)
            .is_some_and(|found| found.readers > 0)
    }

    fn settle(&mut self, ground: u32) {
        let done = |found: &Ground<K>| found.is_retired && found.readers == 0;
        if self.places.get(ground).is_some_and(done)
            && let Some(gone) = self.places.remove(ground)
        {
            match gone.keeper {
                Keeper::Lender(keeper) => self.retired.push_back(keeper),
                Keeper::File(number) => self.let_go.push_back((LetGo::File(number), None)),
                Keeper::Staged(number, share) => {
                    self.let_go.push_back((LetGo::Staged(number), Some(share)));
                }
            }
        }
    }

    /// The keeper of memory that nothing needs any more.
    pub(crate) fn take_retired(&mut self) -> Option<K> {
        self.retired.pop_front()
    }

    /// What the driver gave a number, and nothing needs any more; of memory with whose share it was.
    pub(crate) fn take_let_go(&mut self) -> Option<(LetGo, Option<Share>)> {
        self.let_go.pop_front()
    }
}
