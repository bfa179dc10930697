//! Memory that rows of files are read into: parts of one block, each with the descriptions of its reads behind the
//! rows.
use std::ptr::NonNull;

use forebay_blockio::{
    Batch, BlockFile, Error, Files, Lent, Memory, Operation, Operations, Results,
};
use forebay_memory::Lease;

use super::span::Span;

/// Bytes that describe a read and its result.
pub(crate) const RUN_RECORD_BYTES: usize = size_of::<Operation>() + size_of::<i64>();

/// A part of a block of staging memory: rows, then the operations that read them, then their results.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Its offset in the block, a multiple of 8.
    pub(crate) from: usize,
    pub(crate) rows_bytes: usize,
    pub(crate) runs: usize,
}

impl Part {
    fn operations_at(&self) -> usize {
        self.from + self.rows_bytes.next_multiple_of(8)
    }

    fn results_at(&self) -> usize {
        self.operations_at() + self.runs * size_of::<Operation>()
    }

    /// An address in the block.
    ///
    /// # Panics
    ///
    /// If the part is not inside.
    fn at<T>(&self, block: &Lease, at: usize) -> NonNull<T> {
        let end = self.results_at() + self.runs * size_of::<i64>();
        assert!(
            end <= block.len() && at <= end,
            "a part outside of its block"
        );
        // SAFETY: the assertion keeps it inside of the block, which the lease keeps mapped.
        unsafe { block.as_ptr().add(at) }.cast()
    }

    /// Describe read `index`.
    pub(crate) fn set(&self, block: &Lease, index: usize, operation: Operation) {
        assert!(index < self.runs, "more reads than there is room for");
        let first: NonNull<Operation> = self.at(block, self.operations_at());
        // SAFETY: in range and aligned, because the block and `from` are multiples of 8; no read has started.
        unsafe { first.add(index).write(operation) };
    }

    /// A batch of the described reads. The caller that submits it keeps a lease of the block until it is done.
    ///
    /// # Errors
    ///
    /// As [`Batch::new`].
    pub(crate) fn batch(&self, block: &Lease, file: BlockFile) -> Result<Batch, Error> {
        // SAFETY: all three are inside of the block and aligned; the keeper that the batch is submitted with holds a
        // lease of it, so it stays mapped, and the part is not reused before the batch is done.
        unsafe {
            let operations = Lent::new(self.at(block, self.operations_at()), self.runs);
            let memory = Memory::new(self.at(block, self.from), self.rows_bytes, true);
            let results = Results::new(self.at(block, self.results_at()), self.runs);
            Batch::new(
                Operations::Listed(operations),
                Files::One(file),
                memory,
                results,
                true,
            )
        }
    }

    /// The result of read `index`: bytes, or a negative `errno`. The batch is done.
    pub(crate) fn result(&self, block: &Lease, index: usize) -> i64 {
        assert!(index < self.runs, "beyond the reads");
        let first: NonNull<i64> = self.at(block, self.results_at());
        // SAFETY: in range and aligned; the batch has written it.
        unsafe { first.add(index).read() }
    }

    /// The rows. Valid while a lease of the block is held, and the part is not reused.
    pub(crate) fn rows(&self, block: &Lease) -> Span {
        // SAFETY: inside of the block; the driver keeps block and part until the shard has given them back.
        unsafe { Span::new(self.at(block, self.from), self.rows_bytes) }
    }

    /// Call `look` with bytes of the rows. The batch is done.
    pub(crate) fn with_bytes<T>(
        &self,
        block: &Lease,
        (from, bytes): (usize, usize),
        look: impl FnOnce(&[u8]) -> T,
    ) -> T {
        let part = self.rows(block).part(from, bytes);
        // SAFETY: initialised, because a batch that read all of it is done; nothing writes it before it is given back.
        look(unsafe { std::slice::from_raw_parts(part.address().as_ptr(), bytes) })
    }
}
