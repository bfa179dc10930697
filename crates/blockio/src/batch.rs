//! A batch: operations, files, one buffer and room for the results, checked as a whole before anything happens.
use crate::error::Error;
use crate::file::{Alignment, BlockFile};
use crate::operation::{Checked, Kind, Operation};
use crate::overlap;
use crate::sys::lent::{Lent, Memory, Results};

/// The most that one operation moves. Source: `MAX_RW_COUNT`, read(2).
pub(crate) const LENGTH_BYTES_MAX: u32 = 0x7fff_f000;

/// Batches count their operations in 32 bits.
pub(crate) const OPERATIONS_MAX: usize = u32::MAX as usize;

/// Where the operations of a batch come from.
#[derive(Debug)]
pub enum Operations {
    /// Blocks of one file: operation `i` moves a block at `offsets[i]` from or to byte `i * block_bytes` of the buffer.
    Blocks {
        /// [`Kind::Read`] or [`Kind::Write`].
        kind: Kind,
        /// Where in the file.
        offsets: Lent<u64>,
        /// How much of each block, at most `block_bytes`; all of it where there are none.
        lengths: Option<Lent<u32>>,
        /// Distance of the blocks in the buffer.
        block_bytes: u32,
    },
    /// Any operations.
    Listed(Lent<Operation>),
}

/// The files of a batch.
#[derive(Debug)]
pub enum Files {
    /// All operations are on one file, number 0.
    One(BlockFile),
    /// Operations choose by number.
    Many(Vec<BlockFile>),
}

impl Files {
    pub(crate) fn get(&self, number: u16) -> Option<&BlockFile> {
        match self {
            Self::One(file) => (number == 0).then_some(file),
            Self::Many(files) => files.get(usize::from(number)),
        }
    }
}

/// What is to be done, and where.
///
/// Others may write the lent memory while the batch is in flight:
/// whatever is read from it is checked again before the kernel sees it, so that they can spoil the batch, and nothing else.
#[derive(Debug)]
pub struct Batch {
    pub(crate) operations: Operations,
    pub(crate) files: Files,
    pub(crate) memory: Memory,
    pub(crate) results: Results,
    /// Short reads and writes are continued; the end of the file is then `-ENODATA`.
    pub(crate) exact: bool,
    /// How many operations there are of each [`Kind`], as they were when the batch was checked.
    pub(crate) kinds: [u64; 4],
}

/// Why an operation is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    field: &'static str,
    value: u64,
    advice: &'static str,
    limit: u64,
}

impl Fault {
    fn at(self, index: usize) -> Error {
        let Self {
            field,
            value,
            advice,
            limit,
        } = self;
        Error::Operation {
            index,
            field,
            value,
            advice,
            limit,
        }
    }
}

impl Batch {
    /// Put a batch together and check all of it.
    ///
    /// # Errors
    ///
    /// [`Error::Operation`] for the first operation that is out of bounds, not aligned as its file needs,
    /// or that a file or buffer was not opened for; [`Error::Config`] where the numbers of things do not match.
    /// With debug assertions also [`Error::Operation`] for writes that overlap, which are carried out in any order.
    pub fn new(
        operations: Operations,
        files: Files,
        memory: Memory,
        results: Results,
        exact: bool,
    ) -> Result<Self, Error> {
        let mut batch = Self {
            operations,
            files,
            memory,
            results,
            exact,
            kinds: [0; 4],
        };
        let count = batch.count();
        if count > OPERATIONS_MAX {
            return Err(Error::Config {
                setting: "the number of operations",
                value: count as u64,
                advice: "give less than 4294967296 in one batch",
            });
        }
        if let Operations::Blocks {
            lengths: Some(lengths),
            ..
        } = &batch.operations
            && lengths.count() != count
        {
            return Err(Error::Config {
                setting: "the number of lengths",
                value: lengths.count() as u64,
                advice: "give one for each offset",
            });
        }
        if batch.results.count() != count {
            return Err(Error::Config {
                setting: "the room for results",
                value: batch.results.count() as u64,
                advice: "give one 64-bit number for each operation",
            });
        }
        for index in 0..count {
            let checked = batch.check(index).map_err(|fault| fault.at(index))?;
            batch.kinds[checked.kind as usize] += 1;
        }
        if cfg!(debug_assertions) {
            // What was changed since the check is checked again before the kernel sees it.
            let checked = (0..count).filter_map(|index| Some((index, batch.check(index).ok()?)));
            let keeps_bytes = |number| batch.files.get(number).is_some_and(BlockFile::keeps_bytes);
            overlap::check(checked, keeps_bytes)?;
        }
        Ok(batch)
    }

    /// How many operations it has.
    pub fn count(&self) -> usize {
        match &self.operations {
            Operations::Blocks { offsets, .. } => offsets.count(),
            Operations::Listed(listed) => listed.count(),
        }
    }

