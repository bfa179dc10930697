//! The dispatcher's handle. Its own thread never attaches to Python.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value
#![allow(clippy::too_many_arguments)] // they are Python's

use std::collections::HashMap;
use std::num::NonZeroI32;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_base::time::{deadline, left};
use forebay_executor::dispatcher::{Dispatcher, Order, StartedWorker, Waited};
use forebay_executor::error::Error;
use forebay_executor::feed::{Happening, ServiceChange};
use forebay_executor::id::RequestId;
use forebay_executor::machine::Capacity;
use forebay_executor::message::options as options_in;
use forebay_executor::request::{Cause, Death, Options};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use super::settings::{prune_rule, settings_of, workers_or_default};
use super::{moved, seen};
use crate::error::{Result, broken};
use crate::sys::descriptor::take;
use crate::transport::Connection;

/// A call for the main thread: its ticket, its method, its arguments in msgpack, and who asks.
type AskedSeen<'py> = (u64, String, Bound<'py, PyBytes>, String);

/// The thread that queues requests and gives them to workers.
///
/// Any thread may call any method. What waits lets go of the GIL, and returns for a signal after its handlers ran.
#[pyclass(frozen, module = "forebay._core", name = "Dispatcher")]
pub struct PyDispatcher {
    core: Dispatcher,
    plain: Arc<Options>,
    names: Mutex<HashMap<String, Arc<str>>>,
}

#[pymethods]
impl PyDispatcher {
    #[new]
    fn new(py: Python<'_>, settings: &Bound<'_, PyDict>) -> Result<Self> {
        let settings = settings_of(settings)?;
        let core = py.detach(|| Dispatcher::start(settings))?;
        Ok(Self {
            core,
            plain: Arc::default(),
            names: Mutex::default(),
        })
    }

    #[pyo3(signature = (name, arguments, options = None))]
    fn submit(&self, name: &str, arguments: &[u8], options: Option<&[u8]>) -> Result<u64> {
        let options = match options {
            Some(blob) => options_in(blob, &Arc::default(), self.core.now())?.options,
            None => Arc::clone(&self.plain),
        };
        let name = self.name(name);
        Ok(self.core.submit(name, arguments.into(), options)?)
    }

