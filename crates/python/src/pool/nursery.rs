//! The template's end of its keeper.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_pool::template;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::error;
use crate::sys::HOOKS;
use crate::sys::descriptor::take;
use crate::transport::Connection;

/// A template's end of its keeper. A template has one thread, so the lock is never waited for.
#[pyclass(frozen, module = "forebay._core")]
pub struct Nursery(Mutex<template::KeeperLink>);

impl Nursery {
    fn core(&self) -> MutexGuard<'_, template::KeeperLink> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Nursery {
    #[new]
    fn new(socket: RawFd) -> PyResult<Self> {
        Ok(Self(Mutex::new(template::KeeperLink::new(take(socket)?))))
    }

    /// What to import, and the first service's directory; None at the end.
    fn setup<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyBytes>, OsString)>> {
        let told = self.core().setup().map_err(error::pool)?;
        Ok(told.map(|told| {
            (
                PyBytes::new(py, &told.setup),
                told.directory.into_os_string(),
            )
        }))
    }

    fn ready(&self) -> PyResult<()> {
        self.core().ready().map_err(error::pool)
    }

    fn unfit(&self, reason: Vec<u8>) -> PyResult<()> {
        self.core().unfit(reason).map_err(error::pool)
    }

    /// In a service: fork the copy that the keeper orders. In the copy its directory, and `connection` is its own.
    fn branch(&self, py: Python<'_>, connection: &Connection) -> PyResult<Option<OsString>> {
        let copy = self.core().branch(HOOKS).map_err(error::pool)?;
        let Some((socket, directory)) = copy else {
            return Ok(None);
        };
        connection.adopt(py, socket)?;
        Ok(Some(directory.into_os_string()))
    }

    /// In a service: take an order for a copy and do not make it.
    fn refuse(&self) -> PyResult<()> {
        self.core().refuse().map_err(error::pool)
    }

    /// In a service: say that it has something to do before it ends.
    fn wants_farewell(&self) -> PyResult<()> {
        self.core().report_exit_hooks().map_err(error::pool)
    }

    /// In a service: wait without the GIL until the keeper has let go of it.
    fn await_end(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            match py.detach(|| self.core().await_end()) {
                Err(forebay_pool::Error::Interrupted) => py.check_signals()?,
                done => return done.map_err(error::pool),
            }
        }
    }
}

/// Where the calls of a service come from that is not born yet.
///
/// A template runs the loop that serves calls, and waits in it for the first one. That wait is where
/// it forks: each child goes on from there with a socket of its own and everything else made.
#[pyclass(frozen, module = "forebay._core")]
pub struct Cradle {
    nursery: Py<Nursery>,
    connection: Py<Connection>,
    /// Called in the template after each fork, with the directory of the next service.
    prepare: Py<PyAny>,
    born: AtomicBool,
}

#[pymethods]
impl Cradle {
    #[new]
    fn new(nursery: Py<Nursery>, connection: Py<Connection>, prepare: Py<PyAny>) -> Self {
        let born = AtomicBool::new(false);
        Self {
            nursery,
            connection,
            prepare,
            born,
        }
    }

    /// Whether this is a service, and not the template.
    #[getter]
    fn born(&self) -> bool {
        self.born.load(Ordering::Relaxed)
    }

    /// The next call of the service; in the template None, at the end of its keeper.
    fn next_call<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        while !self.born() {
            let forked = self.nursery.get().core().fork(HOOKS).map_err(error::pool)?;
            match forked {
                None => return Ok(None),
                Some(template::ForkSide::Template(next)) => {
                    self.prepare.call1(py, (next.into_os_string(),))?;
                }
                Some(template::ForkSide::Service(socket)) => {
                    self.born.store(true, Ordering::Relaxed);
                    self.connection.get().adopt(py, socket)?;
                }
                Some(template::ForkSide::Spare) => {
                    self.born.store(true, Ordering::Relaxed);
                    let served = self.nursery.get().core().serve().map_err(error::pool)?;
                    let Some(socket) = served else {
                        self.born.store(false, Ordering::Relaxed);
                        return Ok(None); // it was not needed
                    };
                    self.connection.get().adopt(py, socket)?;
                }
            }
        }
        self.connection.get().next_call(py, None)
    }
}
