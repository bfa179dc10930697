//! What came of a batch: its results, or the exception that names the first operation that failed.
use std::sync::Arc;

use forebay_blockio::{
    BlockFile, BlockQueue, Error as CoreError, GivingUp, Keeper, Kind, Operation,
};
use pyo3::prelude::*;
use rustix::io::Errno;

use super::request::{ATTACHED_MAX, Made, Request, Shape};
use crate::error::{self, Error, Result, busy};
use crate::memory::block_under;
use crate::sys::kept::KeptLoan;
use crate::sys::loan::{Loan, Role};

/// A blocking call that signals may interrupt.
struct Call<'a> {
    loan: Option<Arc<Loan>>,
    memory: Option<&'a Py<PyAny>>,
    /// What a signal handler raised.
    raised: Option<PyErr>,
}

impl Call<'_> {
    /// The loan, unless it was given away, and the exception for a batch that did not end by itself.
    fn end(self, outcome: Result<(), CoreError>) -> (Option<Arc<Loan>>, Option<Error>) {
        let failed = outcome.err().map(|refused| match self.raised {
            Some(raised) if matches!(refused, CoreError::Interrupted { .. }) => raised.into(),
            _ => refused.into(),
        });
        (self.loan, failed)
    }
}

impl GivingUp for Call<'_> {
    fn interrupted(&mut self) -> bool {
        self.raised = Python::attach(|py| py.check_signals().err());
        self.raised.is_some()
    }

    fn keeper(&mut self) -> Keeper {
        let Some(loan) = self.loan.take() else {
            return Box::new(());
        };
        if let Some(memory) = self.memory {
            Python::attach(|py| quarantine(&loan, memory.bind(py)));
        }
        Box::new(KeptLoan::new(loan))
    }
}

/// Carry out a request on this thread, without the GIL; return the array of its results, or our own operation's one.
pub(super) fn run<'py>(
    py: Python<'py>,
    queue: &BlockQueue,
    request: &Request<'_, 'py>,
    memory: Option<&Bound<'py, PyAny>>,
    return_errors: bool,
) -> Result<(Option<Bound<'py, PyAny>>, i64)> {
    let (loan, made) = lend(py, request)?;
    let mut call = Call {
        loan: Some(loan),
        memory: memory.map(Bound::as_unbound),
        raised: None,
    };
    let outcome = py.detach(|| queue.run(made.batch, &mut call));
    let (loan, failed) = call.end(outcome);
    let Some(loan) = loan else {
        return Err(failed.unwrap_or_else(|| busy("the loan was given away")));
    };
    let failed = match failed {
        None if !return_errors => failure(py, &loan, made.shape, request.files),
        failed => failed,
    };
    let own = loan.own_result();
    Loan::put_back(loan, py);
    failed.map_or(Ok((made.results, own)), Err)
}

/// Make the batch of a request over this thread's spare loan.
fn lend<'py>(py: Python<'py>, request: &Request<'_, 'py>) -> Result<(Arc<Loan>, Made<'py>)> {
    let mut loan = Loan::spare();
    let made = match Arc::get_mut(&mut loan) {
        Some(own) => request.make(py, own),
        None => Err(busy("the loan is in use")),
    };
    match made {
        Ok(made) => Ok((loan, made)),
        Err(refused) => {
            Loan::put_back(loan, py);
            Err(refused)
        }
    }
}

/// The exception for the first operation that failed, if one did.
pub(super) fn failure(
    py: Python<'_>,
    loan: &Loan,
    shape: Shape,
    files: &[BlockFile],
) -> Option<Error> {
    let (index, result) = match shape {
        Shape::Own => Some((0, loan.own_result())).filter(|(_, result)| *result < 0),
        _ => first_failure(py, loan),
    }?;
    let errno = i32::try_from(-result).unwrap_or(Errno::IO.raw_os_error());
    let said = describe_failure(py, asked(loan, shape, index), files, errno);
    let message = format!("{said} (operation {index})");
    Some(error::block(message, index, errno))
}

/// The first result below zero; those of a long list are looked at without the GIL.
fn first_failure(py: Python<'_>, loan: &Loan) -> Option<(usize, i64)> {
    if loan.bytes(Role::Results) > ATTACHED_MAX * size_of::<i64>() {
        py.detach(|| loan.first_failure())
    } else {
        loan.first_failure()
    }
}

/// Which file, what of it, why, and what to do.
fn describe_failure(
    py: Python<'_>,
    operation: Option<Operation>,
    files: &[BlockFile],
    errno: i32,
) -> String {
    let path = operation
        .and_then(|operation| files.get(usize::from(operation.file)))
        .map_or_else(
            || "the file".into(),
            |file| file.path().display().to_string(),
        );
    let what = operation.map_or_else(|| "operation".into(), |operation| describe(&operation));
    let text = error::strerror(py, errno).unwrap_or_else(|_| format!("error {errno}"));
    let advice = advice(errno, operation);
    format!("{path}: {what} failed: {text}{advice}")
}

fn asked(loan: &Loan, shape: Shape, index: usize) -> Option<Operation> {
    match shape {
        Shape::Own => Some(loan.own_operation()),
        Shape::Listed => loan.get(Role::Items, index),
        Shape::Blocks { kind, block_bytes } => Some(Operation {
            offset: loan.get(Role::Items, index)?,
            length: loan.get(Role::Lengths, index).unwrap_or(block_bytes),
            kind: kind as u8,
            ..Operation::default()
        }),
    }
}

fn describe(operation: &Operation) -> String {
    let Operation { offset, length, .. } = operation;
    match Kind::of(operation.kind) {
        Some(Kind::Read) => format!("read of {length} bytes at offset {offset}"),
        Some(Kind::Write) => format!("write of {length} bytes at offset {offset}"),
        Some(Kind::Fsync) => "fsync".into(),
        Some(Kind::Fdatasync) => "fdatasync".into(),
        None => "operation".into(),
    }
}

/// What an errno means here, where its own words do not say so.
fn advice(errno: i32, operation: Option<Operation>) -> &'static str {
    let moves = operation
        .and_then(|operation| Kind::of(operation.kind))
        .is_none_or(Kind::moves_bytes);
    match Errno::from_raw_os_error(errno) {
        Errno::NODATA => "; the file ends before it, and exact=True asks for all of it",
        Errno::CANCELED if moves => "; its batch was cancelled, or its queue closed",
        Errno::CANCELED => "; a write before it failed or was short, or its batch was cancelled",
        _ => "",
    }
}

/// Have the arena whose memory `memory` shows count the block as in quarantine until the loan ends.
pub(super) fn quarantine(loan: &Loan, memory: &Bound<'_, PyAny>) {
    if let Some(lease) = block_under(memory).and_then(|buffer| buffer.get().lease()) {
        loan.quarantine(&lease);
    }
}
