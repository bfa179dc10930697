//! The tensors of a shard, with their generations and versions.
//!
//! # Invariants
//!
//! 1. An id keeps its row size while there are enough ids, so that the length of a push to a dropped tensor is known
//!    and the stream stays in step. When ids run out, the one dropped first gets a new row size: its earlier
//!    generations are still known as stale, but a push to them must end the connection.
//! 2. A generation of an id is never used twice: a handle from before a drop is always refused.
//! 3. The memory of a tensor is returned once it was dropped or replaced *and* no answer reads it any more.
mod changed;
mod description;
mod file;
mod free;
mod storage;

use std::collections::BTreeMap;

pub(crate) use changed::Changed;
pub use description::{Description, Key};
pub use file::FileRows;
pub(crate) use file::{CHECKSUM_BYTES, Filed, Run};
use free::FreeIds;
pub use storage::Released;
pub(crate) use storage::{Keeper, StagingShare, Storages};

use forebay_memory::Lease;

use crate::error::Error;
use crate::names::frame::NAME_BYTES_MAX;
use crate::names::{Meaning, Unknown, nearest};
use crate::requester::Rows;
use crate::shm::{ChunkLocation, SharedIndex};
use crate::sys::arithmetic;
use crate::sys::span::{Span, Words};
use crate::version_table::VersionTable;
use crate::wire::Operation;

/// One id: its current tensor, or its last one.
#[derive(Debug)]
pub(crate) struct Tensor {
    name: String,
    pub(crate) generation: u32,
    /// Generations from this one on have the same row size.
    since: u32,
    is_live: bool,
    description: Description,
    pub(crate) row_bytes: u64,
    pub(crate) rows: u64,
    pub(crate) version: u64,
    /// Empty if its rows are in a file.
    pub(crate) memory: Span,
    /// The file of its rows, if they are in one: then the tensor is read-only.
    pub(crate) file: Option<Filed>,
    /// The storage of its memory or file.
    pub(crate) storage: u32,
    /// How readers outside of the server reach it.
    pub(crate) exports: Exports,
}

/// How readers outside of the server reach a tensor's memory.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    /// For processes that map it; keeps the descriptor open.
    pub(crate) location: Option<ChunkLocation>,
    /// For a device: the block that contains it.
    pub(crate) block: Option<Lease>,
}

/// Where the rows of a tensor are.
struct Location {
    memory: Span,
    exports: Exports,
    file: Option<Filed>,
}

/// All tensors of a shard.
#[derive(Debug)]
pub(crate) struct Table<K> {
    tensors: Vec<Tensor>,
    names: BTreeMap<String, u32>,
    free: FreeIds,
    pub(crate) storages: Storages<K>,
    tensors_max: u32,
    /// Memory for rows that are read from files, which bounds one pull.
    pub(crate) staging_bytes: u64,
    versions: Option<VersionTable>,
    /// The memory of the version table, if processes can map it.
    shared_index: Option<SharedIndex>,
}

/// The result of a look-up by key.
pub(crate) enum Found<'a> {
    Live(&'a Tensor),
    /// It was dropped or replaced.
    Stale {
        current: u32,
        /// The row size, from which the length of a push is known; `None` if it is forgotten.
        row_bytes: Option<u64>,
    },
    /// It never existed.
    Never,
}

impl<K> Table<K> {
    pub(crate) fn new(tensors_max: u32) -> Self {
        Self {
            tensors: Vec::new(),
            names: BTreeMap::new(),
            free: FreeIds::default(),
            storages: Storages::new(),
            tensors_max,
            staging_bytes: 0,
            versions: None,
            shared_index: None,
        }
    }

    /// Maintain this version table, for present and later tensors.
    pub(crate) fn attach_versions(&mut self, versions: VersionTable) {
        for (id, tensor) in (0..)
            .zip(&self.tensors)
            .filter(|(_, tensor)| tensor.is_live && tensor.file.is_none())
        {
            let generation = tensor.generation;
            versions.publish(Key { id, generation });
            versions.end(id, tensor.version);
        }
        self.versions = Some(versions);
    }

    /// The same with the version table of a shared index.
    ///
    /// # Errors
    ///
    /// As [`VersionTable::new`].
    pub(crate) fn attach_index(&mut self, index: SharedIndex) -> Result<(), Error> {
        self.attach_versions(index.versions()?);
        self.shared_index = Some(index);
        Ok(())
    }

    /// Check what is to be published, and return the size of a row.
    ///
    /// # Errors
    ///
    /// As `Shard::publish`.
    pub(crate) fn check(
        &self,
        name: &str,
        description: &Description,
        memory: Span,
    ) -> Result<u64, Error> {
        let bytes = self.check_name(name, description)?;
        if bytes != memory.bytes() as u64 {
            return Err(Error::Config {
                setting: "the memory of a tensor",
                value: memory.bytes() as u64,
                advice: "it must have as many bytes as shape and dtype need",
            });
        }
        Ok(description.row_bytes())
    }

