//! Errors of the core as exceptions of `forebay.errors`: one function per crate, by what the caller can do.
#![allow(clippy::needless_pass_by_value)] // errors come by value, so that `map_err` takes these functions as they are
use forebay_base::Error as Wake;
use forebay_blockio::Error as Blockio;
use forebay_executor::error::Error as Executor;
use forebay_executor::store::StoreError as Store;
use forebay_memory::Error as Memory;
use forebay_pool::Error as Pool;
use forebay_tensor::stream::StreamError as Stream;
use forebay_tensor::{Class, Error as Tensor};
use forebay_transport::{Delivered, Error as Transport};
use pyo3::exceptions::{PyInterruptedError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};
use rustix::io::Errno;

/// The exception for an error of block I/O; a failed operation is none, see [`block`].
pub(crate) fn blockio(error: Blockio) -> PyErr {
    let message = error.to_string();
    match error {
        Blockio::Config { .. } | Blockio::Operation { .. } | Blockio::Unavailable { .. } => {
            config(message)
        }
        Blockio::Open { source, .. } => {
            PyOSError::new_err((source.raw_os_error().unwrap_or(0), message))
        }
        Blockio::Closed => plain("ClosedError", message),
        Blockio::Forked { .. } => stale(message),
        Blockio::Thread { .. } => busy(message),
        Blockio::Quarantine { value, limit } => raise("LimitError", message, |py| {
            [("limit", limit), ("value", value)].into_py_dict(py)
        }),
        Blockio::System { source, .. } | Blockio::Wake(Wake::Descriptor { source }) => {
            let cause = PyOSError::new_err((source.raw_os_error().unwrap_or(0), message.clone()));
            let broken = broken(message);
            Python::attach(|py| broken.set_cause(py, Some(cause)));
            broken
        }
        Blockio::Memory(error) => memory(error),
        // `Interrupted`, whose exception is the signal handler's own, and what a later version of the crate may add.
        _ => internal(message),
    }
}

/// `BlockError`: operation `index` of a batch failed.
pub(crate) fn block(message: String, index: usize, errno: i32) -> PyErr {
    raise("BlockError", message, |py| {
        let attributes = [("index", index)].into_py_dict(py)?;
        attributes.set_item("errno", errno)?;
        Ok(attributes)
    })
}

/// The exception for an error of the executor.
pub(crate) fn executor(error: Executor) -> PyErr {
    let message = error.to_string();
    match error {
        Executor::Refused(_) | Executor::Config(_) => config(message),
        Executor::Store(_) => broken(message),
        Executor::Limit { maximum, value, .. } => raise("LimitError", message, |py| {
            [("limit", maximum), ("value", value)].into_py_dict(py)
        }),
        Executor::Closed => plain("ClosedError", message),
        Executor::Transport(error) => Python::attach(|py| transport_error(py, &error, None)),
        Executor::System { source, .. } => {
            PyOSError::new_err((source.raw_os_error().unwrap_or(0), message))
        }
        // `Malformed`, and what a later version of the crate may add.
        _ => internal(message),
    }
}

/// The exception for an error of the memory crate.
pub(crate) fn memory(error: Memory) -> PyErr {
    let message = error.to_string();
    match error {
        Memory::Config { .. }
        | Memory::Name { .. }
        | Memory::Foreign { .. }
        | Memory::Unsafe { .. } => config(message),
        Memory::Full { limit, asked, .. } => raise("LimitError", message, |py| {
            [("limit", limit), ("value", asked)].into_py_dict(py)
        }),
        Memory::Quarantine {
            limit, quarantined, ..
        } => raise("LimitError", message, |py| {
            [("limit", limit), ("value", quarantined)].into_py_dict(py)
        }),
        Memory::Registrars { limit, .. } => raise("LimitError", message, |py| {
            [("limit", limit), ("value", limit + 1)].into_py_dict(py)
        }),
        Memory::Stale { .. } | Memory::Forked { .. } => stale(message),
        Memory::Closed { .. } => plain("ClosedError", message),
        Memory::System { .. } | Memory::Backing { .. } => raise("BrokenError", message, |py| {
            [("delivered", "no")].into_py_dict(py)
        }),
        // `Poisoned`, `Nested` (no registrar is Python), and what a later version of the crate may add.
        _ => internal(message),
    }
}

