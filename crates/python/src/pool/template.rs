//! A template: its link to the keeper, and the loop in which it forks services.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_pool::template;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::error::Result;
use crate::sys::HOOKS;
use crate::sys::descriptor::take;
use crate::transport::Connection;

/// A template's end of its keeper. A template has one thread, so the lock is never waited for.
#[pyclass(frozen, module = "forebay._core")]
pub struct KeeperLink(Mutex<template::KeeperLink>);

impl KeeperLink {
    fn core(&self) -> MutexGuard<'_, template::KeeperLink> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl KeeperLink {
    #[new]
    fn new(socket: RawFd) -> Result<Self> {
        Ok(Self(Mutex::new(template::KeeperLink::new(take(socket)?))))
    }

    /// What to import, and the first service's directory; None at the end.
    fn setup<'py>(&self, py: Python<'py>) -> Result<Option<(Bound<'py, PyBytes>, OsString)>> {
        let setup = self.core().setup()?;
        Ok(setup.map(|setup| {
            (
                PyBytes::new(py, &setup.setup),
                setup.directory.into_os_string(),
            )
        }))
    }

    fn ready(&self) -> Result<()> {
        Ok(self.core().ready()?)
    }

    fn unfit(&self, reason: Vec<u8>) -> Result<()> {
        Ok(self.core().unfit(reason)?)
    }

    /// In a service: fork the copy that the keeper orders. In the copy its directory, and `connection` is its own.
    fn branch(&self, connection: &Connection) -> Result<Option<OsString>> {
        let copy = self.core().branch(HOOKS)?;
        let Some((socket, directory)) = copy else {
            return Ok(None);
        };
        connection.adopt(socket)?;
        Ok(Some(directory.into_os_string()))
    }

    /// In a service: take an order for a copy and do not make it.
    fn refuse(&self) -> Result<()> {
        Ok(self.core().refuse()?)
    }

    /// In a service: report that it has exit hooks to run before it ends.
    fn report_exit_hooks(&self) -> Result<()> {
        Ok(self.core().report_exit_hooks()?)
    }

    /// In a service: wait without the GIL until the keeper has let go of it.
    fn await_end(&self, py: Python<'_>) -> Result<()> {
        loop {
            match py.detach(|| self.core().await_end()) {
                Err(forebay_pool::Error::Interrupted) => py.check_signals()?,
                done => return Ok(done?),
            }
        }
    }
}

/// Where a service that is still to be forked gets its calls from.
///
/// A template runs the loop that serves calls, and waits in it for the first one. That wait is where
/// it forks: each child goes on from there with a socket of its own and everything else made.
#[pyclass(frozen, module = "forebay._core")]
pub struct PreforkLoop {
    keeper: Py<KeeperLink>,
    connection: Py<Connection>,
    /// Called in the template after each fork, with the directory of the next service.
    prepare: Py<PyAny>,
    is_service: AtomicBool,
}

#[pymethods]
impl PreforkLoop {
    #[new]
    fn new(keeper: Py<KeeperLink>, connection: Py<Connection>, prepare: Py<PyAny>) -> Self {
        let is_service = AtomicBool::new(false);
        Self {
            keeper,
            connection,
            prepare,
            is_service,
        }
    }

    /// Whether this is a service, and not the template.
    #[getter]
    fn is_service(&self) -> bool {
        self.is_service.load(Ordering::Relaxed)
    }

    /// The next call of the service; in the template None, at the end of its keeper.
    fn next_call<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyTuple>>> {
        while !self.is_service() {
            let forked = self.keeper.get().core().fork(HOOKS)?;
            match forked {
                None => return Ok(None),
                Some(template::ForkSide::Template(next)) => {
                    self.prepare.call1(py, (next.into_os_string(),))?;
                }
                Some(template::ForkSide::Service(socket)) => {
                    self.is_service.store(true, Ordering::Relaxed);
                    self.connection.get().adopt(socket)?;
                }
                Some(template::ForkSide::Spare) => {
                    self.is_service.store(true, Ordering::Relaxed);
                    let served = self.keeper.get().core().serve()?;
                    let Some(socket) = served else {
                        self.is_service.store(false, Ordering::Relaxed);
                        return Ok(None); // it was not needed
                    };
                    self.connection.get().adopt(socket)?;
                }
            }
        }
        self.connection.get().next_call(py, None)
    }
}
