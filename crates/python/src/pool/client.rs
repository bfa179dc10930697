//! The client's side of a pool.

use std::ffi::OsString;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use forebay_base::signals;
use forebay_base::time::{deadline, left};
use forebay_pool::client::{Answer, Client, Policy};
use forebay_pool::death::Cause;
use forebay_pool::readiness;
use forebay_pool::wire::{Deadlines, Handle};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::argument::{
    Pairs, PyLaunch, PyLimits, discard_cause, launch_of, limits_of, milliseconds, template_launch,
};
use super::death::{PyDeath, death_to_python};
use super::handle::PyHandle;
use super::wake_queue::WakeQueue;
use crate::error::Result;
use crate::sys::descriptor::take;

/// An answer: (0, handle, 0 unsettled | 1 settled | 2 settled and long idle), (1, handle, False) to start one, (2, ticket, grace in ms)
/// to wait, or (3, handle, 1) for a further lease of a service.
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
        Answer::Joined { handle } => (3, Some(PyHandle(handle)), 1, 0),
        Answer::Start { handle } => (1, Some(PyHandle(handle)), 0, 0),
        Answer::Wait { ticket, grace_ms } => (2, None, ticket, grace_ms),
    }
}

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
    ) -> Result<Self> {
        let policy = Policy {
            max_size,
            max_running: max_running.unwrap_or(max_size),
            max_uses,
            lifetime_ms,
            ping_after_ms,
        };
        Ok(Self(Client::new(policy)?))
    }

    fn watch(&self) -> Result<RawFd> {
        let ready = self.0.watch()?;
        Ok(ready.into_raw_fd())
    }

    fn handover(&self) -> Result<Option<(RawFd, RawFd, RawFd)>> {
        let handover = self.0.handover()?;
        Ok(handover.map(|given| {
            (
                given.control.into_raw_fd(),
                given.page.into_raw_fd(),
                given.client.into_raw_fd(),
            )
        }))
    }

    fn attach(&self, pidfd: RawFd) -> Result<u64> {
        Ok(self.0.attach(take(pidfd)?)?)
    }

    fn epoch(&self) -> Result<u64> {
        Ok(self.0.epoch()?)
    }

    fn describe(
        &self,
        template: u32,
        arguments: Vec<Vec<u8>>,
        environment: Pairs,
        directory: Vec<u8>,
        setup: Vec<u8>,
        spares: u32,
    ) -> Result<()> {
        let launch = template_launch(arguments, environment, directory);
        Ok(self.0.describe(template, launch, setup, spares)?)
    }

    fn take(&self, key: u32, group: u32) -> Result<Option<PyHandle>> {
        Ok(self.0.take(key, group.into())?.map(PyHandle))
    }

    fn ask(&self, key: u32, group: u32) -> Result<PyAnswer> {
        Ok(answer(self.0.ask(key, group.into())?))
    }

    fn await_on(&self, ticket: u64, queue: &WakeQueue) -> Result<()> {
        Ok(self.0.await_on(ticket, &queue.0)?)
    }

    fn collect(&self, ticket: u64) -> Result<Option<PyAnswer>> {
        Ok(self.0.collect(ticket)?.map(answer))
    }

    fn refill(&self, key: u32) -> Result<Option<PyHandle>> {
        Ok(self.0.refill(key)?.map(PyHandle))
    }

    fn keep(&self, key: u32, min_idle: u32) -> Result<()> {
        Ok(self.0.keep(key, min_idle)?)
    }

    fn share(&self, key: u32, leases: u32) -> Result<()> {
        Ok(self.0.share(key, leases)?)
    }

    fn open(&self, handle: &PyHandle) -> Result<()> {
        Ok(self.0.open(handle.0)?)
    }

    fn release_shared(&self, handle: &PyHandle, closed: bool) -> Result<bool> {
        Ok(self.0.release_shared(handle.0, closed)?)
    }

    fn hurry(&self, ticket: u64) -> Result<()> {
        Ok(self.0.hurry(ticket)?)
    }

    fn leave(&self, ticket: u64) -> Result<()> {
        Ok(self.0.leave(ticket)?)
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
    ) -> Result<RawFd> {
        let deadlines = deadlines(start_ms, idle_ms, private_bytes_max, limits);
        let socket = self.0.fork(handle.0, template, deadlines);
        Ok(socket?.into_raw_fd())
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
    ) -> Result<(PyHandle, RawFd)> {
        let deadlines = deadlines(start_ms, idle_ms, 0, limits);
        let (handle, socket) = self.0.branch(parent.0, key, deadlines)?;
        Ok((PyHandle(handle), socket.into_raw_fd()))
    }

    /// Returns the caller's end of the program's socket, given away; `own` is taken.
    #[pyo3(signature = (handle, launch, *, start_ms, idle_ms, own=None, private_bytes_max=0, limits=None))]
    #[allow(clippy::too_many_arguments)] // keywords in Python
    fn launch(
        &self,
        handle: &PyHandle,
        launch: PyLaunch,
        start_ms: u64,
        idle_ms: u64,
        own: Option<RawFd>,
        private_bytes_max: u64,
        limits: Option<PyLimits>,
    ) -> Result<RawFd> {
        let own: Option<OwnedFd> = own.map(take).transpose()?;
        let deadlines = deadlines(start_ms, idle_ms, private_bytes_max, limits);
        let own = own.as_ref().map(AsFd::as_fd);
        let launch = launch_of(launch)?;
        let socket = self.0.launch(handle.0, launch, deadlines, own);
        Ok(socket?.into_raw_fd())
    }

    /// Raises where the keeper cannot match a line against this pattern.
    #[staticmethod]
    fn check_pattern(pattern: &str) -> Result<()> {
        readiness::pattern_of(pattern)?;
        Ok(())
    }

    fn lend(&self, handle: &PyHandle, key: u32) -> Result<Option<i32>> {
        Ok(self.0.lend(handle.0, key)?)
    }

    fn process(&self, handle: &PyHandle) -> Result<Option<(i32, RawFd)>> {
        Ok(self.0.process(handle.0)?)
    }

    #[pyo3(signature = (handle, reset_ms=None))]
    fn release(&self, handle: &PyHandle, reset_ms: Option<u64>) -> Result<()> {
        Ok(self.0.release(handle.0, reset_ms)?)
    }

    fn abandon(&self, handle: &PyHandle, answered: bool) -> Result<()> {
        Ok(self.0.abandon(handle.0, answered)?)
    }

    #[pyo3(signature = (handle, cause="discarded"))]
    fn discard(&self, handle: &PyHandle, cause: &str) -> Result<()> {
        Ok(self.0.discard(handle.0, discard_cause(cause))?)
    }

    /// End a service whose holder keeps the lease: a call took longer than its limits allow.
    fn end_overdue(&self, handle: &PyHandle) -> Result<()> {
        Ok(self.0.end(handle.0, Cause::CallDeadline)?)
    }

    fn heavy(&self) -> Result<usize> {
        Ok(self.0.heavy()?)
    }

    fn directory(&self, handle: &PyHandle) -> Result<OsString> {
        let path = self.0.directory(handle.0)?;
        Ok(OsString::from_vec(path))
    }

    fn follow(&self, handle: &PyHandle, beyond: u64) -> Result<()> {
        Ok(self.0.follow(handle.0, beyond)?)
    }

    #[pyo3(signature = (handle, beyond, queue=None))]
    fn written<'py>(
        &self,
        py: Python<'py>,
        handle: &PyHandle,
        beyond: u64,
        queue: Option<&WakeQueue>,
    ) -> Result<Option<(u64, Bound<'py, PyBytes>)>> {
        let written = self
            .0
            .written(handle.0, beyond, queue.map(|queue| &queue.0))?;
        Ok(written.map(|(total, text)| (total, PyBytes::new(py, &text))))
    }

    /// (cause, pid, code, text, peak, limit), or None while it is not known.
    #[pyo3(signature = (handle, queue=None))]
    fn death<'py>(
        &self,
        py: Python<'py>,
        handle: &PyHandle,
        queue: Option<&WakeQueue>,
    ) -> Result<Option<PyDeath<'py>>> {
        let death = self.0.death(handle.0, queue.map(|queue| &queue.0))?;
        Ok(death.map(|death| death_to_python(py, &death)))
    }

    fn ask_output(&self, handle: &PyHandle) -> Result<()> {
        Ok(self.0.ask_output(handle.0)?)
    }

    #[pyo3(signature = (handle, queue=None))]
    fn output<'py>(
        &self,
        py: Python<'py>,
        handle: &PyHandle,
        queue: Option<&WakeQueue>,
    ) -> Result<Option<Bound<'py, PyBytes>>> {
        let output = self.0.output(handle.0, queue.map(|queue| &queue.0))?;
        Ok(output.map(|text| PyBytes::new(py, &text)))
    }

    fn dead_idle(&self) -> Result<Vec<PyHandle>> {
        let handles = self.0.dead_idle()?;
        Ok(handles.into_iter().map(PyHandle).collect())
    }

    fn drive(&self) -> Result<()> {
        Ok(self.0.drive()?)
    }

    /// Wait without the GIL; signal handlers run meanwhile.
    fn wait(&self, py: Python<'_>, queue: &WakeQueue, timeout: Option<f64>) -> Result<()> {
        let limit = timeout.map(milliseconds).transpose()?;
        let deadline = deadline(limit.map(Duration::from_millis));
        signals::watch();
        loop {
            match py.detach(|| self.0.wait(&queue.0, left(deadline))) {
                Err(forebay_pool::Error::Interrupted) => py.check_signals()?,
                done => return Ok(done?),
            }
        }
    }

    /// Sizes and counters by name.
    fn stats(&self) -> Result<Vec<(&'static str, u64)>> {
        let stats = self.0.stats()?;
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

    fn deaths(&self) -> Result<Vec<(&'static str, u64)>> {
        Ok(self.0.deaths()?)
    }

    fn services(&self) -> Result<Vec<PySeen>> {
        let services = self.0.services()?;
        let tuples = services.into_iter().map(|seen| {
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
        Ok(tuples.collect())
    }

    fn keep_notes(&self, wanted: bool) -> Result<()> {
        Ok(self.0.keep_notes(wanted)?)
    }

    #[pyo3(signature = (queue=None))]
    fn take_notes(&self, queue: Option<&WakeQueue>) -> Result<Vec<PyNote>> {
        let notes = self.0.take_notes(queue.map(|queue| &queue.0))?;
        let tuples = notes.into_iter().map(|note| {
            let (what, cause) = note.transition.words();
            let Handle { slot, generation } = note.handle;
            (
                note.at_ms, what, note.key, note.pid, slot, generation, cause,
            )
        });
        Ok(tuples.collect())
    }

    fn close(&self, py: Python<'_>, timeout: f64) -> Result<()> {
        let limit_ms = milliseconds(timeout)?;
        Ok(py.detach(|| self.0.close(limit_ms))?)
    }

    fn forked(&self) {
        self.0.forked();
    }
}

/// The times and limits that the client's policy does not know; 0 private bytes are any number.
fn deadlines(
    start_ms: u64,
    idle_ms: u64,
    private_bytes_max: u64,
    limits: Option<PyLimits>,
) -> Deadlines {
    Deadlines {
        start_ms,
        idle_ms,
        private_bytes_max,
        limits: limits_of(limits),
        ..Deadlines::default()
    }
}
