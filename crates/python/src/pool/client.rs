//! The client's side of a pool.

use std::ffi::OsString;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;

use forebay_pool::client::{Answer, Client, Policy};
use forebay_pool::death::Cause;
use forebay_pool::readiness::{self, Readiness};
use forebay_pool::wire::{Deadlines, Handle, Launch};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::argument::{Pairs, PyLimits, discard_cause, limits_of, milliseconds};
use super::handle::PyHandle;
use super::wake_queue::WakeQueue;
use crate::error;
use crate::sys::descriptor::take;

/// An answer: (0, handle, 0 unsettled | 1 settled | 2 settled and long idle), (1, handle, False) to start one, or (2, ticket, grace in ms) to wait.
type PyAnswer = (u8, Option<PyHandle>, u64, u64);

fn answer(answer: Answer) -> PyAnswer {
    match answer {
        Answer::Lent {
            handle,
            settled,
            quiet,
        } => {
            let state = u64::from(settled) + u64::from(quiet);
            (0, Some(PyHandle(handle)), state, 0)
        }
        Answer::Start { handle } => (1, Some(PyHandle(handle)), 0, 0),
        Answer::Wait { ticket, grace_ms } => (2, None, ticket, grace_ms),
    }
}

/// Cause, process id, exit code or signal, text, most memory used, memory allowed.
type PyDeath<'py> = (&'static str, i32, i32, Bound<'py, PyBytes>, u64, u64);

/// Slot, generation, process id, lent or not, key, milliseconds of the lease that is out.
type PySeen = (u32, u64, i32, bool, u32, u64);

/// Milliseconds since 1970, what, key, process id, slot, generation, cause.
type PyNote = (u64, &'static str, u32, i32, u32, u64, Option<&'static str>);

/// The client's side of a pool.
#[pyclass(frozen, module = "forebay._core", name = "Pool")]
pub struct PyPool(Client);

