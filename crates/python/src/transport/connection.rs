//! One end of a connection for Python.
//!
//! Nonblocking calls are made with the GIL held: they are bounded, and a hand-over costs more
//! than they do. Only waiting detaches. Lent buffers are given back outside of the core's lock.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value
#![allow(clippy::too_many_arguments)] // they are Python's

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use forebay_transport::calls::{Connection as Core, Handshake, Options, Outgoing, Taker, Work};
use forebay_transport::limit;
use forebay_transport::link::{Admission, Head};
use forebay_transport::stream::Wire;
use forebay_transport::wire::{Codec, Reason, Role};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use super::conversion::{
    Segments, call_to_python, outcome_to_python, to_codec, to_duration, to_head, to_payloads,
};
use super::lend;
use super::tls::seal;
use super::wait::{Stop, raise, retry};
use crate::error::transport_error;
use crate::sys::descriptor;

/// One end of a connection over a stream socket, or TLS over one.
///
/// Any thread may call any method. Waiting methods let go of the GIL.
#[pyclass(frozen, module = "forebay._core")]
pub struct Connection {
    /// Shared with a dispatcher that has taken it over.
    pub core: Arc<Core>,
}

fn options(py: Python<'_>, server: bool, peer: &str) -> Options {
    let role = if server { Role::Server } else { Role::Caller };
    let version = py.version_info();
    Options {
        runtime: u32::from(version.major) << 8 | u32::from(version.minor),
        ..Options::new(role, peer)
    }
}

impl Connection {
    /// Take over a socket, in a newly forked service.
    pub(crate) fn adopt(&self, py: Python<'_>, socket: OwnedFd) -> PyResult<()> {
        self.core
            .adopt(socket)
            .map_err(|e| transport_error(py, &e, None))
    }
}

#[pymethods]
impl Connection {
    /// Take over the connected socket `descriptor`; it is closed even if this raises.
    #[new]
    #[pyo3(signature = (descriptor, *, server = false, peer = "the peer", tls = None, host = "", token = None, expected = None, trusted = false, by_reference = true))]
    fn new(
        py: Python<'_>,
        descriptor: RawFd,
        server: bool,
        peer: &str,
        tls: Option<Bound<'_, PyAny>>,
        host: &str,
        token: Option<Vec<u8>>,
        expected: Option<Vec<u8>>,
        trusted: bool,
        by_reference: bool,
    ) -> PyResult<Self> {
        let socket = descriptor::take(descriptor)?;
        let wire = match tls {
            Some(tls) => Wire::from(seal(py, socket, &tls, host)?),
            None => Wire::from(socket),
        };
        let handshake = Handshake {
            admission: expected.map_or(Admission::Anybody, Admission::Token),
            token,
            trusted,
        };
        let options = Options {
            handshake,
            lends: by_reference,
            ..options(py, server, peer)
        };
        let core = Core::new(wire, options).map_err(|e| transport_error(py, &e, None))?;
        Ok(Self {
            core: Arc::new(core),
        })
    }

    /// The serving end of a connection to be, see `Cradle`.
    #[staticmethod]
    fn unconnected(py: Python<'_>, peer: &str) -> Self {
        Self {
            core: Arc::new(Core::unconnected(options(py, true, peer))),
        }
    }

    /// Go on with a socket whose preface was said by another process; `met`: and the server's was read.
    #[staticmethod]
    fn resume(py: Python<'_>, descriptor: RawFd, peer: &str, met: bool) -> PyResult<Self> {
        let core = Core::resume(descriptor::take(descriptor)?, options(py, false, peer), met)
            .map_err(|e| transport_error(py, &e, None))?;
        Ok(Self {
            core: Arc::new(core),
        })
    }