/// The exception for an error of the pool.
pub(crate) fn pool(error: Pool) -> PyErr {
    let error = error.explained();
    let message = error.to_string();
    match error {
        Pool::Closed => plain("ClosedError", message),
        Pool::Forked { .. }
        | Pool::Pattern { .. }
        | Pool::Unenforceable { .. }
        | Pool::Address(_) => config(message),
        Pool::Limit { maximum, value, .. } => raise("LimitError", message, |py| {
            [("limit", maximum), ("value", value)].into_py_dict(py)
        }),
        Pool::Descriptors { maximum, .. } => raise("LimitError", message, |py| {
            [("limit", maximum), ("value", maximum + 1)].into_py_dict(py)
        }),
        Pool::Stale { .. } => stale(message),
        Pool::KeeperLost | Pool::Gone(_) => raise("BrokenError", message, |py| {
            [("delivered", "no")].into_py_dict(py)
        }),
        Pool::System { source, .. } => {
            PyOSError::new_err((source.raw_os_error().unwrap_or(0), message))
        }
        // `Malformed` and `Interrupted`, which reach Python by a fault of ours alone.
        _ => internal(message),
    }
}

/// The exception for an error of the executor's store.
pub(crate) fn store(error: Store) -> PyErr {
    let message = error.to_string();
    match error {
        Store::InUse { .. } | Store::Newer { .. } | Store::Network { .. } => config(message),
        // `Damaged`, `Database`, `File` and `Start`: the disk or the system failed, and nothing was changed.
        _ => raise("BrokenError", message, |py| {
            [("delivered", "no")].into_py_dict(py)
        }),
    }
}

/// The exception for an error of a link or a server of tensors.
pub(crate) fn stream(error: Stream) -> PyErr {
    let message = error.to_string();
    match error {
        Stream::Tensor { peer, error } => tensor(&peer, &error),
        Stream::Closed { .. } | Stream::Canceled { .. } => closed(message),
        Stream::Deadline { allowed, .. } => raise("DeadlineError", message, |py| {
            [("timeout", allowed.as_secs_f64())].into_py_dict(py)
        }),
        Stream::Forked { .. } => stale(message),
        Stream::System { errno, .. } => {
            let cause = PyOSError::new_err((errno.raw_os_error(), message.clone()));
            let broken = broken(message);
            Python::attach(|py| broken.set_cause(py, Some(cause)));
            broken
        }
        Stream::Transport(error) => Python::attach(|py| transport_error(py, &error, None)),
        // `Interrupted`, whose exception is the signal handler's own, and what a later version of the crate may add.
        _ => internal(message),
    }
}

/// The exception for an error of tensors, at or about `peer`.
pub(crate) fn tensor(peer: &str, error: &Tensor) -> PyErr {
    let message = format!("{peer}: {error}");
    match (error.class(), error) {
        (Class::Config, _) => config(message),
        (Class::Limit, Tensor::Limit { maximum, value, .. }) => {
            raise("LimitError", message, |py| {
                [("limit", maximum), ("value", value)].into_py_dict(py)
            })
        }
        (Class::Limit, _) => plain("LimitError", message),
        (Class::Stale, _) => stale(message),
        (Class::OutOfRange, _) => plain("OutOfRangeError", message),
        (Class::Broken, _) => plain("BrokenError", message),
        (Class::Protocol, Tensor::Protocol { offset, .. }) => {
            raise("ProtocolError", message, |py| {
                let attributes = [("peer", peer)].into_py_dict(py)?;
                attributes.set_item("offset", offset)?;
                Ok(attributes)
            })
        }
        (Class::Timeout, _) => plain("DeadlineError", message),
        // The enum may grow; an error without a class of its own is a fault of this file.
        _ => internal(message),
    }
}

fn internal(message: String) -> PyErr {
    plain(
        "InternalError",
        format!("{message}; this is a fault of Forebay, please report it"),
    )
}

