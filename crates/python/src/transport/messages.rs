//! A connection of messages for Python: stepped by an event loop in its own thread, or waited for by threads.
//!
//! Nonblocking calls are made with the GIL held: they are bounded, and a hand-over costs more than they do.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value
#![allow(clippy::too_many_arguments)] // they are Python's

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use forebay_transport::Delivered;
use forebay_transport::limit::Limits;
use forebay_transport::link::Admission;
use forebay_transport::messages::{Frames, Handed, MessageOptions, Messages, Sending};
use forebay_transport::stream::Wire;
use forebay_transport::stream::shm::SharedStream;
use pyo3::IntoPyObjectExt;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

mod awaitable;
mod face;

use face::Face;

use super::allocate::allocator;
use super::conversion::{to_deadline, to_duration};
use super::frames::{PyFrames, message_to_python};
use super::tls::{peer_to_python, wire_over};
use super::wait::retry;
use crate::error::{Error, Result, Within, busy, config};
use crate::fields::set_items;
use crate::memory::Buffer;
use crate::sys::descriptor;
pub use awaitable::Waiting;
use awaitable::Wanted;

/// What is ready, and what is watched.
const READABLE: u8 = 1;
const WRITABLE: u8 = 2;
/// Messages that are taken under one lock.
const TAKEN_AT_ONCE: usize = 64;

thread_local! {
    static HERE: u8 = const { 0 };
}

