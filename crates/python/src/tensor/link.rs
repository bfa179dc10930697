//! `forebay._core.TensorLink`: a client's connection to one shard.
#![allow(clippy::doc_markdown)] // the comments are Python docstrings
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value
#![allow(clippy::too_many_arguments)] // they are Python's
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use forebay_tensor::shm::Reader;
use forebay_tensor::stream::{Batch, Fabric, Link, Settings, Until, Work};
use forebay_tensor::{Hello, Limits, Welcome};
use forebay_verbs::{Device, Offer};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use super::batch::{CoreBatch, CoreLink, TensorBatch, allowed, meanings, wait};
use super::handle::TensorHandle;
use super::plan::TensorPlan;
use super::port::TensorPort;
use super::request::{KEPT_BYTES_MAX, Request, bytes_of, pull_of};
use super::verbs::device_of;
use crate::error::{At, Result, closed};
use crate::fields::set_items;
use crate::memory::Arena;
use crate::sys::exports::Exports;
use crate::sys::kept;
use crate::sys::kept::KeptExports;
use crate::sys::lent::Lent;
use crate::transport::{MessageConnection, seconds};

/// The message with which a client begins.
#[pyfunction]
#[pyo3(signature = (slots, *, shared_memory = true, verbs = false))]
pub(crate) fn tensor_hello(
    py: Python<'_>,
    slots: u32,
    shared_memory: bool,
    verbs: bool,
) -> Bound<'_, PyBytes> {
    let bit = |wanted, bit| if wanted { bit } else { 0 };
    let fabrics = bit(shared_memory, Hello::SHARED_MEMORY) | bit(verbs, Hello::VERBS);
    PyBytes::new(py, &Hello { slots, fabrics }.encode())
}

/// A connection to one shard of a server. Any thread may use it.
#[pyclass(frozen, weakref, module = "forebay._core")]
pub(crate) struct TensorLink {
    pub(super) link: CoreLink,
    welcome: Welcome,
    /// "shm", or "stream: " and why; what it is without verbs.
    fabric: String,
    /// Why pulls do not go by verbs either.
    without_verbs: OnceLock<String>,
    /// Our end of a connection over verbs, until that is made.
    offer: Mutex<Option<Offer>>,
    liveness: Duration,
}

/// What pulls go by, once the link reads the owner's memory if that can be.
fn attach_reader(link: &CoreLink, welcome: &Welcome) -> String {
    let read = match welcome.shared_index {
        Some(location) => Reader::open(location, welcome.incarnation),
        None => Err("no shared memory was asked for, or the server offers none".to_owned()),
    };
    match read {
        Ok(reader) => {
            link.attach_reader(reader);
            "shm".to_owned()
        }
        Err(why) => format!("stream: {why}"),
    }
}

fn names_of(names: &Bound<'_, PyList>) -> Result<Vec<String>> {
    let texts = names
        .iter()
        .map(|name| Ok(name.cast::<PyString>()?.extract()?));
    texts.collect()
}

#[pymethods]
impl TensorLink {
    #[new]
    #[pyo3(signature = (connection, welcome, *, piece_bytes = 1 << 20, entries_max = 256, waiting_max = 65_536, liveness = 5.0))]
    fn new(
        py: Python<'_>,
        connection: PyRef<'_, MessageConnection>,
        welcome: &Bound<'_, PyAny>,
        piece_bytes: u64,
        entries_max: u32,
        waiting_max: u32,
        liveness: f64,
    ) -> Result<Self> {
        let peer = connection.peer_name().to_owned();
        let welcome = Welcome::decode(Lent::new(welcome)?.as_ref()).at(&peer)?;
        let limits = Limits {
            slots: welcome.slots,
            grant_bytes: welcome.grant_bytes,
            piece_bytes,
            entries_max,
            waiting_max,
            liveness: seconds(liveness)?,
        };
        let wire = connection.take_stream(py)?;
        let link = Link::new(wire, Settings { peer, limits })?;
        Ok(Self {
            fabric: attach_reader(&link, &welcome),
            link,
            welcome,
            without_verbs: OnceLock::new(),
            offer: Mutex::default(),
            liveness: limits.liveness,
        })
    }

    #[getter]
    fn peer(&self) -> &str {
        self.link.peer()
    }

    #[getter]
    fn slots(&self) -> u32 {
        self.welcome.slots
    }