    fn finished<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> Result<Option<Bound<'py, PyList>>> {
        let Some(finished) = wait(py, timeout, |left| self.core.finished().take(left))? else {
            return Ok(None);
        };
        let list = finished.into_iter().map(|one| {
            let payload = PyBytes::new(py, &one.payload);
            (one.ticket, one.kind as u8, payload)
        });
        Ok(Some(PyList::new(py, list.collect::<Vec<_>>())?))
    }

    fn cancel(&self, py: Python<'_>, ticket: u64) -> Result<bool> {
        Ok(py.detach(|| self.core.cancel(ticket))?)
    }

    fn hold(&self, py: Python<'_>, reason: Option<&str>) -> Result<()> {
        let reason = reason.map(Arc::from);
        Ok(py.detach(|| self.core.hold(reason))?)
    }

    fn pause(&self, py: Python<'_>, reason: Option<&str>) -> Result<()> {
        let reason = reason.map(Arc::from);
        Ok(py.detach(|| self.core.pause(reason))?)
    }

    fn begin(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.core.begin())?)
    }

    fn unmovable(&self, py: Python<'_>) -> Result<usize> {
        Ok(py.detach(|| self.core.unmovable())?)
    }

    fn give<'py>(&self, py: Python<'py>, within: f64) -> Result<moved::HandoverSeen<'py>> {
        let within = Duration::try_from_secs_f64(within).unwrap_or(Duration::MAX);
        let given = py.detach(|| self.core.give(within))?;
        Ok(moved::given(py, given)?)
    }

    fn cordon(&self, py: Python<'_>, by: &str, reason: &str, dispatches: bool) -> Result<()> {
        let (by, reason) = (by.into(), reason.into());
        Ok(py.detach(|| self.core.cordon(by, reason, dispatches))?)
    }

    fn uncordon(&self, py: Python<'_>) -> Result<bool> {
        Ok(py.detach(|| self.core.uncordon())?)
    }

    fn orders<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> Result<Option<Vec<Bound<'py, PyTuple>>>> {
        let Some(orders) = wait(py, timeout, |left| self.core.orders(left))? else {
            return Ok(None);
        };
        let orders = orders.into_iter().map(|order| order_of(py, order));
        orders.collect::<Result<_>>().map(Some)
    }

    fn orders_fileno(&self) -> RawFd {
        self.core.orders_fileno()
    }

    #[pyo3(signature = (slot, connection, pid, pidfd, generation = 0, is_measured = true))]
    fn worker_ready(
        &self,
        slot: u32,
        connection: &Connection,
        pid: i32,
        pidfd: RawFd,
        generation: u32,
        is_measured: bool,
    ) -> Result<()> {
        let started = StartedWorker {
            connection: Arc::clone(&connection.core),
            pid,
            pidfd: take(pidfd)?,
            generation,
            is_measured,
        };
        Ok(self.core.worker_ready(slot, started)?)
    }

    fn worker_failed(&self, slot: u32, reason: &str) -> Result<()> {
        Ok(self.core.worker_failed(slot, reason.into())?)
    }

    fn worker_died(
        &self,
        slot: u32,
        cause: &str,
        pid: i32,
        exit_code: Option<i32>,
        signal: Option<i32>,
        peak_bytes: Option<u64>,
        limit_bytes: Option<u64>,
        last_output: &str,
    ) -> Result<()> {
        let death = Death {
            cause: cause.into(),
            pid,
            exit_code,
            signal,
            peak_bytes,
            limit_bytes,
            last_output: last_output.into(),
        };
        Ok(self.core.worker_died(slot, death)?)
    }

    fn calls<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> Result<Option<Vec<AskedSeen<'py>>>> {
        let Some(asked) = wait(py, timeout, |left| self.core.admin_calls().take(left))? else {
            return Ok(None);
        };
        let asked = asked.into_iter().map(|one| {
            let arguments = PyBytes::new(py, &one.arguments);
            (one.ticket, one.method, arguments, one.by.to_string())
        });
        Ok(Some(asked.collect()))
    }

    fn answer(&self, ticket: u64, head: Vec<u8>) -> Result<()> {
        Ok(self.core.answer(ticket, head)?)
    }

    fn calls_fileno(&self) -> RawFd {
        self.core.admin_calls().fileno()
    }

    fn figures<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let figures = py.detach(|| self.core.figures())?;
        Ok(seen::figures(py, &figures)?)
    }

    fn metrics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let exposition = py.detach(|| self.core.metrics())?;
        Ok(seen::metrics(py, &exposition)?)
    }

    #[pyo3(signature = (event, *, service, pid, cause = None))]
    fn note_event(&self, event: &str, service: &str, pid: i32, cause: Option<&str>) -> Result<()> {
        let change = ServiceChange::of_word(event);
        let unknown = || Error::Config(format!("there is no event {event:?} of a service"));
        Ok(self.core.note(Happening::Service {
            change: change.ok_or_else(unknown)?,
            service: service.into(),
            pid,
            cause: cause.map(Cause::of_death),
        })?)
    }

    fn usage<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        Ok(seen::metrics(py, &self.core.usage())?)
    }

    fn workers<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyDict>>> {
        let workers = py.detach(|| self.core.workers())?;
        let workers = workers.iter().map(|worker| seen::worker(py, worker));
        Ok(workers.collect::<PyResult<_>>()?)
    }

    fn why<'py>(&self, py: Python<'py>, id: u64) -> Result<Option<Bound<'py, PyDict>>> {
        let why = py.detach(|| self.core.why(RequestId(id)))?;
        let why = why.map(|why| seen::why(py, &why));
        Ok(why.transpose()?)
    }

    fn install(&self, py: Python<'_>, manifest: &[u8]) -> Result<()> {
        Ok(py.detach(|| self.core.install(manifest))?)
    }

    fn watch_sources(&self, py: Python<'_>, paths: Vec<PathBuf>) -> Result<()> {
        Ok(py.detach(|| self.core.watch_sources(paths))?)
    }

    fn schedules<'py>(&self, py: Python<'py>) -> Result<Vec<Bound<'py, PyDict>>> {
        let schedules = py.detach(|| self.core.schedules())?;
        let schedules = schedules.iter().map(|one| seen::schedule(py, one));
        Ok(schedules.collect::<PyResult<_>>()?)
    }

    fn set_schedule(&self, py: Python<'_>, name: String, paused: bool) -> Result<bool> {
        Ok(py.detach(|| self.core.set_schedule(name, paused))?)
    }

    #[pyo3(signature = (workers_max, guaranteed, cores_milli = None, memory_limit = None))]
    fn set_capacity(
        &self,
        py: Python<'_>,
        workers_max: u32,
        guaranteed: [u32; 3],
        cores_milli: Option<u32>,
        memory_limit: Option<u64>,
    ) -> Result<()> {
        let capacity = Capacity {
            workers_max: workers_or_default(workers_max),
            guaranteed,
            cores_milli,
            memory_limit,
        };
        Ok(py.detach(|| self.core.set_capacity(capacity))?)
    }

    fn set_gateway(&self, py: Python<'_>, pid: Option<i32>) -> Result<()> {
        let pid = pid.and_then(NonZeroI32::new);
        Ok(py.detach(|| self.core.set_gateway(pid))?)
    }

    fn audit(&self, act: String, by: &str, id: Option<u64>, object: String) -> Result<()> {
        Ok(self.core.audit(act, by.into(), id.map(RequestId), object)?)
    }

    #[pyo3(signature = (ids, by = ""))]
    fn retry<'py>(
        &self,
        py: Python<'py>,
        ids: Vec<u64>,
        by: &str,
    ) -> Result<Vec<Bound<'py, PyDict>>> {
        let ids: Vec<_> = ids.into_iter().map(RequestId).collect();
        let by = by.into();
        let done = py.detach(|| self.core.retry(&ids, &by))?;
        let retried = ids.iter().zip(&done);
        let retried =
            retried.map(|(id, done)| seen::retried(py, *id, done.as_ref().err().map(|it| &**it)));
        Ok(retried.collect::<PyResult<_>>()?)
    }

    fn prune<'py>(&self, py: Python<'py>, rule: &Bound<'py, PyDict>) -> Result<Bound<'py, PyDict>> {
        let rule = prune_rule(rule, self.core.now())?;
        let pruned = py.detach(|| self.core.prune(rule))?;
        Ok(seen::pruned(py, &pruned.map_err(broken)?)?)
    }

    fn drain(&self, py: Python<'_>, timeout: f64) -> Result<bool> {
        let allowed = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX);
        let mut drained = self.core.drain()?;
        let deadline = deadline(Some(allowed));
        loop {
            let left = left(deadline);
            let slice = left.map_or(SIGNALS_LOOK, |left| left.min(SIGNALS_LOOK));
            match py.detach(|| drained.wait(slice)) {
                Some(drained) => return Ok(drained),
                None if left.is_some_and(|left| left.is_zero()) => return Ok(false),
                None => py.check_signals()?,
            }
        }
    }

    fn wake(&self) {
        self.core.wake();
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| self.core.close());
    }
}