    /// Whether another process could go on from here, but for `owed` calls.
    fn at_rest(&self, py: Python<'_>, owed: usize) -> PyResult<bool> {
        self.core
            .is_quiescent(owed)
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Wait until the peer has said who it is.
    fn meet(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = to_duration(timeout).and_then(|allowed| Instant::now().checked_add(allowed));
        retry(py, || self.core.handshake(deadline)).map_err(|stop| raise(py, stop, timeout))
    }

    /// Whether the peer's preface was read, and its token where one is asked for.
    fn is_met(&self, py: Python<'_>) -> PyResult<bool> {
        self.core
            .is_open()
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Leave the answer to a call to another process.
    fn disown(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.core
            .forget_call(id)
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Wait for the answer to a call of another process from now on.
    fn owe(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.core
            .expect_reply(id)
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Close our duplicate of the socket; other processes keep theirs.
    fn part(&self, py: Python<'_>) -> PyResult<()> {
        self.core
            .close_local()
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Call and wait. A plain reply is its head as `bytes`; see `outcome_to_python` for others.
    #[pyo3(signature = (codec, head, segments, timeout, generation))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        codec: u8,
        head: &Bound<'py, PyBytes>,
        segments: Segments<'py>,
        timeout: Option<f64>,
        generation: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let allowed = to_duration(timeout);
        let deadline = allowed.and_then(|allowed| Instant::now().checked_add(allowed));
        if self.core.outbox_bytes() > limit::OUTBOX_BYTES_HIGH {
            retry(py, || self.core.wait_for_room(deadline)).map_err(|e| raise(py, e, timeout))?;
        }
        let call = Outgoing {
            codec: to_codec(codec),
            one_way: false,
            remaining: allowed,
            generation,
            head: to_head(head),
            segments: to_payloads(segments)?,
        };
        let id = lend::start(py, &self.core, call, Taker::Thread)
            .map_err(|e| transport_error(py, &e, timeout))?;
        match retry(py, || self.core.wait(id, deadline)) {
            Ok(outcome) => {
                outcome_to_python(py, &self.core, to_codec(codec), outcome, timeout)?.into_result()
            }
            Err(Stop::Signal(error)) => {
                self.core
                    .cancel(id)
                    .map_err(|e| transport_error(py, &e, timeout))?;
                Err(error)
            }
            Err(stop) => Err(raise(py, stop, timeout)),
        }
    }

    /// Send a call without waiting; its outcome comes from `receive`.
    #[pyo3(signature = (codec, head, segments, timeout, generation, one_way = false))]
    fn start<'py>(
        &self,
        py: Python<'py>,
        codec: u8,
        head: &Bound<'py, PyBytes>,
        segments: Segments<'py>,
        timeout: Option<f64>,
        generation: u32,
        one_way: bool,
    ) -> PyResult<u64> {
        let call = Outgoing {
            codec: to_codec(codec),
            one_way,
            remaining: to_duration(timeout),
            generation,
            head: to_head(head),
            segments: to_payloads(segments)?,
        };
        lend::start(py, &self.core, call, Taker::Queue)
            .map_err(|e| transport_error(py, &e, timeout))
    }

    /// Send a call without waiting; its outcome comes from `settle`, see `hand_over`.
    fn begin<'py>(
        &self,
        py: Python<'py>,
        codec: u8,
        head: &Bound<'py, PyBytes>,
        segments: Segments<'py>,
        generation: u32,
    ) -> PyResult<u64> {
        let call = Outgoing {
            codec: to_codec(codec),
            one_way: false,
            remaining: None,
            generation,
            head: to_head(head),
            segments: to_payloads(segments)?,
        };
        lend::start(py, &self.core, call, Taker::Thread).map_err(|e| transport_error(py, &e, None))
    }

    /// Wait for the outcome of a call that was begun; past the timeout the call goes on. With `kept` it is put there too.
    #[pyo3(signature = (id, codec, timeout, kept = None))]
    fn settle<'py>(
        &self,
        py: Python<'py>,
        id: u64,
        codec: u8,
        timeout: Option<f64>,
        kept: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let deadline = to_duration(timeout).and_then(|allowed| Instant::now().checked_add(allowed));
        let outcome = retry(py, || self.core.wait_keeping_call(id, deadline))
            .map_err(|stop| raise(py, stop, timeout))?;
        let outcome = outcome_to_python(py, &self.core, to_codec(codec), outcome, timeout)?;
        let outcome = outcome.into_result()?;
        if let Some(kept) = kept {
            kept.set_item(id, &outcome)?;
        }
        Ok(outcome)
    }

    /// Have the outcome of a call that was begun come from `receive` (true) or `settle` (false).
    fn hand_over(&self, py: Python<'_>, id: u64, queue: bool) -> PyResult<()> {
        let taker = if queue { Taker::Queue } else { Taker::Thread };
        self.core
            .hand_over(id, taker)
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Read what is there; returns `(id, outcome)` of every call that finished.
    fn receive<'py>(&self, py: Python<'py>, codec: u8) -> PyResult<Bound<'py, PyList>> {
        let finished = self
            .core
            .receive()
            .map_err(|e| transport_error(py, &e, None))?;
        let list = PyList::empty(py);
        for (id, outcome) in finished {
            let outcome = outcome_to_python(py, &self.core, to_codec(codec), outcome, None)?;
            list.append((id, outcome.into_object(py)))?;
        }
        Ok(list)
    }