    /// Bytes of memory that the kernel may write while the batch is in flight.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.bytes() as u64
    }

    /// Operation `index` as its memory says now.
    fn read(&self, index: usize) -> Operation {
        match &self.operations {
            Operations::Listed(listed) => listed.get(index),
            Operations::Blocks {
                kind,
                offsets,
                lengths,
                block_bytes,
            } => Operation {
                offset: offsets.get(index),
                buffer_offset: index as u64 * u64::from(*block_bytes),
                length: lengths.as_ref().map_or(*block_bytes, |all| all.get(index)),
                file: 0,
                kind: *kind as u8,
                flags: 0,
            },
        }
    }

    /// The most that operation `index` may ask for, given where its block ends.
    fn block_bytes(&self) -> u32 {
        match &self.operations {
            Operations::Listed(_) => LENGTH_BYTES_MAX,
            Operations::Blocks { block_bytes, .. } => *block_bytes,
        }
    }

    /// Read operation `index` and check it; the same check before the batch is taken and before the kernel sees it.
    pub(crate) fn check(&self, index: usize) -> Result<Checked, Fault> {
        let operation = self.read(index);
        let Some(kind) = Kind::of(operation.kind) else {
            return fault("kind", operation.kind, "kinds are 0 to", 3_u8);
        };
        if operation.flags != 0 {
            return fault("flags", operation.flags, "they have to be", 0_u8);
        }
        let Some(file) = self.files.get(operation.file) else {
            let Files::Many(files) = &self.files else {
                let advice = "the batch has one file, number";
                return fault("file", operation.file, advice, 0_u8);
            };
            let advice = "files are counted from 0, and the batch has";
            return fault("file", operation.file, advice, files.len() as u64);
        };
        let checked = Checked {
            kind,
            file: operation.file,
            length: operation.length,
            offset: operation.offset,
            address: self.memory.address(),
        };
        if !kind.moves_bytes() {
            return Ok(checked);
        }
        self.check_transfer(&operation, kind, file)
            .map(|address| Checked { address, ..checked })
    }

    /// Check a read or a write; return its address.
    fn check_transfer(
        &self,
        operation: &Operation,
        kind: Kind,
        file: &BlockFile,
    ) -> Result<u64, Fault> {
        self.check_bounds(operation)?;
        self.check_rights(kind, file)?;
        let address = self.memory.address() + operation.buffer_offset;
        check_alignment(operation, address, file)?;
        Ok(address)
    }

    fn check_bounds(&self, operation: &Operation) -> Result<(), Fault> {
        let Operation {
            offset,
            buffer_offset,
            length,
            ..
        } = *operation;
        let length_max = self.block_bytes().min(LENGTH_BYTES_MAX);
        if length > length_max {
            let advice = "an operation, or the block of the buffer it goes to, has at most";
            return fault("length", length, advice, length_max);
        }
        let end_max = i64::MAX.cast_unsigned();
        if offset > end_max - u64::from(length) {
            return fault("offset", offset, "no file reaches beyond byte", end_max);
        }
        let bytes = self.memory.bytes() as u64;
        if buffer_offset > bytes || u64::from(length) > bytes - buffer_offset {
            let advice = "with its length it has to stay within the buffer, whose size in bytes is";
            return fault("buffer_offset", buffer_offset, advice, bytes);
        }
        Ok(())
    }

    fn check_rights(&self, kind: Kind, file: &BlockFile) -> Result<(), Fault> {
        if kind == Kind::Write && !file.is_writable() {
            let advice = "its file was opened for reading, which is";
            return fault("kind", kind as u8, advice, Kind::Read as u8);
        }
        if kind == Kind::Read && !self.memory.is_writable() {
            let advice = "its buffer is read-only, which allows writes:";
            return fault("kind", kind as u8, advice, Kind::Write as u8);
        }
        Ok(())
    }
}

/// What direct I/O asks of an operation. Of any other file it asks for multiples of 1.
fn check_alignment(operation: &Operation, address: u64, file: &BlockFile) -> Result<(), Fault> {
    let Alignment { memory, offset } = file.alignment();
    let advice = "direct I/O on its file needs multiples of";
    if !operation.offset.is_multiple_of(offset.into()) {
        return fault("offset", operation.offset, advice, offset);
    }
    if !operation.length.is_multiple_of(offset) {
        return fault("length", operation.length, advice, offset);
    }
    if !address.is_multiple_of(memory.into()) {
        let advice = "direct I/O on its file needs memory at multiples of";
        return fault("address", address, advice, memory);
    }
    Ok(())
}

fn fault<T>(
    field: &'static str,
    value: impl Into<u64>,
    advice: &'static str,
    limit: impl Into<u64>,
) -> Result<T, Fault> {
    Err(Fault {
        field,
        value: value.into(),
        advice,
        limit: limit.into(),
    })
}
