//! One end of a connection for Python.
//!
//! Nonblocking calls are made with the GIL held: they are bounded, and a hand-over costs more
//! than they do. Only waiting detaches. Lent buffers are given back outside of the core's lock.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value
#![allow(clippy::too_many_arguments)] // they are Python's

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use forebay_transport::calls::{Connection as Core, Options, Outgoing, Taker, Work};
use forebay_transport::link::{Admission, Handshake, Head};
use forebay_transport::wire::{Codec, Reason, Role};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use super::conversion::{
    Segments, call_to_python, outcome_to_python, to_codec, to_deadline, to_head, to_outgoing,
    to_payloads, to_taker, wait_for_room,
};
use super::lend;
use super::tls::wire_over;
use super::wait::{Stop, retry};
use crate::error::{Result, Within, transport};
use crate::fields::set_items;
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
    pub(crate) fn adopt(&self, socket: OwnedFd) -> Result<()> {
        Ok(self.core.adopt(socket)?)
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
        tls: Option<&Bound<'_, PyAny>>,
        host: &str,
        token: Option<Vec<u8>>,
        expected: Option<Vec<u8>>,
        trusted: bool,
        by_reference: bool,
    ) -> Result<Self> {
        let wire = wire_over(descriptor::take(descriptor)?, tls, host)?;
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
        let core = Arc::new(Core::new(wire, options)?);
        Ok(Self { core })
    }

    /// The serving end of a connection to be, see `PreforkLoop`.
    #[staticmethod]
    fn unconnected(py: Python<'_>, peer: &str) -> Self {
        Self {
            core: Arc::new(Core::unconnected(options(py, true, peer))),
        }
    }

    /// Go on with a socket whose preface was said by another process; `is_open`: and the server's was read.
    #[staticmethod]
    fn resume(py: Python<'_>, descriptor: RawFd, peer: &str, is_open: bool) -> Result<Self> {
        let core = Core::resume(
            descriptor::take(descriptor)?,
            options(py, false, peer),
            is_open,
        )?;
        Ok(Self {
            core: Arc::new(core),
        })
    }

    /// Go on after another process has used the socket.
    fn renew(&self) -> Result<()> {
        Ok(self.core.renew()?)
    }

    /// Whether another process could go on from here, with `outstanding` calls in flight.
    fn is_quiescent(&self, outstanding: usize) -> Result<bool> {
        Ok(self.core.is_quiescent(outstanding)?)
    }

    /// Wait until the peer has said who it is.
    fn handshake(&self, py: Python<'_>, timeout: Option<f64>) -> Result<()> {
        let deadline = to_deadline(timeout);
        retry(py, || self.core.handshake(deadline)).within(timeout)
    }

    /// Whether the peer's preface was read, and its token where one is asked for.
    fn is_open(&self) -> Result<bool> {
        Ok(self.core.is_open()?)
    }

    /// Leave the answer to a call to another process.
    fn forget_call(&self, id: u64) -> Result<()> {
        Ok(self.core.forget_call(id)?)
    }

    /// Wait for the answer to a call of another process from now on.
    fn expect_reply(&self, id: u64) -> Result<()> {
        Ok(self.core.expect_reply(id, Taker::Thread)?)
    }

    /// Close our duplicate of the socket; other processes keep theirs.
    fn close_local(&self) -> Result<()> {
        Ok(self.core.close_local()?)
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
    ) -> Result<Bound<'py, PyAny>> {
        let deadline = to_deadline(timeout);
        wait_for_room(py, &self.core, deadline).within(timeout)?;
        let call = to_outgoing(codec, head, segments, timeout, generation)?;
        let id = lend::start(py, &self.core, call, Taker::Thread).within(timeout)?;
        match retry(py, || self.core.wait(id, deadline)) {
            Ok(outcome) => {
                outcome_to_python(py, &self.core, to_codec(codec), outcome, timeout)?.into_result()
            }
            Err(Stop::Signal(raised)) => {
                self.core.cancel(id).within(timeout)?;
                Err(raised.into())
            }
            Err(stop) => Err(stop.into_error(timeout)),
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
    ) -> Result<u64> {
        let call = Outgoing {
            one_way,
            ..to_outgoing(codec, head, segments, timeout, generation)?
        };
        lend::start(py, &self.core, call, Taker::Queue).within(timeout)
    }

    /// Send a call without waiting; its outcome comes from `settle`, see `hand_over`.
    fn begin<'py>(
        &self,
        py: Python<'py>,
        codec: u8,
        head: &Bound<'py, PyBytes>,
        segments: Segments<'py>,
        generation: u32,
    ) -> Result<u64> {
        let call = to_outgoing(codec, head, segments, None, generation)?;
        Ok(lend::start(py, &self.core, call, Taker::Thread)?)
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
    ) -> Result<Bound<'py, PyAny>> {
        let deadline = to_deadline(timeout);
        let outcome = retry(py, || self.core.wait_keeping_call(id, deadline)).within(timeout)?;
        let outcome = outcome_to_python(py, &self.core, to_codec(codec), outcome, timeout)?;
        let outcome = outcome.into_result()?;
        if let Some(kept) = kept {
            kept.set_item(id, &outcome)?;
        }
        Ok(outcome)
    }

    /// Have the outcome of a call that was begun come from `receive` (true) or `settle` (false).
    fn hand_over(&self, id: u64, queue: bool) -> Result<()> {
        Ok(self.core.hand_over(id, to_taker(queue))?)
    }

    /// Read what is there; returns `(id, outcome)` of every call that finished.
    fn receive<'py>(&self, py: Python<'py>, codec: u8) -> Result<Bound<'py, PyList>> {
        let finished = self.core.receive()?;
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
    ) -> Result<Option<Bound<'py, PyTuple>>> {
        let deadline = to_deadline(timeout);
        let call = retry(py, || self.core.next_call(deadline)).within(timeout)?;
        call.map(|call| call_to_python(py, call)).transpose()
    }

    /// Take calls without spinning for the next one from now on, as a worker does.
    fn disable_spin(&self) -> Result<()> {
        Ok(self.core.disable_spin()?)
    }

    /// Wait for a call, or until a stream that runs need not wait: then `None`.
    fn next_work<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyTuple>>> {
        match retry(py, || self.core.next_work()).within(None)? {
            Work::Call(call) => call_to_python(py, call).map(Some),
            Work::Streams => Ok(None),
        }
    }

    /// Take up to `count` received calls without waiting.
    fn poll_calls<'py>(&self, py: Python<'py>, count: usize) -> Result<Vec<Bound<'py, PyTuple>>> {
        let calls = self.core.poll_calls(count)?;
        calls
            .into_iter()
            .map(|call| call_to_python(py, call))
            .collect()
    }

    /// Take the ids of running calls whose callers cancelled or left.
    fn take_cancelled(&self) -> Result<Vec<u64>> {
        Ok(self.core.take_cancelled()?)
    }

    /// Take the ids of running streams that were given credit since.
    fn take_granted(&self) -> Result<Vec<u64>> {
        Ok(self.core.take_granted()?)
    }

    /// Take the ids of streams of the queue that have received something since.
    fn take_ready(&self) -> Result<Vec<u64>> {
        Ok(self.core.take_ready()?)
    }

    /// Streams that were given up and may still run at the other side; reads what has come.
    fn cancelled_streams(&self) -> Result<usize> {
        Ok(self.core.cancelled_streams()?)
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
    ) -> Result<bool> {
        let (codec, head, segments) = (to_codec(codec), to_head(head), to_payloads(segments)?);
        let reply = |segments| self.core.reply(id, codec, head, segments);
        lend::send(py, segments, reply)?;
        Ok(self.core.outbox_bytes() == 0)
    }

    /// Answer a call with a description of what it raised; true if nothing is left to send.
    fn fail(&self, id: u64, codec: u8, head: &Bound<'_, PyBytes>) -> Result<bool> {
        self.core
            .fail(id, Reason::Raised, to_codec(codec), to_head(head))?;
        Ok(self.core.outbox_bytes() == 0)
    }

    /// The longest answer that both ends take, in bytes.
    #[getter]
    fn answer_bytes_max(&self) -> Result<u64> {
        Ok(self.core.answer_bytes_max()?)
    }

    /// End a running stream whose time has run out.
    fn fail_expired(&self, id: u64) -> Result<()> {
        Ok(self
            .core
            .fail(id, Reason::Expired, Codec::Msgpack, Head::Borrowed(&[]))?)
    }

    /// Answer a cancelled call.
    fn fail_cancelled(&self, id: u64) -> Result<()> {
        Ok(self
            .core
            .fail(id, Reason::Cancelled, Codec::Msgpack, Head::Borrowed(&[]))?)
    }

    /// Wait until the kernel has everything queued so far.
    #[pyo3(signature = (timeout = None))]
    fn drain(&self, py: Python<'_>, timeout: Option<f64>) -> Result<()> {
        let deadline = to_deadline(timeout);
        retry(py, || self.core.drain(deadline)).within(timeout)
    }

    /// From now on let frames wait for `flush`.
    fn cork(&self) -> Result<()> {
        Ok(self.core.cork()?)
    }

    /// Hand queued bytes to the kernel; true if nothing is left.
    fn flush(&self) -> Result<bool> {
        Ok(self.core.flush()?)
    }

    /// Give up a call; its late reply is dropped.
    fn cancel(&self, id: u64) -> Result<()> {
        Ok(self.core.cancel(id)?)
    }

    /// Look at the socket: has the caller of this running call cancelled or left?
    fn is_cancelled(&self, id: u64) -> Result<bool> {
        Ok(self.core.is_cancelled(id)?)
    }

    /// Become the only reader.
    fn attach(&self) -> Result<()> {
        Ok(self.core.attach()?)
    }

    /// Stop being the reader.
    fn detach(&self) -> Result<()> {
        Ok(self.core.detach()?)
    }

    /// Announce that no new calls are taken.
    fn goodbye(&self) -> Result<()> {
        Ok(self.core.goodbye()?)
    }

    /// Ask for a sign of life, counted in `pongs`.
    fn ping(&self) -> Result<()> {
        Ok(self.core.ping()?)
    }

    /// That of the call that was taken last.
    #[getter]
    fn generation(&self) -> u32 {
        self.core.generation()
    }

    /// Refuse calls of older generations.
    fn set_generation(&self, generation: u32) -> Result<()> {
        Ok(self.core.set_generation(generation)?)
    }

    /// Take over the peer's pidfd: once it is readable, the peer has ended.
    fn watch(&self, pidfd: RawFd) -> Result<()> {
        self.core.watch(descriptor::take(pidfd)?);
        Ok(())
    }

    /// The watched peer ended: deliver what it sent, then break.
    fn peer_died(&self) -> Result<()> {
        Ok(self.core.peer_died()?)
    }

    /// Whether a selector should watch for readable and for writable.
    fn wants(&self) -> Result<(bool, bool)> {
        Ok(self.core.wants()?)
    }

    /// Whether input is buffered here, for which the socket is not readable: `receive` again without waiting.
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
    fn fault(&self) -> Option<PyErr> {
        let fault = self.core.fault()?;
        Some(transport(&fault, None).into())
    }

    #[getter]
    fn in_flight(&self) -> usize {
        self.core.in_flight()
    }

    #[getter]
    fn outbox_bytes(&self) -> usize {
        self.core.outbox_bytes()
    }

    /// Look at the socket where no thread reads it; whether a new call may succeed.
    fn probe(&self) -> Result<bool> {
        Ok(self.core.probe()?)
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
    fn counters<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let counters = self.core.counters();
        let dict = PyDict::new(py);
        set_items!(
            dict, counters;
            sent_bytes received_bytes outbox_bytes inbox_bytes inbox_calls in_flight
            late_replies expired stale cancelled pongs lent_segments
        );
        Ok(dict)
    }
}