    #[getter]
    fn grant_bytes(&self) -> u64 {
        self.welcome.grant_bytes
    }

    #[getter]
    fn incarnation(&self) -> u64 {
        self.welcome.incarnation
    }

    #[getter]
    fn note<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.welcome.note)
    }

    /// What pulls go by: "shm", "verbs", or "stream: " and why.
    #[getter]
    fn fabric(&self, py: Python<'_>) -> String {
        match (
            py.detach(|| self.link.verbs_counters()),
            self.without_verbs.get(),
        ) {
            (Some(Ok(_)), _) => match Device::get().ok().and_then(|it| it.registry().reason()) {
                Some(why) => format!("verbs; not into all memory: {why}"),
                None => "verbs".to_owned(),
            },
            (Some(Err(why)), _) => format!("stream: verbs were lost: {why}"),
            (None, Some(why)) => format!("{}; {why}", self.fabric),
            (None, None) => self.fabric.clone(),
        }
    }

    /// Whether the server has an RDMA device, and was asked.
    #[getter]
    fn offers_verbs(&self) -> bool {
        !self.welcome.verbs.is_empty()
    }

    /// Make a queue pair of the process's device, which knows the arena's memory from here on.
    ///
    /// Returns:
    ///     The hello of the connection that is to be its lifeline; `use_verbs` goes on with that.
    ///
    /// Raises:
    ///     ConfigError: there is no device, with what is missing. BrokenError: it gives no queue pair.
    fn offer_verbs<'py>(
        &self,
        py: Python<'py>,
        arena: PyRef<'_, Arena>,
        slots: u32,
    ) -> Result<Bound<'py, PyBytes>> {
        let device = device_of(py, &arena)?;
        let made = py.detach(|| Offer::new(&device, slots));
        let made = made.at("the RDMA device")?;
        let hello = Hello::of_lifeline(slots, &made.introduction());
        *self.offer() = Some(made);
        Ok(PyBytes::new(py, &hello))
    }

    /// Make pulls into the offer's arena over verbs from now on.
    ///
    /// Args:
    ///     connection: on which the hello of `offer_verbs` was sent; its stream becomes the lifeline.
    ///     welcome: what was answered.
    ///     needed: without verbs the link is broken; otherwise the stream takes over where they are lost.
    ///
    /// Raises:
    ///     ConfigError and others: the server's refusal. BrokenError: it was started anew meanwhile, or the device refuses.
    #[pyo3(signature = (connection, welcome, *, needed))]
    fn use_verbs(
        &self,
        py: Python<'_>,
        connection: PyRef<'_, MessageConnection>,
        welcome: &Bound<'_, PyAny>,
        needed: bool,
    ) -> Result<()> {
        let peer = self.link.peer();
        let welcome = Welcome::decode(Lent::new(welcome)?.as_ref()).at(peer)?;
        if welcome.incarnation != self.welcome.incarnation {
            let why = "the server was started anew while verbs were set up".to_owned();
            return Err(forebay_tensor::Error::Broken { why }).at(peer);
        }
        let offer = self.offer().take();
        let offer = offer.ok_or_else(|| closed("nothing was offered"))?;
        let lifeline = connection.take_stream(py)?;
        let (liveness, is_needed) = (self.liveness, needed);
        let accepted = py.detach(|| {
            let endpoint = offer.connect(&welcome.verbs)?.into_endpoint();
            Ok(self.link.attach_fabric(Fabric {
                endpoint,
                lifeline,
                liveness,
                is_needed,
            }))
        });
        Ok(accepted.at(peer)??)
    }

    /// Have `fabric` state why pulls do not go by verbs.
    fn refuse_verbs(&self, why: String) {
        _ = self.without_verbs.set(why); // the first reason stays
    }

    /// Have no block of the arena be kept for the next pull into it; whether there may have been one.
    fn leave_blocks(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            self.link.release_blocks();
            self.link.has_verbs()
        })
    }

    /// Whether it was closed, or found broken; the socket is not looked at.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        !py.detach(|| self.link.is_open())
    }

    /// Look at the socket without waiting; whether the link may be used. Beside shared memory a look is good for 1 ms, and
    /// receives nothing.
    fn probe(&self, py: Python<'_>) -> bool {
        self.link.is_owner_alive() || py.detach(|| self.link.probe())
    }

    /// Get rows from shared memory, if that can be done at once; otherwise False, and `out` means nothing.
    fn read(
        &self,
        py: Python<'_>,
        handle: &Bound<'_, TensorHandle>,
        first: &Bound<'_, PyAny>,
        count: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
    ) -> Result<bool> {
        // No request is made of it: one allocation less counts, beside a copy of 4 KiB.
        let mut exports = Exports::with_room(2);
        let pull = pull_of(&mut exports, handle.get(), (first, count), out)?;
        let works = [Work::Pull(pull)];
        let read = || self.link.read(&works, |_, _| {});
        if bytes_of(&works) <= KEPT_BYTES_MAX {
            return Ok(read());
        }
        Ok(py.detach(read))
    }

    /// Prepare pulls that are read from shared memory again and again.
    fn plan(&self, pulls: &Bound<'_, PyAny>) -> Result<TensorPlan> {
        let request = Request::new(Some(pulls), None, 0)?;
        Ok(TensorPlan::new(self.link.clone(), request))
    }

    /// Ask what names mean, and wait.
    #[pyo3(signature = (names, timeout = None))]
    fn look_up<'py>(
        &self,
        py: Python<'py>,
        names: &Bound<'py, PyList>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyList>> {
        let batch = self.ask(py, names, timeout, None)?;
        let waited = wait(py, &self.link, &batch, Until::All, None);
        if waited.is_err() {
            py.detach(|| self.link.cancel(&batch));
        }
        waited.and_then(|()| meanings(py, &batch))
    }

    /// Get rows, and wait for all of them.
    ///
    /// Args:
    ///     pulls: tuples `(handle, first, count, out)` or `(handle, indices, None, out)`, with the rows' places in `out`
    ///         as a fifth field where they do not follow each other. `out` is a writable C-contiguous buffer of as many
    ///         rows; indices and places are rows of int64 or uint64. Lent until this returns.
    ///     timeout: seconds for all of it.
    ///     versions: a uint64 array of as many numbers, for the version that each pull is of; 0 where it failed.
    ///
    /// Raises:
    ///     The error of the first pull, in the order of the list, that failed, once all have ended: StaleError,
    ///     OutOfRangeError, ConfigError, LimitError, DeadlineError, BrokenError or ProtocolError with the server's address,
    ///     ClosedError.
    ///
    /// Threads: any number at once. Cancellation: a signal handler that raises gives up what has not ended; memory where
    /// bytes may still come is kept, and counted by its arena as in quarantine, until they have or the link is closed.
    /// Cost: a system call or two for 16 pulls of 4 KiB; no allocation per pull.
    #[pyo3(signature = (pulls, timeout = None, versions = None))]
    fn pull_many(
        &self,
        py: Python<'_>,
        pulls: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        versions: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        let blocks = versions.is_none() && self.link.has_verbs();
        let request = Request::with_blocks(Some(pulls), None, 1, blocks)?;
        self.run(py, request, timeout, versions)
    }

    /// Set rows or add to them, and wait for all of them.
    ///
    /// Args:
    ///     pushes: tuples `(handle, first, count, values, add)` or `(handle, indices, None, values, add)`, with places as
    ///         `pull_many`. `values` is any C-contiguous buffer; not changed until this returns.
    ///     timeout, versions: as `pull_many`; the versions that the pushes made.
    ///
    /// Raises, threads, cancellation, cost: as `pull_many`. A push that failed with DeadlineError, BrokenError or
    /// ClosedError may have been applied.
    #[pyo3(signature = (pushes, timeout = None, versions = None))]
    fn push_many(
        &self,
        py: Python<'_>,
        pushes: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        versions: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        let request = Request::new(None, Some(pushes), 1)?;
        self.run(py, request, timeout, versions)
    }

    /// Begin, without waiting: `TensorBatch.wait` does. `versions`: `TensorBatch.version` will be asked.
    #[pyo3(signature = (pulls, pushes = None, timeout = None, *, versions = false))]
    fn begin(
        &self,
        py: Python<'_>,
        pulls: &Bound<'_, PyAny>,
        pushes: Option<&Bound<'_, PyAny>>,
        timeout: Option<f64>,
        versions: bool,
    ) -> Result<TensorBatch> {
        let blocks = !versions && self.link.has_verbs();
        let request = Request::with_blocks(Some(pulls), pushes, 0, blocks)?;
        let (works, memory) = request.wanted();
        let batch = Batch::new(memory, works.len());
        py.detach(|| self.link.begin(&batch, works, allowed(timeout)))?;
        Ok(TensorBatch::new(self.link.clone(), batch))
    }

    /// Begin, as a batch whose progress a port reports.
    ///
    /// Args:
    ///     port, ticket: where, and under which number.
    ///     pulls, pushes: as `pull_many` and `push_many`; lent until they have ended and the batch object is gone.
    ///     each: report whenever something of it has ended, not only when all has.
    ///     timeout: seconds, after which what has not ended does with DeadlineError.
    ///     driver: the port that drives it, where that is not `port`.
    ///     versions: `TensorBatch.version` will be asked.
    #[pyo3(signature = (port, ticket, pulls, pushes = None, *, each = false, timeout = None, driver = None, versions = false))]
    fn start(
        &self,
        py: Python<'_>,
        port: PyRef<'_, TensorPort>,
        ticket: u64,
        pulls: &Bound<'_, PyAny>,
        pushes: Option<&Bound<'_, PyAny>>,
        each: bool,
        timeout: Option<f64>,
        driver: Option<PyRef<'_, TensorPort>>,
        versions: bool,
    ) -> Result<TensorBatch> {
        let blocks = !versions && self.link.has_verbs();
        let request = Request::with_blocks(Some(pulls), pushes, 0, blocks)?;
        let (works, memory) = request.wanted();
        let report = (port.core(), ticket, each);
        let lent = (memory, works.len());
        let by = (allowed(timeout), driver.as_deref().map(TensorPort::core));
        let started = py.detach(|| self.link.start(report, lent, works, by));
        let batch = started?;
        Ok(TensorBatch::new(self.link.clone(), batch))
    }

    /// Ask what names mean, as a batch that a port reports: `TensorBatch.meanings`.
    #[pyo3(signature = (port, ticket, names, timeout = None))]
    fn start_look_up(
        &self,
        py: Python<'_>,
        port: PyRef<'_, TensorPort>,
        ticket: u64,
        names: &Bound<'_, PyList>,
        timeout: Option<f64>,
    ) -> Result<TensorBatch> {
        let batch = self.ask(py, names, timeout, Some((&port, ticket)))?;
        Ok(TensorBatch::new(self.link.clone(), batch))
    }

    /// Have the port's thread receive what comes for calls that were given up, while no other thread does: their memory comes
    /// back then, at the latest with the connection's liveness.
    fn attend(&self, py: Python<'_>, port: PyRef<'_, TensorPort>) {
        let port = port.core();
        py.detach(|| self.link.keep_driving(port));
    }

    /// Close now; what is outstanding ends with `ClosedError`. Idempotent.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.link.close());
        kept::end_exports(py);
    }

    /// What was counted.
    fn metrics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let counted = py.detach(|| self.link.counters());
        let metrics = PyDict::new(py);
        set_items!(metrics, counted; outstanding waiting sent_bytes received_bytes);
        metrics.set_item("fabric", self.fabric(py))?;
        let verbs = py.detach(|| self.link.verbs_counters());
        let verbs = verbs.and_then(Result::ok);
        let verbs = verbs.unwrap_or_default();
        metrics.set_item("verbs_pulls", verbs.pulls)?;
        metrics.set_item("verbs_bytes", verbs.bytes)?;
        metrics.set_item("verbs_refused", verbs.refused)?;
        let shm = self.link.shm_counters().unwrap_or_default();
        metrics.set_item("shm_pulls", shm.pulls)?;
        metrics.set_item("shm_bytes", shm.bytes)?;
        metrics.set_item("shm_busy", shm.busy)?;
        metrics.set_item("shm_stale", shm.stale)?;
        metrics.set_item("shm_elsewhere", shm.elsewhere)?;
        metrics.set_item("shm_chunks", shm.chunks)?;
        Ok(metrics)
    }
}

impl TensorLink {
    fn offer(&self) -> MutexGuard<'_, Option<Offer>> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(
        &self,
        py: Python<'_>,
        names: &Bound<'_, PyList>,
        timeout: Option<f64>,
        port: Option<(&TensorPort, u64)>,
    ) -> Result<CoreBatch> {
        let names: Vec<String> = names_of(names)?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let memory = KeptExports::new(Exports::with_room(0));
        let port = port.map(|(port, ticket)| (port.core(), ticket));
        Ok(py.detach(|| self.link.look_up(memory, &names, allowed(timeout), port))?)
    }
}
