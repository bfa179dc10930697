//! The pool's client, keeper and template for Python.

mod shared;

use std::ffi::OsString;
use std::os::fd::{IntoRawFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_pool::client::{Answer, Client, Wake};
use forebay_pool::death::Cause;
use forebay_pool::keeper::{self, Inherited};
use forebay_pool::template;
use forebay_pool::wire::{Deadlines, Handle, Launch};
use forebay_wake::Queue;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::error;
use crate::sys::HOOKS;
use crate::sys::descriptor::take;
use crate::transport::Connection;

/// Wake-ups that may wait for a caller; a caller has few tickets at once, an event loop many.
const WAKES_MAX: usize = 1 << 20;

/// A lease of a service: its slot and generation.
#[pyclass(frozen, module = "forebay._core", name = "Handle")]
#[derive(Clone, Copy)]
pub struct PyHandle(Handle);

#[pymethods]
impl PyHandle {
    #[getter]
    fn slot(&self) -> u32 {
        self.0.slot
    }

    #[getter]
    fn generation(&self) -> u64 {
        self.0.generation
    }
}

/// Where a caller or a loop is told that its ticket was granted.
#[pyclass(frozen, module = "forebay._core")]
pub struct WakeQueue(Arc<Queue<Wake>>);

#[pymethods]
impl WakeQueue {
    #[new]
    fn new() -> PyResult<Self> {
        Queue::new(WAKES_MAX)
            .map(|queue| Self(Arc::new(queue)))
            .map_err(error::wake)
    }

    fn fileno(&self) -> RawFd {
        self.0.fileno()
    }

    fn drain(&self) -> PyResult<Vec<Wake>> {
        let mut batch = Vec::new();
        self.0.drain(&mut batch).map_err(error::wake)?;
        Ok(batch)
    }
}

/// An answer: (0, handle, settled), (1, handle, False) to start one, or (2, ticket, grace in ms) to wait.
type PyAnswer = (u8, Option<PyHandle>, u64, u64);

fn answer(answer: Answer) -> PyAnswer {
    match answer {
        Answer::Lent { handle, settled } => (0, Some(PyHandle(handle)), u64::from(settled), 0),
        Answer::Start { handle } => (1, Some(PyHandle(handle)), 0, 0),
        Answer::Wait { ticket, grace_ms } => (2, None, ticket, grace_ms),
    }
}

/// The client's side of a pool.
#[pyclass(frozen, module = "forebay._core", name = "Pool")]
pub struct PyPool(Client);

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Cause, process id, exit code or signal, text.
type PyDeath<'py> = (&'static str, i32, i32, Bound<'py, PyBytes>);

#[pymethods]
impl PyPool {
    #[new]
    fn new(max_size: u32) -> PyResult<Self> {
        Client::new(max_size).map(Self).map_err(error::pool)
    }

    fn watch(&self) -> PyResult<RawFd> {
        let ready = self.0.watch().map_err(error::pool)?;
        Ok(ready.into_raw_fd())
    }

    fn handover(&self) -> PyResult<Option<(RawFd, RawFd, RawFd)>> {
        let handover = self.0.handover().map_err(error::pool)?;
        Ok(handover.map(|given| {
            (
                given.control.into_raw_fd(),
                given.page.into_raw_fd(),
                given.client.into_raw_fd(),
            )
        }))
    }

    fn attach(&self, pidfd: RawFd) -> PyResult<u64> {
        self.0.attach(take(pidfd)?).map_err(error::pool)
    }

    fn epoch(&self) -> PyResult<u64> {
        self.0.epoch().map_err(error::pool)
    }

    fn describe(
        &self,
        template: u32,
        arguments: Vec<Vec<u8>>,
        environment: Pairs,
        directory: Vec<u8>,
        setup: Vec<u8>,
    ) -> PyResult<()> {
        self.0
            .describe(
                template,
                Launch {
                    arguments,
                    environment,
                    directory,
                },
                setup,
            )
            .map_err(error::pool)
    }

    fn take(&self, key: u32) -> PyResult<Option<PyHandle>> {
        Ok(self.0.take(key).map_err(error::pool)?.map(PyHandle))
    }

    fn ask(&self, key: u32) -> PyResult<PyAnswer> {
        self.0.ask(key).map(answer).map_err(error::pool)
    }

    fn await_on(&self, ticket: u64, queue: &WakeQueue) -> PyResult<()> {
        self.0.await_on(ticket, &queue.0).map_err(error::pool)
    }

    fn collect(&self, ticket: u64, key: u32) -> PyResult<Option<PyAnswer>> {
        Ok(self
            .0
            .collect(ticket, key)
            .map_err(error::pool)?
            .map(answer))
    }

    fn hurry(&self, ticket: u64) -> PyResult<()> {
        self.0.hurry(ticket).map_err(error::pool)
    }

    fn leave(&self, ticket: u64) -> PyResult<()> {
        self.0.leave(ticket).map_err(error::pool)
    }

    /// Returns the caller's end of the service's socket, given away.
    #[pyo3(signature = (handle, template, *, start_ms, idle_ms))]
    fn fork(
        &self,
        handle: &PyHandle,
        template: u32,
        start_ms: u64,
        idle_ms: u64,
    ) -> PyResult<RawFd> {
        let deadlines = Deadlines { start_ms, idle_ms };
        let socket = self.0.fork(handle.0, template, deadlines);
        socket.map(IntoRawFd::into_raw_fd).map_err(error::pool)
    }

    /// Returns the caller's end of the program's socket, given away.
    #[pyo3(signature = (handle, arguments, environment, directory, *, start_ms, idle_ms))]
    fn launch(
        &self,
        handle: &PyHandle,
        arguments: Vec<Vec<u8>>,
        environment: Pairs,
        directory: Vec<u8>,
        start_ms: u64,
        idle_ms: u64,
    ) -> PyResult<RawFd> {
        let launch = Launch {
            arguments,
            environment,
            directory,
        };
        let deadlines = Deadlines { start_ms, idle_ms };
        let socket = self.0.launch(handle.0, launch, deadlines);
        socket.map(IntoRawFd::into_raw_fd).map_err(error::pool)
    }

    fn lend(&self, handle: &PyHandle, key: u32) -> PyResult<Option<i32>> {
        self.0.lend(handle.0, key).map_err(error::pool)
    }

    fn process(&self, handle: &PyHandle) -> PyResult<Option<(i32, RawFd)>> {
        self.0.process(handle.0).map_err(error::pool)
    }

    #[pyo3(signature = (handle, reset_ms=None))]
    fn release(&self, handle: &PyHandle, reset_ms: Option<u64>) -> PyResult<()> {
        self.0.release(handle.0, reset_ms).map_err(error::pool)
    }

    fn abandon(&self, handle: &PyHandle, answered: bool) -> PyResult<()> {
        self.0.abandon(handle.0, answered).map_err(error::pool)
    }

    fn discard(&self, handle: &PyHandle) -> PyResult<()> {
        self.0
            .discard(handle.0, Cause::Discarded)
            .map_err(error::pool)
    }

    /// (cause, pid, code, text), or None where it has not been told.
    #[pyo3(signature = (handle, queue=None))]
    fn death<'py>(
        &self,
        py: Python<'py>,
        handle: &PyHandle,
        queue: Option<&WakeQueue>,
    ) -> PyResult<Option<PyDeath<'py>>> {
        let death = self
            .0
            .death(handle.0, queue.map(|queue| &queue.0))
            .map_err(error::pool)?;
        Ok(death.map(|death| {
            (
                death.cause.name(),
                death.pid,
                death.code,
                PyBytes::new(py, &death.text),
            )
        }))
    }

    fn ask_output(&self, handle: &PyHandle) -> PyResult<()> {
        self.0.ask_output(handle.0).map_err(error::pool)
    }

    #[pyo3(signature = (handle, queue=None))]
    fn output<'py>(
        &self,
        py: Python<'py>,
        handle: &PyHandle,
        queue: Option<&WakeQueue>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let output = self
            .0
            .output(handle.0, queue.map(|queue| &queue.0))
            .map_err(error::pool)?;
        Ok(output.map(|text| PyBytes::new(py, &text)))
    }

    fn forsaken(&self) -> PyResult<Vec<PyHandle>> {
        let handles = self.0.forsaken().map_err(error::pool)?;
        Ok(handles.into_iter().map(PyHandle).collect())
    }

    fn drive(&self) -> PyResult<()> {
        self.0.drive().map_err(error::pool)
    }

    /// Wait without the GIL; returns early at a signal, after its handlers ran.
    fn wait(&self, py: Python<'_>, queue: &WakeQueue, timeout: Option<f64>) -> PyResult<()> {
        let limit_ms = timeout.map(milliseconds).transpose()?;
        match py.detach(|| self.0.wait(&queue.0, limit_ms)) {
            Err(forebay_pool::Error::Interrupted) => py.check_signals(),
            done => done.map_err(error::pool),
        }
    }

    /// (live, idle, settling, waiters, starts, leases)
    fn stats(&self) -> PyResult<(u32, usize, usize, usize, u64, u64)> {
        let stats = self.0.stats().map_err(error::pool)?;
        Ok((
            stats.live,
            stats.idle,
            stats.settling,
            stats.waiters,
            stats.starts,
            stats.leases,
        ))
    }

    fn deaths(&self) -> PyResult<Vec<(&'static str, u64)>> {
        self.0.deaths().map_err(error::pool)
    }

    /// (slot, generation, pid, lent) of each service.
    fn services(&self) -> PyResult<Vec<(u32, u64, i32, bool)>> {
        let services = self.0.services().map_err(error::pool)?;
        Ok(services
            .into_iter()
            .map(|(handle, pid, lent)| (handle.slot, handle.generation, pid, lent))
            .collect())
    }

    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let limit_ms = milliseconds(timeout)?;
        py.detach(|| self.0.close(limit_ms)).map_err(error::pool)
    }

    fn forked(&self) {
        self.0.forked();
    }
}