    /// Check what is to be published from a file, and return the size of a row.
    ///
    /// # Errors
    ///
    /// As `Shard::publish_file`.
    pub(crate) fn check_file(
        &self,
        name: &str,
        description: &Description,
        rows: FileRows,
    ) -> Result<u64, Error> {
        self.check_name(name, description)?;
        rows.check(description)?;
        Ok(description.row_bytes())
    }

    /// Check name and shape of a tensor, and return the bytes of its rows.
    fn check_name(&self, name: &str, description: &Description) -> Result<u64, Error> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\n') {
            return Err(Error::Name {
                name: name.into(),
                advice: "must have 1 to 255 bytes in one line",
            });
        }
        let live = u64::try_from(self.names.len()).unwrap_or(u64::MAX);
        if live >= u64::from(self.tensors_max) && !self.names.contains_key(name) {
            return Err(Error::Limit {
                limit: "tensors of a server",
                value: live + 1,
                maximum: u64::from(self.tensors_max),
                advice: "drop some, or publish several as one",
            });
        }
        description.check()
    }

    /// Publish memory under a name; a tensor of that name is dropped. `row_bytes` is the result of `check`.
    pub(crate) fn publish(
        &mut self,
        name: &str,
        description: Description,
        row_bytes: u64,
        (memory, exports): (Span, Exports),
        keeper: K,
    ) -> Key {
        let storage = self.storages.insert(Keeper::Lender(keeper));
        self.insert(
            name,
            description,
            row_bytes,
            Location {
                memory,
                exports,
                file: None,
            },
            storage,
        )
    }

    /// As `publish`, for rows of a file that the driver calls `number`.
    pub(crate) fn publish_file(
        &mut self,
        name: &str,
        description: Description,
        row_bytes: u64,
        (rows, number): (FileRows, u32),
    ) -> Key {
        let storage = self.storages.insert(Keeper::File(number));
        let filed = Filed {
            number,
            rows,
            row_bytes,
        };
        let location = Location {
            memory: Span::EMPTY,
            exports: Exports::default(),
            file: Some(filed),
        };
        self.insert(name, description, row_bytes, location, storage)
    }

    fn insert(
        &mut self,
        name: &str,
        description: Description,
        row_bytes: u64,
        location: Location,
        storage: u32,
    ) -> Key {
        let Location {
            memory,
            exports,
            file,
        } = location;
        let is_here = file.is_none();
        if let Some(&id) = self.names.get(name) {
            self.retire(id);
        }
        let (id, generation, since) = self.next_id(row_bytes);
        let tensor = Tensor {
            name: name.into(),
            generation,
            since,
            is_live: true,
            rows: description.rows(),
            description,
            row_bytes,
            version: 0,
            memory,
            file,
            storage,
            exports,
        };
        match self.tensors.get_mut(id as usize) {
            Some(reused) => *reused = tensor,
            None => self.tensors.push(tensor),
        }
        self.names.insert(name.into(), id);
        let key = Key { id, generation };
        if let Some(index) = &self.shared_index {
            let location = self.tensors[id as usize].exports.location.as_ref();
            index.set_location(id, location, memory.bytes());
        }
        if let Some(versions) = &self.versions
            && is_here
        {
            versions.publish(key);
        }
        key
    }

    /// The id of a new tensor, its generation, and the first generation with this row size.
    fn next_id(&mut self, row_bytes: u64) -> (u32, u32, u32) {
        let reused = self.free.take(row_bytes).or_else(|| {
            let has_enough = self.tensors.len() < self.tensors_max as usize;
            (!has_enough).then(|| self.free.take_oldest())?
        });
        let Some(id) = reused else {
            let id = u32::try_from(self.tensors.len());
            return (id.expect("limits are below 2^31"), 1, 1);
        };
        let before = &self.tensors[id as usize];
        let generation = before.generation + 1;
        let is_same = before.row_bytes == row_bytes;
        (
            id,
            generation,
            if is_same { before.since } else { generation },
        )
    }

    /// Drop the tensor of a name.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`].
    pub(crate) fn drop_tensor(&mut self, name: &str) -> Result<(), Error> {
        match self.names.get(name) {
            Some(&id) => {
                self.retire(id);
                Ok(())
            }
            None => Err(Error::UnknownName {
                name: name.into(),
                nearest: self.nearest(name),
            }),
        }
    }

    fn retire(&mut self, id: u32) {
        let tensor = &mut self.tensors[id as usize];
        tensor.is_live = false;
        tensor.description.shape = Vec::new();
        let name = std::mem::take(&mut tensor.name);
        if let Some(versions) = &self.versions {
            versions.retire(id);
        }
        tensor.exports = Exports::default();
        self.storages.retire(tensor.storage);
        // After 2^32 drops an id has no generation left, and is retired.
        if tensor.generation < u32::MAX {
            self.free.add(id, tensor.row_bytes);
        }
        self.names.remove(&name);
    }

    pub(crate) fn find(&self, key: Key) -> Found<'_> {
        let Some(tensor) = self.tensors.get(key.id as usize) else {
            return Found::Never;
        };
        if key.generation == tensor.generation && tensor.is_live {
            return Found::Live(tensor);
        }
        if key.generation == 0 || key.generation > tensor.generation {
            return Found::Never;
        }
        Found::Stale {
            current: if tensor.is_live { tensor.generation } else { 0 },
            row_bytes: (key.generation >= tensor.since).then_some(tensor.row_bytes),
        }
    }

    /// The tensor of a name.
    pub(crate) fn meaning(&self, name: &str) -> Result<Meaning, Unknown> {
        self.find_name(name).ok_or_else(|| self.unknown(name))
    }

    /// The answer about an unknown name.
    pub(crate) fn unknown(&self, name: &str) -> Unknown {
        Unknown {
            nearest: self.nearest(name),
        }
    }

    /// The tensor of a name, if there is one.
    pub(crate) fn find_name(&self, name: &str) -> Option<Meaning> {
        let &id = self.names.get(name)?;
        let tensor = &self.tensors[id as usize];
        Some(Meaning {
            key: Key {
                id,
                generation: tensor.generation,
            },
            description: tensor.description.clone(),
            version: tensor.version,
        })
    }

    fn nearest(&self, name: &str) -> Vec<String> {
        nearest(name, &self.names)
    }

    /// Set or add rows, all of which are in range, and return the new version.
    /// Unsent answers that read them were copied before.
    pub(crate) fn write(&mut self, id: u32, rows: Rows, operation: Operation, values: Span) -> u64 {
        let tensor = &mut self.tensors[id as usize];
        let put = |rows: Span, values: Span| match operation {
            Operation::Set => rows.copy_from(values),
            Operation::Add => {
                let dtype = &tensor.description.dtype;
                arithmetic::add(rows, values, dtype.number, dtype.item_bytes);
            }
        };
        if let Some(versions) = &self.versions {
            versions.begin(id);
        }
        match rows {
            Rows::Slice { first, count } => put(tensor.rows_at(first, count), values),
            Rows::Indices(words) => {
                let row_bytes = tensor.rows_at(0, 1).bytes();
                for at in 0..words.count() {
                    put(
                        tensor.rows_at(words.get(at), 1),
                        values.part(at * row_bytes, row_bytes),
                    );
                }
            }
        }
        tensor.version += 1;
        if let Some(versions) = &self.versions {
            versions.end(id, tensor.version);
        }
        tensor.version
    }
}