    /// Wait for a call; `None` once the peer has no more. See `call_to_python`.
    #[pyo3(signature = (timeout = None))]
    pub(crate) fn next_call<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let deadline = to_duration(timeout).and_then(|allowed| Instant::now().checked_add(allowed));
        match retry(py, || self.core.next_call(deadline)) {
            Ok(Some(call)) => call_to_python(py, call).map(Some),
            Ok(None) => Ok(None),
            Err(stop) => Err(raise(py, stop, timeout)),
        }
    }

    /// Take calls without looking for the next one from now on, as a worker does.
    fn rest(&self, py: Python<'_>) -> PyResult<()> {
        self.core
            .disable_spin()
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Wait for a call, or until a stream that runs need not wait: then `None`.
    fn next_work<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match retry(py, || self.core.next_work()).map_err(|stop| raise(py, stop, None))? {
            Work::Call(call) => call_to_python(py, call).map(Some),
            Work::Streams => Ok(None),
        }
    }

    /// Take up to `count` received calls without waiting.
    fn poll_calls<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let calls = self
            .core
            .poll_calls(count)
            .map_err(|e| transport_error(py, &e, None))?;
        calls
            .into_iter()
            .map(|call| call_to_python(py, call))
            .collect()
    }

    /// Take the ids of running calls whose callers cancelled or left.
    fn take_cancelled(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.core
            .take_cancelled()
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Take the ids of running streams that were given credit since.
    fn take_granted(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.core
            .take_granted()
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Take the ids of streams of the queue of which something has come since.
    fn take_news(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.core
            .take_ready()
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Streams that were left and may still run at the other side; reads what has come.
    fn streams_left(&self, py: Python<'_>) -> PyResult<usize> {
        self.core
            .cancelled_streams()
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Answer a call without waiting; true if nothing is left to send.
    #[pyo3(signature = (id, codec, head, segments = None))]
    fn reply<'py>(
        &self,
        py: Python<'py>,
        id: u64,
        codec: u8,
        head: &Bound<'py, PyBytes>,
        segments: Segments<'py>,
    ) -> PyResult<bool> {
        let (codec, head, segments) = (to_codec(codec), to_head(head), to_payloads(segments)?);
        let reply = |segments| self.core.reply(id, codec, head, segments);
        lend::send(py, segments, reply).map_err(|e| transport_error(py, &e, None))?;
        Ok(self.core.outbox_bytes() == 0)
    }

    /// Answer a call with a description of what it raised; true if nothing is left to send.
    fn fail(
        &self,
        py: Python<'_>,
        id: u64,
        codec: u8,
        head: &Bound<'_, PyBytes>,
    ) -> PyResult<bool> {
        self.core
            .fail(id, Reason::Raised, to_codec(codec), to_head(head))
            .map_err(|e| transport_error(py, &e, None))?;
        Ok(self.core.outbox_bytes() == 0)
    }

    /// The longest answer that both ends take, in bytes.
    #[getter]
    fn answer_bytes_max(&self, py: Python<'_>) -> PyResult<u64> {
        self.core
            .answer_bytes_max()
            .map_err(|e| transport_error(py, &e, None))
    }

    /// End a running stream whose time has run out.
    fn fail_expired(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.core
            .fail(id, Reason::Expired, Codec::Msgpack, Head::Borrowed(&[]))
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Answer a cancelled call.
    fn fail_cancelled(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.core
            .fail(id, Reason::Cancelled, Codec::Msgpack, Head::Borrowed(&[]))
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Wait until the kernel has everything queued so far.
    #[pyo3(signature = (timeout = None))]
    fn drain(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = to_duration(timeout).and_then(|allowed| Instant::now().checked_add(allowed));
        retry(py, || self.core.drain(deadline)).map_err(|stop| raise(py, stop, timeout))
    }

    /// Hand queued bytes to the kernel; true if nothing is left.
    fn flush(&self, py: Python<'_>) -> PyResult<bool> {
        self.core.flush().map_err(|e| transport_error(py, &e, None))
    }

    /// Give up a call; its late reply is dropped.
    fn cancel(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.core
            .cancel(id)
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Look at the socket: has the caller of this running call cancelled or left?
    fn is_cancelled(&self, py: Python<'_>, id: u64) -> PyResult<bool> {
        self.core
            .is_cancelled(id)
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Become the only reader.
    fn attach(&self, py: Python<'_>) -> PyResult<()> {
        self.core
            .attach()
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Give the reader's place up.
    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        self.core
            .detach()
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Say that no new calls are taken.
    fn goodbye(&self, py: Python<'_>) -> PyResult<()> {
        self.core
            .goodbye()
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Ask for a sign of life, counted in `pongs`.
    fn ping(&self, py: Python<'_>) -> PyResult<()> {
        self.core.ping().map_err(|e| transport_error(py, &e, None))
    }

    /// That of the call that was taken last.
    #[getter]
    fn generation(&self) -> u32 {
        self.core.generation()
    }

    /// Refuse calls of older generations.
    fn set_generation(&self, py: Python<'_>, generation: u32) -> PyResult<()> {
        self.core
            .set_generation(generation)
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Take over the peer's pidfd: once it is readable, the peer has ended.
    fn watch(&self, pidfd: RawFd) -> PyResult<()> {
        self.core.watch(descriptor::take(pidfd)?);
        Ok(())
    }

    /// The watched peer ended: deliver what it sent, then break.
    fn peer_died(&self, py: Python<'_>) -> PyResult<()> {
        self.core
            .peer_died()
            .map_err(|e| transport_error(py, &e, None))
    }

    /// Whether a selector should watch for readable and for writable.
    fn wants(&self, py: Python<'_>) -> PyResult<(bool, bool)> {
        self.core.wants().map_err(|e| transport_error(py, &e, None))
    }

    /// Whether input lies here of which the socket says nothing: `receive` again without waiting.
    #[getter]
    fn holds_received(&self) -> bool {
        self.core.holds_received()
    }

    /// The socket's descriptor, -1 once closed.
    fn fileno(&self) -> RawFd {
        self.core.descriptor().unwrap_or(-1)
    }

    /// Close now; waiting calls end with `ClosedError`.
    fn close(&self) {
        self.core.close();
    }

    /// The exception that ended the connection, or `None`.
    #[getter]
    fn fault(&self, py: Python<'_>) -> Option<PyErr> {
        self.core
            .fault()
            .map(|error| transport_error(py, &error, None))
    }

    #[getter]
    fn in_flight(&self) -> usize {
        self.core.in_flight()
    }

    #[getter]
    fn outbox_bytes(&self) -> usize {
        self.core.outbox_bytes()
    }

    /// Look at the socket where nobody reads it; whether a new call may succeed.
    fn probe(&self, py: Python<'_>) -> PyResult<bool> {
        self.core.probe().map_err(|e| transport_error(py, &e, None))
    }

    /// Whether the server said that it takes no new calls.
    #[getter]
    fn leaving(&self) -> bool {
        self.core.is_leaving()
    }

    #[getter]
    fn closed(&self) -> bool {
        self.core.is_closed()
    }

    /// Whether nothing more will come from the peer.
    #[getter]
    fn over(&self) -> bool {
        self.core.is_over()
    }

    /// Whether the kernel says that the peer is the same user.
    #[getter]
    fn trusted(&self) -> bool {
        self.core.is_trusted()
    }

    #[getter]
    fn peer(&self) -> &str {
        self.core.peer()
    }

    /// What was counted, as a dict.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.core.counters();
        let dict = PyDict::new(py);
        dict.set_item("sent_bytes", counters.sent_bytes)?;
        dict.set_item("received_bytes", counters.received_bytes)?;
        dict.set_item("outbox_bytes", counters.outbox_bytes)?;
        dict.set_item("inbox_bytes", counters.inbox_bytes)?;
        dict.set_item("inbox_calls", counters.inbox_calls)?;
        dict.set_item("in_flight", counters.in_flight)?;
        dict.set_item("late_replies", counters.late_replies)?;
        dict.set_item("expired", counters.expired)?;
        dict.set_item("stale", counters.stale)?;
        dict.set_item("cancelled", counters.cancelled)?;
        dict.set_item("pongs", counters.pongs)?;
        dict.set_item("lent_segments", counters.lent_segments)?;
        Ok(dict)
    }
}
