//! Errors of the core as exceptions of `forebay.errors`, by what the caller can do.
//!
//! Neither the core's errors nor `PyErr` are of this crate, so that no `From` may lead from one to the other. [`Error`]
//! stands between them: a function of the binding returns [`Result`], and `?` makes the exception.
//! An error that needs what only the call knows gets it from [`Within`] or [`At`].
use std::convert::Infallible;

use forebay_base::Error as Wake;
use forebay_blockio::Error as Blockio;
use forebay_executor::error::{Error as Executor, Refusal};
use forebay_executor::store::StoreError as Store;
use forebay_memory::Error as Memory;
use forebay_pool::Error as Pool;
use forebay_tensor::stream::StreamError as Stream;
use forebay_tensor::{Class, Error as Tensor};
use forebay_transport::{Delivered, Error as Transport};
use pyo3::exceptions::{PyInterruptedError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use pyo3::{CastError, CastIntoError};
use rustix::io::Errno;

/// An exception, made and not yet raised.
#[derive(Debug)]
pub(crate) struct Error(PyErr);

/// What a function of the binding returns.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        error.0
    }
}

impl From<CastError<'_, '_>> for Error {
    fn from(error: CastError<'_, '_>) -> Self {
        Self(error.into())
    }
}

impl From<CastIntoError<'_>> for Error {
    fn from(error: CastIntoError<'_>) -> Self {
        Self(error.into())
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Not for a failed operation of a batch, see [`block`].
impl From<Blockio> for Error {
    fn from(error: Blockio) -> Self {
        let message = error.to_string();
        match error {
            Blockio::Config { .. } | Blockio::Operation { .. } | Blockio::Unavailable { .. } => {
                config(message)
            }
            Blockio::Open { source, .. } => os(&source, message),
            Blockio::Closed => closed(message),
            Blockio::Forked { .. } => stale(message),
            Blockio::Thread { .. } => busy(message),
            Blockio::Quarantine { value, limit } => above(message, limit, value),
            Blockio::System { source, .. } | Blockio::Wake(Wake::Descriptor { source }) => {
                broken_by(source.raw_os_error().unwrap_or(0), message)
            }
            Blockio::Memory(error) => error.into(),
            // `Interrupted`, whose exception is the signal handler's own, and what a later version of the crate may add.
            _ => internal(&message),
        }
    }
}

impl From<Executor> for Error {
    fn from(error: Executor) -> Self {
        let message = error.to_string();
        match error {
            Executor::Refused(_) | Executor::Config(_) => config(message),
            Executor::Store(_) => broken(message),
            Executor::Limit { maximum, value, .. } => above(message, maximum, value),
            Executor::Closed => closed(message),
            Executor::Transport(error) => error.into(),
            Executor::System { source, .. } => os(&source, message),
            // `Malformed`, and what a later version of the crate may add.
            _ => internal(&message),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Executor::from(refusal).into()
    }
}

impl From<Memory> for Error {
    fn from(error: Memory) -> Self {
        let message = error.to_string();
        match error {
            Memory::Config { .. }
            | Memory::Name { .. }
            | Memory::Foreign { .. }
            | Memory::Unsafe { .. } => config(message),
            Memory::Full { limit, asked, .. } => above(message, limit, asked),
            Memory::Quarantine {
                limit, quarantined, ..
            } => above(message, limit, quarantined),
            Memory::Registrars { limit, .. } => above(message, limit, limit + 1),
            Memory::Stale { .. } | Memory::Forked { .. } => stale(message),
            Memory::Closed { .. } => closed(message),
            Memory::System { .. } | Memory::Backing { .. } => broken(message),
            // `Poisoned`, `Nested` (no registrar is Python), and what a later version of the crate may add.
            _ => internal(&message),
        }
    }
}

impl From<Pool> for Error {
    fn from(error: Pool) -> Self {
        let error = error.explained();
        let message = error.to_string();
        match error {
            Pool::Closed => closed(message),
            Pool::Forked { .. }
            | Pool::Pattern { .. }
            | Pool::Unenforceable { .. }
            | Pool::Address(_) => config(message),
            Pool::Limit { maximum, value, .. } => above(message, maximum, value),
            Pool::Descriptors { maximum, .. } => above(message, maximum, maximum + 1),
            Pool::Stale { .. } => stale(message),
            Pool::KeeperLost | Pool::Gone(_) => broken(message),
            Pool::System { source, .. } => os(&source, message),
            // `Malformed` and `Interrupted`, which reach Python by a fault of ours alone.
            _ => internal(&message),
        }
    }
}

/// Of the pool's queue of wake-ups.
impl From<Wake> for Error {
    fn from(error: Wake) -> Self {
        Pool::from(error).into()
    }
}

impl From<Store> for Error {
    fn from(error: Store) -> Self {
        let message = error.to_string();
        match error {
            Store::InUse { .. } | Store::Newer { .. } | Store::Network { .. } => config(message),
            Store::File { source, .. } => broken_by(source.raw_os_error().unwrap_or(0), message),
            // `Damaged`, `Database`, `Outrun` and `Start`: the disk or the system failed, and nothing was changed.
            _ => broken(message),
        }
    }
}

impl From<Stream> for Error {
    fn from(error: Stream) -> Self {
        let message = error.to_string();
        match error {
            Stream::Tensor { peer, error } => tensor(&peer, &error),
            Stream::Closed { .. } | Stream::Canceled { .. } => closed(message),
            Stream::Deadline { allowed, .. } => late(message, Some(allowed.as_secs_f64())),
            Stream::Forked { .. } => stale(message),
            Stream::System { errno, .. } => broken_by(errno.raw_os_error(), message),
            Stream::Transport(error) => error.into(),
            // `Interrupted`, whose exception is the signal handler's own, and what a later version of the crate may add.
            _ => internal(&message),
        }
    }
}

impl From<Transport> for Error {
    fn from(error: Transport) -> Self {
        transport(&error, None)
    }
}

/// Of a system call without words of our own: the builtin `OSError`, in the words of `os.strerror`.
impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        let number = errno.raw_os_error();
        Self(match Python::attach(|py| strerror(py, number)) {
            Ok(text) => PyOSError::new_err((number, text)),
            Err(error) => error,
        })
    }
}