/// A number of this thread, not 0; cheaper than its id, and enough to tell threads that live apart.
fn here() -> usize {
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// One end of a connection of messages.
///
/// It belongs to the loop that it is bound to, or to blocking threads.
#[pyclass(frozen, weakref, module = "forebay._core")]
pub struct MessageConnection {
    core: Messages,
    shared: bool,
    limits: Limits,
    face: Mutex<Option<Face>>,
    done: Py<Waiting>,
    /// The thread of the loop that it is bound to, see [`here`]; 0 while it is bound to none.
    home: AtomicUsize,
}

#[pymethods]
impl MessageConnection {
    /// Take over the connected stream socket `descriptor`; it is closed even if this raises.
    #[new]
    #[pyo3(signature = (descriptor, *, peer, token = None, expected = None, trusted = false, limits = None, allocate = None, shared = false, tls = None, host = ""))]
    #[allow(clippy::too_many_arguments)] // each is a keyword of Python's
    fn new(
        py: Python<'_>,
        descriptor: RawFd,
        peer: String,
        token: Option<Vec<u8>>,
        expected: Option<Vec<u8>>,
        trusted: bool,
        limits: Option<Bound<'_, PyDict>>,
        allocate: Option<Py<PyAny>>,
        shared: bool,
        tls: Option<&Bound<'_, PyAny>>,
        host: &str,
    ) -> Result<Self> {
        let socket = descriptor::take(descriptor)?;
        let limits = limits_of(limits)?;
        let options = MessageOptions {
            limits,
            peer,
            admission: expected.map_or(Admission::Anybody, Admission::Token),
            token,
            trusted,
            allocator: allocate.map(allocator),
        };
        let wire = if shared {
            Wire::from(SharedStream::new(socket)?)
        } else {
            wire_over(socket, tls, host)?
        };
        Self::over(py, Messages::new(wire, options), shared, limits)
    }

    /// Have an event loop step the connection from now on; to be called in its thread.
    fn bind(slf: Bound<'_, Self>, event_loop: Bound<'_, PyAny>) -> Result<()> {
        let this = slf.get();
        let Some(socket) = this.core.descriptor() else {
            return Err(this.ended());
        };
        let face = Face::new(event_loop, socket)?;
        if this.face().replace(face).is_some() {
            return Err(busy(format!("{} is bound already", this.core.peer())));
        }
        this.home.store(here(), Ordering::Relaxed);
        Self::on_ready(slf, READABLE)
    }

    /// Events of the socket: 1 is readable, 2 writable. Called by the loop, where no task runs.
    pub(crate) fn on_ready(slf: Bound<'_, Self>, events: u8) -> Result<()> {
        let (py, this) = (slf.py(), slf.get());
        let readiness = this
            .core
            .step(events & READABLE != 0, events & WRITABLE != 0)?;
        let wanted = u8::from(readiness.wants_read) | u8::from(readiness.wants_write) << 1;
        let mut watched = Self::watch(&slf, wanted);
        if readiness.again || (readiness.wants_read && this.has_had_last_event()) {
            watched = watched.and_then(|()| Self::come_back(&slf));
        }
        // Last: a task that is run may change what is watched. And whatever became of that: what came, came.
        this.wake_tasks(py, &readiness).and(watched)
    }

    fn on_readable(slf: Bound<'_, Self>) -> Result<()> {
        Self::on_ready(slf, READABLE)
    }

    fn on_writable(slf: Bound<'_, Self>) -> Result<()> {
        Self::on_ready(slf, WRITABLE)
    }

    /// Await the next message.
    fn recv(slf: Bound<'_, Self>) -> Waiting {
        Waiting::new(Some(slf.unbind()), Wanted::Message(None))
    }

    /// Await messages: a list of those that are there, at least one and at most `count`.
    fn recv_many(slf: Bound<'_, Self>, count: usize) -> Result<Waiting> {
        if count == 0 {
            return Err(config("recv_many(0): give a number of messages, 1 or more"));
        }
        Ok(Waiting::new(
            Some(slf.unbind()),
            Wanted::Message(Some(count)),
        ))
    }

    /// Await that the peer is let in.
    fn handshake(slf: Bound<'_, Self>) -> Waiting {
        Waiting::new(Some(slf.unbind()), Wanted::Open)
    }

    /// Await that everything sent so far is with the kernel.
    fn flushed(slf: Bound<'_, Self>) -> Result<Waiting> {
        let sending = slf.get().core.send_many(&mut []);
        let sending = sending?;
        let end = sending.end;
        Ok(Waiting::new(
            Some(slf.unbind()),
            Wanted::Sent { end, lent: true },
        ))
    }

    /// Send one message; await that its buffers are free and that there is room for the next one.
    fn send(slf: Bound<'_, Self>, frames: &Bound<'_, PyAny>) -> Result<Py<Waiting>> {
        let this = slf.get();
        this.check_thread()?;
        let sending = this.core.send(&mut this.frames(frames)?);
        let sending = sending?;
        Self::awaited(slf, sending)
    }

    /// The same with several messages, in as few system calls as possible.
    fn send_many(slf: Bound<'_, Self>, messages: &Bound<'_, PyAny>) -> Result<Py<Waiting>> {
        slf.get().check_thread()?;
        let sending = slf.get().send_all(messages)?;
        Self::awaited(slf, sending)
    }

    /// Wait for the next message, without the GIL.
    #[pyo3(signature = (timeout = None))]
    fn recv_blocking<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyList>> {
        let deadline = to_deadline(timeout);
        let message = retry(py, || self.core.recv(deadline)).within(timeout)?;
        Ok(message_to_python(py, message)?)
    }

    /// Send one message, and wait, without the GIL, as `send` does.
    #[pyo3(signature = (frames, timeout = None))]
    fn send_blocking(
        &self,
        py: Python<'_>,
        frames: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> Result<()> {
        let sending = self.core.send(&mut self.frames(frames)?);
        let sending = sending.within(timeout)?;
        self.wait_for(py, sending, timeout)
    }

    /// The same with several messages.
    #[pyo3(signature = (messages, timeout = None))]
    fn send_many_blocking(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> Result<()> {
        let sending = self.send_all(messages)?;
        self.wait_for(py, sending, timeout)
    }

    /// Wait, without the GIL, until the peer is let in.
    #[pyo3(signature = (timeout = None))]
    fn handshake_blocking(&self, py: Python<'_>, timeout: Option<f64>) -> Result<()> {
        let deadline = to_deadline(timeout);
        retry(py, || self.core.handshake(deadline)).within(timeout)
    }

    /// Wait, without the GIL, until everything sent so far is with the kernel.
    #[pyo3(signature = (timeout = None))]
    fn flush_blocking(&self, py: Python<'_>, timeout: Option<f64>) -> Result<()> {
        let sending = self.core.send_many(&mut []);
        let end = sending.within(timeout)?.end;
        let deadline = to_deadline(timeout);
        retry(py, || self.core.drain(end, deadline)).within(timeout)
    }

    /// Close now: what is queued is dropped, and waiting callers get an error. Idempotent.
    fn close(&self, py: Python<'_>) -> Result<()> {
        if let Err(error) = self.check_thread()
            && !self.has_ended_loop(py)?
        {
            return Err(error);
        }
        let face = self.face().take();
        // The loop lets go of the number first: once closed it may name another socket at any time.
        let forgotten = match &face {
            Some(face) if face.watched != 0 => face.forget(py),
            _ => Ok(()),
        };
        self.core.close();
        let Some(face) = face else { return forgotten };
        forgotten.and(face.dismiss(py))
    }

    /// End the connection if the peer has not moved on for `allowed` seconds; whether it did.
    fn end_if_stalled(slf: Bound<'_, Self>, allowed: f64) -> Result<bool> {
        let Some(allowed) = to_duration(Some(allowed)) else {
            return Ok(false);
        };
        let stalled = slf.get().core.end_if_stalled(Instant::now(), allowed);
        let stalled = stalled?;
        if stalled {
            Self::on_ready(slf, 0)?; // wakes the waiting tasks
        }
        Ok(stalled)
    }

    /// What errors call the peer.
    #[getter]
    fn peer(&self) -> &str {
        self.core.peer()
    }

    /// Whether nothing more can be sent or comes, also while no one reads.
    #[getter]
    fn closed(&self) -> bool {
        self.core.is_over()
    }

    /// Whether the peer closed the connection between two messages.
    #[getter]
    fn closed_cleanly(&self) -> bool {
        self.core.closed_cleanly()
    }

    /// Memory that the peer sees: a frame that lies in it is sent without a copy.
    fn allocate(&self, n_bytes: usize) -> Result<Buffer> {
        Ok(Buffer::new(self.core.allocate(n_bytes)?))
    }

    /// Whether the peer may still read of a buffer's memory, because it was sent without a copy.
    fn is_lent(&self, buffer: &Bound<'_, PyAny>) -> Result<bool> {
        let frames = PyFrames::new(buffer)?;
        if frames.count() != 1 {
            return Err(config(format!(
                "is_lent({}): give one buffer",
                frames.count()
            )));
        }
        let lent = self.core.is_lent(frames.get(0));
        Ok(lent?)
    }

    /// The socket's descriptor, -1 once closed.
    fn fileno(&self) -> RawFd {
        self.core.socket().unwrap_or(-1)
    }

    /// What a handshake of TLS found out; `None` before its end, and without TLS.
    fn tls_peer<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let peer = self.core.tls_peer();
        peer.map(|peer| peer_to_python(py, &peer)).transpose()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.done)?;
        match self.face.try_lock().as_deref() {
            Ok(Some(face)) => face.traverse(&visit),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Nothing can reach it any more, its loop neither: let go of the sleeping tasks, and of the socket.
    fn __clear__(&self) {
        let face = self.face().take();
        self.core.close();
        drop(face);
    }

    /// What was counted.
    fn metrics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let counted = self.core.counters();
        let metrics = PyDict::new(py);
        set_items!(
            metrics, counted;
            sent_messages received_messages sent_bytes received_bytes copied_bytes
            outbox_bytes inbox_bytes inbox_messages lent_frames
        );
        Ok(metrics)
    }
}

impl MessageConnection {
    /// Whether this is the thread of the loop. From another one a wake-up would be lost.
    fn check_thread(&self) -> Result<()> {
        let home = self.home.load(Ordering::Relaxed);
        if home == 0 || home == here() {
            return Ok(());
        }
        Err(busy(format!(
            "{} belongs to an event loop in another thread; go there by \
             asyncio.run_coroutine_threadsafe or loop.call_soon_threadsafe",
            self.core.peer()
        )))
    }

    /// Whether its loop was closed, so that any thread may take the connection apart.
    fn has_ended_loop(&self, py: Python<'_>) -> PyResult<bool> {
        let event_loop = self.face().as_ref().map(|face| face.event_loop(py));
        match event_loop {
            Some(event_loop) => event_loop
                .call_method0(py, intern!(py, "is_closed"))?
                .is_truthy(py),
            None => Ok(true),
        }
    }

    /// What errors call the peer.
    pub(crate) fn peer_name(&self) -> &str {
        self.core.peer()
    }

    /// Take the stream away, for what is spoken on it from here on; to be called in the thread of its loop, if it has one.
    pub(crate) fn take_stream(&self, py: Python<'_>) -> Result<Wire> {
        self.check_thread()?;
        let wire = self.core.take_stream();
        let wire = wire?;
        let face = self.face().take();
        if let Some(face) = face {
            let forgotten = if face.watched == 0 {
                Ok(())
            } else {
                face.forget(py)
            };
            forgotten.and(face.dismiss(py))?;
        }
        Ok(wire)
    }

    /// Go on with a connection that a native listener has handed over.
    pub(crate) fn from_handed(py: Python<'_>, state: Handed, peer: String) -> Result<Self> {
        let limits = state.limits();
        Self::over(py, Messages::resume(state, peer), false, limits)
    }

    fn over(py: Python<'_>, core: Messages, shared: bool, limits: Limits) -> Result<Self> {
        Ok(Self {
            core,
            shared,
            limits,
            face: Mutex::new(None),
            done: Py::new(py, Waiting::new(None, Wanted::Nothing))?,
            home: AtomicUsize::new(0),
        })
    }

    fn face(&self) -> MutexGuard<'_, Option<Face>> {
        self.face.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> Error {
        match self.core.fault(Delivered::No) {
            Some(fault) => fault.into(),
            None => busy(format!("{} has no loop", self.core.peer())),
        }
    }

    /// Whether the stream buffers input, for which the socket is not readable.
    pub fn holds_received(&self) -> bool {
        self.core.holds_received()
    }

    /// Look for what a coroutine wants.
    pub(crate) fn look(&self, py: Python<'_>, wanted: Wanted) -> Result<Option<Py<PyAny>>> {
        self.check_thread()?;
        let none = || py.None();
        Ok(match wanted {
            Wanted::Message(Some(count)) => self.take_many(py, count)?,
            Wanted::Message(None) => match self.core.take()? {
                Some(message) => Some(message_to_python(py, message)?.into_py_any(py)?),
                None => None,
            },
            Wanted::Sent { end, .. } => self.core.is_sent(end)?.then(none),
            Wanted::Open => {
                let readiness = self.core.step(false, false)?;
                if readiness.over {
                    return Err(self.ended());
                }
                readiness.open.then(none)
            }
            Wanted::Nothing => Some(none()),
        })
    }

    fn take_many(&self, py: Python<'_>, count: usize) -> Result<Option<Py<PyAny>>> {
        let list = PyList::empty(py);
        let mut taken = Vec::new();
        while list.len() < count {
            let most = TAKEN_AT_ONCE.min(count - list.len());
            let outcome = self.core.take_many(most, &mut taken);
            let is_all = taken.len() < most;
            for message in taken.drain(..) {
                list.append(message_to_python(py, message)?)?;
            }
            match outcome {
                Err(error) if list.is_empty() => return Err(error.into()),
                _ if is_all => break, // the next call returns the error
                _ => {}
            }
        }
        Ok((!list.is_empty()).then(|| list.into_any().unbind()))
    }

    /// What a sender awaits.
    fn awaited(slf: Bound<'_, Self>, sending: Sending) -> Result<Py<Waiting>> {
        let (py, this) = (slf.py(), slf.get());
        if sending.wants_write {
            let watched = this.face().as_ref().map_or(0, |face| face.watched);
            if watched & WRITABLE == 0 {
                Self::watch(&slf, watched | WRITABLE)?;
            }
        }
        let Some(end) = sending.awaited(&this.limits) else {
            return Ok(this.done.clone_ref(py));
        };
        let lent = sending.lent;
        let waiting = Waiting::new(Some(slf.unbind()), Wanted::Sent { end, lent });
        Ok(Py::new(py, waiting)?)
    }

    /// The frames of a message, the longest of them where a peer that shares memory sees them.
    fn frames<'py>(&self, message: &Bound<'py, PyAny>) -> PyResult<PyFrames<'py>> {
        if !self.shared {
            return PyFrames::new(message);
        }
        let mut frames = PyFrames::shared(message)?;
        frames.stage(message.py(), &self.core);
        Ok(frames)
    }

    fn send_all(&self, messages: &Bound<'_, PyAny>) -> Result<Sending> {
        let mut messages = messages
            .try_iter()?
            .map(|message| self.frames(&message?))
            .collect::<PyResult<Vec<_>>>()?;
        let mut borrowed: Vec<&mut dyn Frames> = messages
            .iter_mut()
            .map(|frames| frames as &mut dyn Frames)
            .collect();
        Ok(self.core.send_many(&mut borrowed)?)
    }

    fn wait_for(&self, py: Python<'_>, sending: Sending, timeout: Option<f64>) -> Result<()> {
        let Some(end) = sending.awaited(&self.limits) else {
            return Ok(());
        };
        let deadline = to_deadline(timeout);
        let waited = retry(py, || self.core.drain(end, deadline));
        if waited.is_err() {
            let _ = self.core.own(); // the buffers are the caller's again
        }
        waited.within(timeout)
    }
}

pub fn limits_of(given: Option<Bound<'_, PyDict>>) -> Result<Limits> {
    let mut limits = Limits::of_messages();
    let Some(given) = given else {
        return Ok(limits);
    };
    for (name, value) in given {
        let name: String = name.extract()?;
        match name.as_str() {
            "message_bytes_max" => limits.frame_bytes_max = value.extract()?,
            "frames_max" => limits.segments_max = value.extract()?,
            "inbox_bytes_max" => limits.inbox_bytes_max = value.extract()?,
            "outbox_bytes_high" => limits.outbox_bytes_high = value.extract()?,
            "outbox_bytes_low" => limits.outbox_bytes_low = value.extract()?,
            "outbox_bytes_max" => limits.outbox_bytes_max = value.extract()?,
            _ => return Err(config(format!("unknown limit {name:?} of connections"))),
        }
    }
    Ok(limits)
}