impl<K> Drop for Table<K> {
    /// The keepers free the memory now, so readers must not use it any more.
    fn drop(&mut self) {
        if let Some(versions) = &self.versions {
            let live = (0..)
                .zip(&self.tensors)
                .filter(|(_, tensor)| tensor.is_live);
            live.for_each(|(id, _)| versions.retire(id));
        }
        if let Some(index) = &self.shared_index {
            index.close();
        }
    }
}

impl Tensor {
    /// The memory of consecutive rows.
    ///
    /// # Panics
    ///
    /// If they are out of range.
    #[allow(clippy::cast_possible_truncation)] // bounded by the tensor's bytes, a `usize`
    pub(crate) fn rows_at(&self, first: u64, count: u64) -> Span {
        assert!(
            first <= self.rows && count <= self.rows - first,
            "rows outside of their tensor"
        );
        let row_bytes = self.row_bytes as usize;
        self.memory
            .part(first as usize * row_bytes, count as usize * row_bytes)
    }

    /// Check consecutive rows.
    ///
    /// # Errors
    ///
    /// The first row out of range.
    pub(crate) fn check_slice(&self, first: u64, count: u64) -> Result<(), u64> {
        check_slice(self.rows, first, count)
    }

    /// Whether the dtype supports the operation.
    pub(crate) fn can(&self, operation: Operation) -> bool {
        let dtype = &self.description.dtype;
        operation == Operation::Set || arithmetic::can_add(dtype.number, dtype.item_bytes)
    }
}

/// Check that consecutive rows are below `rows`.
///
/// # Errors
///
/// The first row out of range.
pub(crate) fn check_slice(rows: u64, first: u64, count: u64) -> Result<(), u64> {
    if first <= rows && count <= rows - first {
        Ok(())
    } else {
        Err(first.max(rows))
    }
}

/// Check that row numbers are below `rows`.
///
/// # Errors
///
/// The first number out of range.
pub(crate) fn check_indices(rows: u64, words: Words) -> Result<(), u64> {
    match (0..words.count())
        .map(|at| words.get(at))
        .find(|&row| row >= rows)
    {
        Some(row) => Err(row),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
