//! Both ends of a shared pool for Python: the lender, and a program that borrows.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_pool::Error;
use forebay_pool::lender::borrower::{Borrower as Core, Response};
use forebay_pool::lender::{Config, Lender as CoreLender, Turn};
use forebay_pool::wire::Launch;
use forebay_pool::wire::shared::{Kind, Reply, Request, Row};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::argument::{Pairs, PyLimits, discard_cause, limits_of, milliseconds};
use super::handle::PyHandle;
use super::wake_queue::WakeQueue;
use crate::error;
use crate::sys::descriptor::take;

/// The lender's end. One thread runs it.
#[pyclass(frozen, module = "forebay._core")]
pub struct Lender(Mutex<Option<CoreLender>>);

impl Lender {
    fn with<R>(
        &self,
        act: impl FnOnce(&mut CoreLender) -> forebay_pool::Result<R>,
    ) -> forebay_pool::Result<R> {
        act(self.lock().as_mut().ok_or(Error::Closed)?)
    }

    fn lock(&self) -> MutexGuard<'_, Option<CoreLender>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Lender {
    #[new]
    #[pyo3(signature = (path, *, wake, max_size, max_running, max_uses, lifetime_ms, private_bytes_max, spares, leases_max, waiters_max, start_ms, idle_ms, reset_ms))]
    #[allow(clippy::too_many_arguments)] // they are keywords in Python
    fn new(
        path: PathBuf,
        wake: RawFd,
        max_size: u32,
        max_running: u32,
        max_uses: u32,
        lifetime_ms: u64,
        private_bytes_max: u64,
        spares: u32,
        leases_max: usize,
        waiters_max: usize,
        start_ms: u64,
        idle_ms: u64,
        reset_ms: u64,
    ) -> PyResult<Self> {
        let config = Config {
            max_size,
            max_running,
            max_uses,
            lifetime_ms,
            private_bytes_max,
            spares,
            leases_max,
            waiters_max,
            start_ms,
            idle_ms,
            reset_ms,
        };
        let wake = take(wake)?;
        let lender = CoreLender::new(&path, config, wake.as_fd());
        // The poll set keeps what it watches, not the descriptor: Python's own stays open.
        let lender = lender.map_err(error::pool)?;
        Ok(Self(Mutex::new(Some(lender))))
    }

    /// Serve without the GIL until a keeper is wanted (True), `wake` is readable (False), or a person is to read something.
    fn run<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match py
            .detach(|| self.with(CoreLender::run))
            .map_err(error::pool)?
        {
            Turn::Keeper => true.into_bound_py_any(py),
            Turn::Woken => false.into_bound_py_any(py),
            Turn::Notice(text) => text.into_bound_py_any(py),
        }
    }

    fn handover(&self) -> PyResult<Option<(RawFd, RawFd, RawFd)>> {
        let handover = self.with(|lender| lender.pool().handover());
        Ok(handover.map_err(error::pool)?.map(|given| {
            (
                given.control.into_raw_fd(),
                given.page.into_raw_fd(),
                given.client.into_raw_fd(),
            )
        }))
    }

    fn attach(&self, pidfd: RawFd) -> PyResult<u64> {
        let keeper = take(pidfd)?;
        self.with(|lender| lender.pool().attach(keeper))
            .map_err(error::pool)
    }

    fn close(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let limit_ms = milliseconds(timeout)?;
        let Some(lender) = self.lock().take() else {
            return Ok(());
        };
        py.detach(|| lender.close(limit_ms)).map_err(error::pool)
    }
}

/// A program's end. Any thread may call any method; only `wait` and `take` wait.
#[pyclass(frozen, module = "forebay._core")]
pub struct Borrower(Core);

impl Borrower {
    fn ask(&self, question: impl FnOnce(u64) -> Request) -> PyResult<u64> {
        self.0.ask(question).map_err(error::pool)
    }

    fn say(&self, word: &Request) -> PyResult<()> {
        self.0.send_notice(word).map_err(error::pool)
    }
}

