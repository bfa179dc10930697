//! What Python asked for, as a batch of the core over a loan of Python's buffers.
use forebay_blockio::{Batch, BlockFile, Error, Files, Kind, Operation, Operations};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;

use super::arrays::{Items, take_items, take_memory, take_results};
use crate::error::{self, Result, config};
use crate::sys::loan::{Loan, Role};

/// Operations that are checked in ten microseconds, for which the GIL is held.
pub(super) const ATTACHED_MAX: usize = 256;

/// The operations that were asked for.
#[derive(Clone, Copy)]
pub(super) enum Work<'a, 'py> {
    /// Blocks of one file at offsets, to or from consecutive blocks of memory.
    Blocks {
        kind: Kind,
        offsets: &'a Bound<'py, PyAny>,
        lengths: Option<&'a Bound<'py, PyAny>>,
        memory: &'a Bound<'py, PyAny>,
    },
    /// A list of descriptors.
    Listed {
        operations: &'a Bound<'py, PyAny>,
        memory: &'a Bound<'py, PyAny>,
    },
    /// One transfer of all of `memory`.
    One {
        kind: Kind,
        offset: u64,
        memory: &'a Bound<'py, PyAny>,
    },
    /// One fsync or fdatasync.
    Sync { kind: Kind },
}

impl<'a, 'py> Work<'a, 'py> {
    /// What a method of a file does, by the method's name.
    pub(super) fn named(
        method: &str,
        offsets: Option<&'a Bound<'py, PyAny>>,
        lengths: Option<&'a Bound<'py, PyAny>>,
        memory: Option<&'a Bound<'py, PyAny>>,
    ) -> Result<Self> {
        let kind = kind_of(method)?;
        match (kind, offsets, memory) {
            (Kind::Fsync | Kind::Fdatasync, None, None) => Ok(Self::Sync { kind }),
            (Kind::Read | Kind::Write, Some(offsets), Some(memory))
                if method.ends_with("_many") =>
            {
                Ok(Self::Blocks {
                    kind,
                    offsets,
                    lengths,
                    memory,
                })
            }
            (Kind::Read | Kind::Write, Some(offset), Some(memory)) => Ok(Self::One {
                kind,
                offset: offset_of(offset)?,
                memory,
            }),
            _ => {
                let message = format!("{method} was given the wrong number of arguments");
                Err(PyTypeError::new_err(message).into())
            }
        }
    }

    /// The memory that the kernel reads or writes.
    pub(super) fn memory(&self) -> Option<&'a Bound<'py, PyAny>> {
        match self {
            Self::Blocks { memory, .. }
            | Self::Listed { memory, .. }
            | Self::One { memory, .. } => Some(memory),
            Self::Sync { .. } => None,
        }
    }
}

fn kind_of(method: &str) -> Result<Kind> {
    match method {
        "read_many" | "read" => Ok(Kind::Read),
        "write_many" | "write" => Ok(Kind::Write),
        "fsync" => Ok(Kind::Fsync),
        "fdatasync" => Ok(Kind::Fdatasync),
        other => Err(config(format!(
            "unknown method {other:?}; give read_many, write_many, read, write, fsync or fdatasync"
        ))),
    }
}

/// An offset as Python gave it.
pub(super) fn offset_of(offset: &Bound<'_, PyAny>) -> Result<u64> {
    match offset.extract::<u64>() {
        Err(refused) if refused.is_instance_of::<PyOverflowError>(offset.py()) => Err(config(
            format!("offset is {offset}; give 0 to {}", i64::MAX),
        )),
        number => Ok(number?),
    }
}

/// What is left of a request for its messages.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Blocks { kind: Kind, block_bytes: u32 },
    Listed,
    Own,
}

/// The files of a list of operations. As Python gives them: one file, or a sequence of them.
pub(super) struct FileList(pub(super) Vec<BlockFile>);

/// A request with everything that it is on.
pub(super) struct Request<'a, 'py> {
    pub(super) work: Work<'a, 'py>,
    pub(super) files: &'a [BlockFile],
    pub(super) results: Option<&'a Bound<'py, PyAny>>,
    pub(super) exact: bool,
}

/// A batch, and what remains here of the request.
pub(super) struct Made<'py> {
    pub(super) batch: Batch,
    /// The array of the results; none where there is one result of ours.
    pub(super) results: Option<Bound<'py, PyAny>>,
    pub(super) shape: Shape,
}