/// Names in an error of tensors the peer where, or because of which, it arose.
pub(crate) trait At<T> {
    fn at(self, peer: &str) -> Result<T>;
}

impl<T> At<T> for Result<T, Tensor> {
    fn at(self, peer: &str) -> Result<T> {
        self.map_err(|error| tensor(peer, &error))
    }
}

/// Says in a `DeadlineError` how many seconds the caller had allowed.
pub(crate) trait Within<T> {
    fn within(self, timeout: Option<f64>) -> Result<T>;
}

impl<T> Within<T> for Result<T, Transport> {
    fn within(self, timeout: Option<f64>) -> Result<T> {
        self.map_err(|error| transport(&error, timeout))
    }
}

/// The exception for an error of the transport, where the caller had allowed `timeout`.
pub(crate) fn transport(error: &Transport, timeout: Option<f64>) -> Error {
    let message = error.to_string();
    match error {
        Transport::Closed { .. } | Transport::Forked { .. } => closed(message),
        Transport::Stale { .. } => stale(message),
        Transport::Busy { .. } => busy(message),
        Transport::Config(_) => config(message),
        Transport::Broken { delivered, .. } => undelivered(message, *delivered),
        Transport::Protocol { peer, offset, .. } => protocol(message, peer, *offset),
        Transport::Limit { limit, value, .. } => above(message, *limit, *value),
        Transport::NoCredit { .. } => above(message, 0, 1),
        Transport::Credit { limit, value, .. } => above(message, *limit, *value),
        Transport::Deadline { .. } => {
            let waited = timeout.map_or_else(String::new, |s| format!(" (waited {s} s)"));
            late(message + &waited, timeout)
        }
        Transport::System { errno, .. } => broken_by(errno.raw_os_error(), message),
        Transport::Memory(_) => broken(message),
        Transport::Interrupted => Error(PyInterruptedError::new_err(message)),
        // The enum may grow; an error without a class of its own is a fault of this file.
        _ => internal(&message),
    }
}