/// Rounded up, so that a wait never ends before its time.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked to be in range
fn milliseconds(seconds: f64) -> PyResult<u64> {
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!(
            "a time of {seconds} s cannot be waited for"
        )));
    }
    Ok((seconds * 1000.0).ceil().min(1e15) as u64)
}

/// Be the keeper, until the client is gone. The descriptors are given away. Never attached to Python meanwhile.
#[pyfunction]
fn run_keeper(
    py: Python<'_>,
    control: RawFd,
    page: RawFd,
    client: RawFd,
    scratch: PathBuf,
) -> PyResult<()> {
    let inherited = Inherited {
        control: take(control)?,
        page: take(page)?,
        client: take(client)?,
        scratch,
    };
    py.detach(|| keeper::run(inherited)).map_err(error::pool)
}

/// A template's end of its keeper. A template has one thread, so the lock is never waited for.
#[pyclass(frozen, module = "forebay._core")]
pub struct Nursery(Mutex<template::Nursery>);

impl Nursery {
    fn core(&self) -> MutexGuard<'_, template::Nursery> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Nursery {
    #[new]
    fn new(socket: RawFd) -> PyResult<Self> {
        Ok(Self(Mutex::new(template::Nursery::new(take(socket)?))))
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
            match self.nursery.get().core().fork(HOOKS).map_err(error::pool)? {
                None => return Ok(None),
                Some(template::Forked::Template(next)) => {
                    self.prepare.call1(py, (next.into_os_string(),))?;
                }
                Some(template::Forked::Service(socket)) => {
                    self.born.store(true, Ordering::Relaxed);
                    self.connection.get().adopt(py, socket)?;
                }
            }
        }
        self.connection.get().next_call(py, None)
    }
}

/// Add the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyHandle>()?;
    module.add_class::<WakeQueue>()?;
    module.add_class::<PyPool>()?;
    module.add_class::<Nursery>()?;
    module.add_class::<Cradle>()?;
    shared::register(module)?;
    module.add_function(wrap_pyfunction!(run_keeper, module)?)
}