impl<'py> Request<'_, 'py> {
    /// Take the buffers into the loan, and make the batch; the core has checked every operation then.
    pub(super) fn make(&self, py: Python<'py>, loan: &mut Loan) -> Result<Made<'py>> {
        match self.work {
            Work::Blocks {
                kind,
                offsets,
                lengths,
                memory,
            } => {
                take_items(loan, Items::Offsets, offsets)?;
                take_memory(loan, memory, Some(kind == Kind::Read))?;
                if let Some(lengths) = lengths {
                    take_items(loan, Items::Lengths, lengths)?;
                }
                self.blocks(py, loan, kind, lengths.is_some())
            }
            Work::Listed { operations, memory } => {
                take_items(loan, Items::Operations, operations)?;
                take_memory(loan, memory, None)?;
                let listed = loan.lent::<Operation>(Role::Items).ok_or_else(changed)?;
                let count = listed.count();
                self.finish(py, loan, Operations::Listed(listed), count, Shape::Listed)
            }
            Work::One { kind, memory, .. } => {
                take_memory(loan, memory, Some(kind == Kind::Read))?;
                self.own(loan, kind)
            }
            Work::Sync { kind } => self.own(loan, kind),
        }
    }

    /// A batch of blocks, whose buffers the loan holds.
    fn blocks(
        &self,
        py: Python<'py>,
        loan: &mut Loan,
        kind: Kind,
        has_lengths: bool,
    ) -> Result<Made<'py>> {
        let offsets = loan.lent::<u64>(Role::Items).ok_or_else(changed)?;
        let count = offsets.count();
        let block_bytes = block_bytes(loan.bytes(Role::Memory), count)?;
        let lengths = if has_lengths {
            Some(loan.lent::<u32>(Role::Lengths).ok_or_else(changed)?)
        } else {
            None
        };
        let operations = Operations::Blocks {
            kind,
            offsets,
            lengths,
            block_bytes,
        };
        let shape = Shape::Blocks { kind, block_bytes };
        self.finish(py, loan, operations, count, shape)
    }

    /// A batch of one operation, which Python did not list.
    fn own(&self, loan: &mut Loan, kind: Kind) -> Result<Made<'py>> {
        let mut operation = Operation {
            kind: kind as u8,
            ..Operation::default()
        };
        if let Work::One { offset, .. } = self.work {
            operation.offset = offset;
            operation.length = block_bytes(loan.bytes(Role::Memory), 1)?;
        }
        let (listed, results) = loan.own(operation);
        let memory = loan.memory();
        let operations = Operations::Listed(listed);
        let batch = Batch::new(operations, self.core_files(), memory, results, self.exact);
        Ok(Made {
            batch: self.checked(batch)?,
            results: None,
            shape: Shape::Own,
        })
    }

    /// Take the array of results and check the operations, those of a long list without the GIL.
    fn finish(
        &self,
        py: Python<'py>,
        loan: &mut Loan,
        operations: Operations,
        count: usize,
        shape: Shape,
    ) -> Result<Made<'py>> {
        let results = take_results(py, loan, self.results, count)?;
        let (files, memory, exact) = (self.core_files(), loan.memory(), self.exact);
        let room = loan.results().ok_or_else(changed)?;
        let is_long = room.count() > ATTACHED_MAX;
        let check = move || Batch::new(operations, files, memory, room, exact);
        let batch = if is_long { py.detach(check) } else { check() };
        Ok(Made {
            batch: self.checked(batch)?,
            results: Some(results),
            shape,
        })
    }

    fn core_files(&self) -> Files {
        match self.files {
            [file] => Files::One(file.clone()),
            many => Files::Many(many.to_vec()),
        }
    }

    /// A batch, or the core's message why it is invalid, with the file where there is one.
    fn checked(&self, batch: Result<Batch, Error>) -> Result<Batch> {
        match (batch, self.files) {
            (Err(refused @ Error::Operation { .. }), [file]) => {
                Err(config(format!("{}: {refused}", file.path().display())))
            }
            (batch, _) => Ok(batch?),
        }
    }
}

/// Size of each of `count` equal blocks of a buffer.
fn block_bytes(bytes: usize, count: usize) -> Result<u32> {
    if count == 0 {
        return Ok(0);
    }
    if !bytes.is_multiple_of(count) {
        return Err(config(format!(
            "the buffer has {bytes} bytes, which is no multiple of {count} operations; give one block for each"
        )));
    }
    let each = bytes / count;
    match u32::try_from(each) {
        Ok(each) => Ok(each),
        Err(_) => Err(config(format!(
            "the buffer has {each} bytes for each of {count} operations; give less than 2 GiB"
        ))),
    }
}

fn changed() -> error::Error {
    config("the arrays have changed while they were looked at")
}