/// How often a wait on a channel looks for signals.
const SIGNALS_LOOK: Duration = Duration::from_millis(50);

impl PyDispatcher {
    /// One copy of each name: submissions share it.
    fn name(&self, name: &str) -> Arc<str> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(name) {
            return Arc::clone(known);
        }
        let fresh: Arc<str> = name.into();
        if names.len() < NAMES_MAX {
            names.insert(name.to_owned(), Arc::clone(&fresh));
        }
        fresh
    }
}

/// Names that are remembered; a program submits a few.
const NAMES_MAX: usize = 1_024;

/// Wait without the GIL; run signal handlers when interrupted, then wait on.
fn wait<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    take: impl Fn(Option<Duration>) -> Result<Waited<T>, Error> + Send + Sync,
) -> Result<Option<Vec<T>>> {
    let allowed = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let deadline = deadline(allowed);
    loop {
        let left = left(deadline);
        match py.detach(|| take(left))? {
            Waited::Items(items) => return Ok(Some(items)),
            Waited::Closed => return Ok(None),
            Waited::Interrupted => py.check_signals()?,
        }
    }
}

fn order_of(py: Python<'_>, order: Order) -> Result<Bound<'_, PyTuple>> {
    let order = match order {
        Order::Start { slot, lane, nonce } => {
            ("start", slot, lane.word(), nonce).into_bound_py_any(py)
        }
        Order::Stop { slot } => ("stop", slot).into_bound_py_any(py),
        Order::Died { slot } => ("died", slot).into_bound_py_any(py),
        Order::Expelled { slot } => ("expelled", slot).into_bound_py_any(py),
        Order::Sources(paths) => ("sources", paths).into_bound_py_any(py),
        Order::Idle => ("idle",).into_bound_py_any(py),
        Order::Rebound => ("rebound",).into_bound_py_any(py),
        Order::Warn(text) => ("warn", text).into_bound_py_any(py),
    };
    Ok(order?.cast_into()?)
}