#[pymethods]
impl Borrower {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        Core::connect(&path).map(Self).map_err(error::pool)
    }

    /// Ask for a number of a kind.
    #[allow(clippy::too_many_arguments)] // they are Python's
    fn kind(
        &self,
        digest: Vec<u8>,
        name: Vec<u8>,
        template: Vec<u8>,
        arguments: Vec<Vec<u8>>,
        environment: Pairs,
        directory: Vec<u8>,
        setup: Vec<u8>,
        limits: Option<PyLimits>,
    ) -> PyResult<u64> {
        let launch = Launch {
            arguments,
            environment,
            directory,
            ..Launch::default()
        };
        let kind = Kind {
            digest,
            name,
            template,
            launch,
            setup,
            limits: limits_of(limits),
        };
        let kind = Box::new(kind);
        self.ask(|ticket| Request::Kind { ticket, kind })
    }

    /// Ask for a service and look for a moment: the answer, or else the ticket.
    fn take<'py>(&self, py: Python<'py>, key: u32, patience: f64) -> PyResult<Bound<'py, PyAny>> {
        let patience = Duration::try_from_secs_f64(patience).unwrap_or_default();
        let taken = py.detach(|| {
            let ticket = self.0.ask(|ticket| Request::Ask { ticket, key })?;
            match self.0.wait(ticket, Some(Instant::now() + patience)) {
                Ok(Some(answer)) => Ok(Ok(answer)),
                Ok(None) | Err(Error::Interrupted) => Ok(Err(ticket)),
                Err(error) => Err(error),
            }
        });
        match taken.map_err(error::pool)? {
            Ok(answer) => Ok(told(py, answer)?.into_any()),
            Err(ticket) => ticket.into_bound_py_any(py),
        }
    }

    fn lend(&self, handle: &PyHandle) -> PyResult<u64> {
        let handle = handle.0;
        self.ask(|ticket| Request::Lend { ticket, handle })
    }

    fn death(&self, handle: &PyHandle) -> PyResult<u64> {
        let handle = handle.0;
        self.ask(|ticket| Request::Death { ticket, handle })
    }

    fn output(&self, handle: &PyHandle) -> PyResult<u64> {
        let handle = handle.0;
        self.ask(|ticket| Request::Output { ticket, handle })
    }

    fn status(&self) -> PyResult<u64> {
        self.ask(|ticket| Request::Status { ticket })
    }

    fn services(&self, from_: u32) -> PyResult<u64> {
        let from = from_; // `from` is a word of Python
        self.ask(|ticket| Request::Services { ticket, from })
    }

    fn drain(&self, name: Vec<u8>) -> PyResult<u64> {
        self.ask(|ticket| Request::Drain { ticket, name })
    }

    fn release(&self, handle: &PyHandle, owed: u64) -> PyResult<()> {
        let handle = handle.0;
        self.say(&Request::Release {
            handle,
            unanswered: owed,
        })
    }

    fn abandon(&self, handle: &PyHandle, owed: u64, met: bool) -> PyResult<()> {
        let handle = handle.0;
        self.say(&Request::Abandon {
            handle,
            unanswered: owed,
            preface_read: met,
        })
    }

    #[pyo3(signature = (handle, cause="discarded"))]
    fn discard(&self, handle: &PyHandle, cause: &str) -> PyResult<()> {
        let (handle, cause) = (handle.0, discard_cause(cause));
        self.say(&Request::Discard { handle, cause })
    }

    fn end_overdue(&self, handle: &PyHandle) -> PyResult<()> {
        let handle = handle.0;
        self.say(&Request::Overdue { handle })
    }

    /// The answer, where it is there; otherwise `queue` is told of it.
    #[pyo3(signature = (ticket, queue = None))]
    fn look<'py>(
        &self,
        py: Python<'py>,
        ticket: u64,
        queue: Option<&WakeQueue>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let answer = self.0.look(ticket, queue.map(|queue| &queue.0));
        let answer = answer.map_err(error::pool)?;
        answer.map(|answer| told(py, answer)).transpose()
    }

    /// Wait without the GIL, at most `timeout` seconds; signal handlers run meanwhile.
    #[pyo3(signature = (ticket, timeout = None))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        ticket: u64,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let limit = timeout.map(milliseconds).transpose()?;
        let deadline = limit.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
        loop {
            match py.detach(|| self.0.wait(ticket, deadline)) {
                Err(Error::Interrupted) => py.check_signals()?,
                Ok(answer) => return answer.map(|answer| told(py, answer)).transpose(),
                Err(error) => return Err(error::pool(error)),
            }
        }
    }

    /// Give a question up; its answer, where it was there already.
    fn leave<'py>(&self, py: Python<'py>, ticket: u64) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let answer = self.0.leave(ticket).map_err(error::pool)?;
        answer.map(|answer| told(py, answer)).transpose()
    }

    fn drive(&self) -> PyResult<()> {
        self.0.drive().map_err(error::pool)
    }

    fn watch(&self) -> PyResult<RawFd> {
        let watched = self.0.watch().map_err(error::pool)?;
        Ok(watched.into_raw_fd())
    }

    #[getter]
    fn ended(&self) -> bool {
        self.0.is_ended()
    }

    #[getter]
    fn over(&self) -> PyResult<bool> {
        self.0.is_over().map_err(error::pool)
    }

    fn close(&self) {
        self.0.close();
    }

    fn forked(&self) {
        self.0.forked();
    }
}