fn tensor(peer: &str, error: &Tensor) -> Error {
    let message = format!("{peer}: {error}");
    match (error.class(), error) {
        (Class::Config, _) => config(message),
        (Class::Limit, Tensor::Limit { maximum, value, .. }) => above(message, *maximum, *value),
        (Class::Limit, _) => plain("LimitError", message),
        (Class::Stale, _) => stale(message),
        (Class::OutOfRange, _) => out_of_range(message),
        (Class::Broken, _) => plain("BrokenError", message),
        (Class::Protocol, Tensor::Protocol { offset, .. }) => protocol(message, peer, *offset),
        (Class::Timeout, _) => plain("DeadlineError", message),
        // The enum may grow; an error without a class of its own is a fault of this file.
        _ => internal(&message),
    }
}

/// `BlockError`: operation `index` of a batch failed.
pub(crate) fn block(message: String, index: usize, errno: i32) -> Error {
    raise("BlockError", message, |py| {
        let attributes = [("index", index)].into_py_dict(py)?;
        attributes.set_item("errno", errno)?;
        Ok(attributes)
    })
}

/// `ConfigError`: wrong before anything happened.
pub(crate) fn config(message: impl Into<String>) -> Error {
    plain("ConfigError", message.into())
}

/// `OutOfRangeError`: rows that there are not.
pub(crate) fn out_of_range(message: String) -> Error {
    plain("OutOfRangeError", message)
}

/// `ClosedError`: its owner closed it.
pub(crate) fn closed(message: impl Into<String>) -> Error {
    plain("ClosedError", message.into())
}

/// `StaleError`: the handle is from before a free.
pub(crate) fn stale(message: impl Into<String>) -> Error {
    plain("StaleError", message.into())
}

/// `BusyError`: in use elsewhere.
pub(crate) fn busy(message: impl Into<String>) -> Error {
    plain("BusyError", message.into())
}

/// `BrokenError`: the system failed, and nothing was done.
pub(crate) fn broken(message: String) -> Error {
    undelivered(message, Delivered::No)
}

/// The same because of a system call, whose `OSError` is the cause.
fn broken_by(errno: i32, message: String) -> Error {
    let cause = PyOSError::new_err((errno, message.clone()));
    let Error(broken) = broken(message);
    Python::attach(|py| broken.set_cause(py, Some(cause)));
    Error(broken)
}

fn undelivered(message: String, delivered: Delivered) -> Error {
    let word = match delivered {
        Delivered::No => "no",
        Delivered::Maybe => "maybe",
    };
    raise("BrokenError", message, |py| {
        [("delivered", word)].into_py_dict(py)
    })
}

/// `LimitError`: `value` was asked for, and the limit is `limit`.
fn above<N>(message: String, limit: N, value: N) -> Error
where
    N: for<'py> IntoPyObject<'py>,
{
    raise("LimitError", message, |py| {
        [("limit", limit), ("value", value)].into_py_dict(py)
    })
}

/// `DeadlineError` after `timeout` seconds.
fn late(message: String, timeout: Option<f64>) -> Error {
    raise("DeadlineError", message, |py| {
        [("timeout", timeout)].into_py_dict(py)
    })
}

/// `ProtocolError`: what `peer` sent at `offset`.
fn protocol(message: String, peer: &str, offset: u64) -> Error {
    raise("ProtocolError", message, |py| {
        let attributes = [("peer", peer)].into_py_dict(py)?;
        attributes.set_item("offset", offset)?;
        Ok(attributes)
    })
}

pub(crate) fn internal(message: &str) -> Error {
    let advice = "this is a fault of Forebay, please report it";
    plain("InternalError", format!("{message}; {advice}"))
}

/// The builtin `OSError` with a message of ours.
fn os(source: &std::io::Error, message: String) -> Error {
    Error(PyOSError::new_err((
        source.raw_os_error().unwrap_or(0),
        message,
    )))
}

/// What `os.strerror` says.
pub(crate) fn strerror(py: Python<'_>, number: i32) -> PyResult<String> {
    py.import("os")?
        .call_method1("strerror", (number,))?
        .extract()
}

fn plain(class: &str, message: String) -> Error {
    raise(class, message, |py| Ok(PyDict::new(py)))
}

/// Make an exception with attributes; what fails on the way is the exception instead.
fn raise(
    class: &str,
    message: String,
    attributes: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyDict>>,
) -> Error {
    Python::attach(|py| {
        let made = py
            .import("forebay.errors")
            .and_then(|errors| errors.getattr(class))
            .and_then(|class| class.call((message,), Some(&attributes(py)?)));
        Error(made.map_or_else(|error| error, PyErr::from_value))
    })
}