#[pymethods]
impl PyPool {
    #[new]
    #[pyo3(signature = (max_size, *, max_running=None, max_uses=0, lifetime_ms=0, ping_after_ms=0))]
    fn new(
        max_size: u32,
        max_running: Option<u32>,
        max_uses: u32,
        lifetime_ms: u64,
        ping_after_ms: u64,
    ) -> PyResult<Self> {
        let policy = Policy {
            max_size,
            max_running: max_running.unwrap_or(max_size),
            max_uses,
            lifetime_ms,
            ping_after_ms,
        };
        Client::new(policy).map(Self).map_err(error::pool)
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
        spares: u32,
    ) -> PyResult<()> {
        self.0
            .describe(
                template,
                Launch {
                    arguments,
                    environment,
                    directory,
                    ..Launch::default()
                },
                setup,
                spares,
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

    fn collect(&self, ticket: u64) -> PyResult<Option<PyAnswer>> {
        Ok(self.0.collect(ticket).map_err(error::pool)?.map(answer))
    }

    fn refill(&self, key: u32) -> PyResult<Option<PyHandle>> {
        Ok(self.0.refill(key).map_err(error::pool)?.map(PyHandle))
    }

    fn keep(&self, key: u32, min_idle: u32) -> PyResult<()> {
        self.0.keep(key, min_idle).map_err(error::pool)
    }

    fn share(&self, key: u32, leases: u32) -> PyResult<()> {
        self.0.share(key, leases).map_err(error::pool)
    }

    fn open(&self, handle: &PyHandle) -> PyResult<()> {
        self.0.open(handle.0).map_err(error::pool)
    }

    fn part(&self, handle: &PyHandle, closed: bool) -> PyResult<bool> {
        self.0.release_shared(handle.0, closed).map_err(error::pool)
    }

    fn hurry(&self, ticket: u64) -> PyResult<()> {
        self.0.hurry(ticket).map_err(error::pool)
    }

    fn leave(&self, ticket: u64) -> PyResult<()> {
        self.0.leave(ticket).map_err(error::pool)
    }

    /// Returns the caller's end of the service's socket, given away.
    #[pyo3(signature = (handle, template, *, start_ms, idle_ms, private_bytes_max=0, limits=None))]
    #[allow(clippy::too_many_arguments)] // named ones, for one message
    fn fork(
        &self,
        handle: &PyHandle,
        template: u32,
        start_ms: u64,
        idle_ms: u64,
        private_bytes_max: u64,
        limits: Option<PyLimits>,
    ) -> PyResult<RawFd> {
        let deadlines = Deadlines {
            private_bytes_max,
            limits: limits_of(limits),
            ..deadlines(start_ms, idle_ms)
        };
        let socket = self.0.fork(handle.0, template, deadlines);
        socket.map(IntoRawFd::into_raw_fd).map_err(error::pool)
    }

    /// Returns the handle of the copy and the caller's end of its socket, given away.
    #[pyo3(signature = (parent, key, *, start_ms, idle_ms, limits=None))]
    fn branch(
        &self,
        parent: &PyHandle,
        key: u32,
        start_ms: u64,
        idle_ms: u64,
        limits: Option<PyLimits>,
    ) -> PyResult<(PyHandle, RawFd)> {
        let deadlines = Deadlines {
            limits: limits_of(limits),
            ..deadlines(start_ms, idle_ms)
        };
        let (handle, socket) = self
            .0
            .branch(parent.0, key, deadlines)
            .map_err(error::pool)?;
        Ok((PyHandle(handle), socket.into_raw_fd()))
    }

    /// Returns the caller's end of the program's socket, given away; `own` is taken.
    #[pyo3(signature = (handle, arguments, environment, directory, *, start_ms, idle_ms,
        readiness=(0, Vec::new()), caller_looks=false, own=None, stdio=false,
        private_bytes_max=0, limits=None))]
    #[allow(clippy::too_many_arguments)] // keywords in Python
    fn launch(
        &self,
        handle: &PyHandle,
        arguments: Vec<Vec<u8>>,
        environment: Pairs,
        directory: Vec<u8>,
        start_ms: u64,
        idle_ms: u64,
        readiness: (u8, Vec<u8>),
        caller_looks: bool,
        own: Option<RawFd>,
        stdio: bool,
        private_bytes_max: u64,
        limits: Option<PyLimits>,
    ) -> PyResult<RawFd> {
        let own: Option<OwnedFd> = own.map(take).transpose()?;
        let (code, text) = readiness;
        let launch = Launch {
            arguments,
            environment,
            directory,
            readiness: Readiness::from_parts(code, text).map_err(error::pool)?,
            caller_looks,
            stdio,
        };
        let deadlines = Deadlines {
            private_bytes_max,
            limits: limits_of(limits),
            ..deadlines(start_ms, idle_ms)
        };
        let own = own.as_ref().map(AsFd::as_fd);
        let socket = self.0.launch(handle.0, launch, deadlines, own);
        socket.map(IntoRawFd::into_raw_fd).map_err(error::pool)
    }

    /// Raises where the keeper cannot match a line against this pattern.
    #[staticmethod]
    fn check_pattern(pattern: &str) -> PyResult<()> {
        readiness::pattern_of(pattern)
            .map(drop)
            .map_err(error::pool)
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

    #[pyo3(signature = (handle, cause="discarded"))]
    fn discard(&self, handle: &PyHandle, cause: &str) -> PyResult<()> {
        self.0
            .discard(handle.0, discard_cause(cause))
            .map_err(error::pool)
    }

    /// End a service whose holder keeps the lease: a call took longer than its limits allow.
    fn end_overdue(&self, handle: &PyHandle) -> PyResult<()> {
        self.0
            .end(handle.0, Cause::CallDeadline)
            .map_err(error::pool)
    }

    fn heavy(&self) -> PyResult<usize> {
        self.0.heavy().map_err(error::pool)
    }

    fn directory(&self, handle: &PyHandle) -> PyResult<OsString> {
        let path = self.0.directory(handle.0).map_err(error::pool)?;
        Ok(OsString::from_vec(path))
    }

    fn follow(&self, handle: &PyHandle, beyond: u64) -> PyResult<()> {
        self.0.follow(handle.0, beyond).map_err(error::pool)
    }

    #[pyo3(signature = (handle, beyond, queue=None))]
    fn written<'py>(
        &self,
        py: Python<'py>,
        handle: &PyHandle,
        beyond: u64,
        queue: Option<&WakeQueue>,
    ) -> PyResult<Option<(u64, Bound<'py, PyBytes>)>> {
        let written = self
            .0
            .written(handle.0, beyond, queue.map(|queue| &queue.0))
            .map_err(error::pool)?;
        Ok(written.map(|(total, text)| (total, PyBytes::new(py, &text))))
    }

    /// (cause, pid, code, text, peak, limit), or None where it has not been told.
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
                death.peak_bytes,
                death.limit_bytes,
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
        let handles = self.0.dead_idle().map_err(error::pool)?;
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

    /// Sizes and counters by name.
    fn stats(&self) -> PyResult<Vec<(&'static str, u64)>> {
        let stats = self.0.stats().map_err(error::pool)?;
        Ok(vec![
            ("live", u64::from(stats.live)),
            ("idle", stats.idle as u64),
            ("settling", stats.settling as u64),
            ("leased", stats.leased as u64),
            ("starting", stats.starting as u64),
            ("waiters", stats.waiters as u64),
            ("starts", stats.starts),
            ("leases", stats.leases),
            ("waits", stats.waits),
            ("resets", stats.resets),
        ])
    }

    fn deaths(&self) -> PyResult<Vec<(&'static str, u64)>> {
        self.0.deaths().map_err(error::pool)
    }

    fn services(&self) -> PyResult<Vec<PySeen>> {
        let services = self.0.services().map_err(error::pool)?;
        let told = services.into_iter().map(|seen| {
            let Handle { slot, generation } = seen.handle;
            (
                slot,
                generation,
                seen.pid,
                seen.lent,
                seen.key,
                seen.held_ms,
            )
        });
        Ok(told.collect())
    }

    fn keep_notes(&self, wanted: bool) -> PyResult<()> {
        self.0.keep_notes(wanted).map_err(error::pool)
    }

    #[pyo3(signature = (queue=None))]
    fn take_notes(&self, queue: Option<&WakeQueue>) -> PyResult<Vec<PyNote>> {
        let notes = self
            .0
            .take_notes(queue.map(|queue| &queue.0))
            .map_err(error::pool)?;
        let told = notes.into_iter().map(|note| {
            let (what, cause) = note.transition.words();
            let Handle { slot, generation } = note.handle;
            (
                note.at_ms, what, note.key, note.pid, slot, generation, cause,
            )
        });
        Ok(told.collect())
    }

    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let limit_ms = milliseconds(timeout)?;
        py.detach(|| self.0.close(limit_ms)).map_err(error::pool)
    }

    fn forked(&self) {
        self.0.forked();
    }
}

/// The times that the client's policy does not know.
fn deadlines(start_ms: u64, idle_ms: u64) -> Deadlines {
    Deadlines {
        start_ms,
        idle_ms,
        ..Deadlines::default()
    }
}
