//! Reading and writing from Rust without `unsafe`: blocks of a file to and from a block of a region.
use std::ptr::NonNull;

use forebay_memory::Lease;

use crate::batch::{Batch, Files, Operations};
use crate::completion::GivingUp;
use crate::error::Error;
use crate::file::BlockFile;
use crate::flight::Keeper;
use crate::operation::Kind;
use crate::queue::BlockQueue;
use crate::sys::lent::{Lent, Memory, Results};

/// Keeps the memory where the kernel may write it after a failure.
struct KeepLease<'a>(&'a Lease);

impl GivingUp for KeepLease<'_> {
    fn interrupted(&mut self) -> bool {
        false
    }

    fn keeper(&mut self) -> Keeper {
        Box::new(self.0.clone())
    }
}

impl BlockQueue {
    /// Read blocks of `file` at `offsets` into consecutive blocks of `memory`, of which there are as many.
    ///
    /// `results` gets the bytes of each, or a negative `errno`; they are fewer than asked at the end of the file.
    /// Cost: a system call for each batch of the queue, no allocation.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] for what is not aligned as the file needs; as [`BlockQueue::run`].
    pub fn read_many(
        &self,
        file: &BlockFile,
        offsets: &[u64],
        memory: &mut Lease,
        results: &mut [i64],
    ) -> Result<(), Error> {
        self.move_many(Kind::Read, file, offsets, memory, results)
    }

    /// Write consecutive blocks of `memory` to `file` at `offsets`; the rest is as in [`BlockQueue::read_many`].
    ///
    /// # Errors
    ///
    /// As [`BlockQueue::read_many`].
    pub fn write_many(
        &self,
        file: &BlockFile,
        offsets: &[u64],
        memory: &mut Lease,
        results: &mut [i64],
    ) -> Result<(), Error> {
        self.move_many(Kind::Write, file, offsets, memory, results)
    }

    fn move_many(
        &self,
        kind: Kind,
        file: &BlockFile,
        offsets: &[u64],
        memory: &mut Lease,
        results: &mut [i64],
    ) -> Result<(), Error> {
        memory.check()?;
        let block_bytes = memory.len() / offsets.len().max(1);
        if memory.bytes_mut().is_none() || block_bytes * offsets.len() != memory.len() {
            return Err(Error::Config {
                setting: "the size of the memory",
                value: memory.len() as u64,
                advice: "give a block that nobody else holds, of one length for each offset",
            });
        }
        let Ok(block_bytes) = u32::try_from(block_bytes) else {
            return Err(Error::Config {
                setting: "the size of a block",
                value: block_bytes as u64,
                advice: "give less than 4 GiB",
            });
        };
        // SAFETY: the slices are borrowed until this returns. If the batch is not done then, nothing more of it is issued,
        // no result of it is written (its ring is given up), and the memory is the keeper's.
        let batch = unsafe {
            let offsets = Lent::new(NonNull::from(offsets).cast(), offsets.len());
            let results = Results::new(NonNull::from(&mut *results).cast(), results.len());
            let operations = Operations::Blocks {
                kind,
                offsets,
                lengths: None,
                block_bytes,
            };
            let memory = Memory::new(memory.as_ptr(), memory.len(), true);
            Batch::new(operations, Files::One(file.clone()), memory, results, false)?
        };
        self.run(batch, &mut KeepLease(memory))
    }
}