/// Turn an error of the transport into its exception; `timeout` is what the caller allowed.
pub(crate) fn transport_error(py: Python<'_>, error: &Transport, timeout: Option<f64>) -> PyErr {
    let message = error.to_string();
    match error {
        Transport::Closed { .. } | Transport::Forked { .. } => plain("ClosedError", message),
        Transport::Stale { .. } => stale(message),
        Transport::Busy { .. } => busy(message),
        Transport::Config(_) => config(message),
        Transport::Broken { delivered, .. } => raise("BrokenError", message, |py| {
            [("delivered", word(*delivered))].into_py_dict(py)
        }),
        Transport::Protocol { peer, offset, .. } => raise("ProtocolError", message, |py| {
            let attributes = [("peer", peer)].into_py_dict(py)?;
            attributes.set_item("offset", offset)?;
            Ok(attributes)
        }),
        Transport::Limit { limit, value, .. } => raise("LimitError", message, |py| {
            [("limit", limit), ("value", value)].into_py_dict(py)
        }),
        Transport::NoCredit { .. } => raise("LimitError", message, |py| {
            [("limit", 0), ("value", 1)].into_py_dict(py)
        }),
        Transport::Credit { limit, value, .. } => raise("LimitError", message, |py| {
            [("limit", limit), ("value", value)].into_py_dict(py)
        }),
        Transport::Deadline { .. } => {
            let waited = timeout.map_or_else(String::new, |s| format!(" (waited {s} s)"));
            raise("DeadlineError", format!("{message}{waited}"), |py| {
                [("timeout", timeout)].into_py_dict(py)
            })
        }
        Transport::System { errno, .. } => {
            let cause = PyOSError::new_err((errno.raw_os_error(), message.clone()));
            let broken = raise("BrokenError", message, |py| {
                [("delivered", word(Delivered::No))].into_py_dict(py)
            });
            broken.set_cause(py, Some(cause));
            broken
        }
        Transport::Memory(_) => raise("BrokenError", message, |py| {
            [("delivered", word(Delivered::No))].into_py_dict(py)
        }),
        Transport::Interrupted => PyInterruptedError::new_err(message),
        // The enum may grow; an error without a class of its own is a fault of this file.
        _ => internal(message),
    }
}

fn word(delivered: Delivered) -> &'static str {
    match delivered {
        Delivered::No => "no",
        Delivered::Maybe => "maybe",
    }
}

/// `ConfigError`: wrong before anything happened.
pub(crate) fn config(message: String) -> PyErr {
    plain("ConfigError", message)
}

/// `OutOfRangeError`: rows that there are not.
pub(crate) fn out_of_range(message: String) -> PyErr {
    plain("OutOfRangeError", message)
}

/// `ClosedError`: its owner closed it.
pub(crate) fn closed(message: String) -> PyErr {
    plain("ClosedError", message)
}

/// The builtin `OSError` of a number, in the words of `os.strerror`.
pub(crate) fn system(py: Python<'_>, errno: Errno) -> PyErr {
    let number = errno.raw_os_error();
    match strerror(py, number) {
        Ok(text) => PyOSError::new_err((number, text)),
        Err(error) => error,
    }
}

/// What `os.strerror` says.
pub(crate) fn strerror(py: Python<'_>, number: i32) -> PyResult<String> {
    py.import("os")?
        .call_method1("strerror", (number,))?
        .extract()
}

/// `BrokenError`: the system failed, and nothing was done.
pub(crate) fn broken(message: String) -> PyErr {
    raise("BrokenError", message, |py| {
        [("delivered", "no")].into_py_dict(py)
    })
}

/// `StaleError`: the handle is from before a free.
pub(crate) fn stale(message: String) -> PyErr {
    plain("StaleError", message)
}

/// `BusyError`: in use elsewhere.
pub(crate) fn busy(message: String) -> PyErr {
    plain("BusyError", message)
}

fn plain(class: &str, message: String) -> PyErr {
    raise(class, message, |py| Ok(PyDict::new(py)))
}

/// Make an exception with attributes; what fails on the way is the exception instead.
fn raise(
    class: &str,
    message: String,
    attributes: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyDict>>,
) -> PyErr {
    Python::attach(|py| {
        let made = py
            .import("forebay.errors")
            .and_then(|errors| errors.getattr(class))
            .and_then(|class| class.call((message,), Some(&attributes(py)?)));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}