/// An answer as a tuple that begins with its number in the protocol; see the stub.
fn told(py: Python<'_>, answer: Response) -> PyResult<Bound<'_, PyTuple>> {
    let mut given = answer.descriptors.into_iter();
    let mut next = || given.next().map_or(-1, OwnedFd::into_raw_fd);
    match answer.reply {
        Reply::Lent {
            handle,
            pid,
            unanswered,
            preface_read,
            ..
        } => (
            3,
            PyHandle(handle),
            pid,
            unanswered,
            preface_read,
            next(),
            next(),
        )
            .into_pyobject(py),
        Reply::Start { handle, .. } => (4, PyHandle(handle), next()).into_pyobject(py),
        Reply::Started { pid, .. } => (5, pid, next()).into_pyobject(py),
        Reply::Died { death, .. } => {
            let text = PyBytes::new(py, &death.text);
            let cause = death.cause.name();
            let memory = (death.peak_bytes, death.limit_bytes);
            let death = (cause, death.pid, death.code, text, memory.0, memory.1);
            (6, death).into_pyobject(py)
        }
        Reply::Kind { key, .. } => (2, key).into_pyobject(py),
        Reply::Status { fields, deaths, .. } => {
            let deaths: Vec<_> = deaths
                .iter()
                .map(|(cause, count)| (cause.name(), *count))
                .collect();
            (1, PyList::new(py, fields)?, deaths).into_pyobject(py)
        }
        Reply::Output { text, .. } => (7, PyBytes::new(py, &text)).into_pyobject(py),
        Reply::Services { rows, next, .. } => {
            let rows: Vec<_> = rows.into_iter().map(row).collect();
            (8, rows, next).into_pyobject(py)
        }
        Reply::Drained { ended, marked, .. } => (9, ended, marked).into_pyobject(py),
        Reply::Refused {
            limit,
            maximum,
            value,
            next,
            ..
        } => (10, text(&limit), maximum, value, text(&next)).into_pyobject(py),
        Reply::Failed { reason, .. } => (11, text(&reason)).into_pyobject(py),
    }
}

/// Slot, process, kind, state, holder, age in seconds.
#[allow(clippy::cast_precision_loss)] // ages are far below 2^53 ms
fn row(row: Row) -> (u32, i32, String, &'static str, i32, f64) {
    let age_s = row.age_ms as f64 / 1000.0;
    let name = text(&row.name);
    (row.slot, row.pid, name, row.state.name(), row.holder, age_s)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Add the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Lender>()?;
    module.add_class::<Borrower>()
}
