//! Both ends of a shared pool for Python: the lender, and a program that borrows.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::os::fd::{AsFd, IntoRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_base::signals;
use forebay_base::time::deadline;
use forebay_pool::Error;
use forebay_pool::death::Cause;
use forebay_pool::lender::borrower::{Borrower as Core, Response};
use forebay_pool::lender::{Config, Lender as CoreLender, Turn};
use forebay_pool::wire::Handle;
use forebay_pool::wire::shared::{Kind, Lent, Reply, Request, Row, ServiceEvent, Terms};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::argument::{
    Pairs, PyLaunch, PyLimits, discard_cause, launch_of, limits_of, milliseconds, template_launch,
};
use super::death::death_to_python;
use super::handle::PyHandle;
use super::wake_queue::WakeQueue;
use crate::error::Result;
use crate::fields::struct_of;
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

/// What a lender allows, from a dict with an item for each field.
struct LenderConfig(Config);

impl<'py> FromPyObject<'_, 'py> for LenderConfig {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let given = given.cast::<PyDict>()?;
        Ok(Self(struct_of!(
            given, Config;
            max_size max_running max_uses lifetime_ms private_bytes_max spares
            leases_max waiters_max start_ms idle_ms ping_after_ms canary_every min_idle leak_after_ms reset_ms
        )))
    }
}

#[pymethods]
impl Lender {
    /// Lend at a path; `wake` has `run` return once it is readable, and is taken.
    #[new]
    #[pyo3(signature = (path, *, wake, config))]
    fn new(path: PathBuf, wake: RawFd, config: LenderConfig) -> Result<Self> {
        let wake = take(wake)?;
        // The poll set keeps what it watches, not the descriptor: Python's own stays open.
        let lender = CoreLender::new(&path, config.0, wake.as_fd())?;
        Ok(Self(Mutex::new(Some(lender))))
    }

    /// Serve without the GIL until a keeper is wanted (True), `wake` is readable (False), or a person is to read something.
    fn run<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        match py.detach(|| self.with(CoreLender::run))? {
            Turn::Keeper => Ok(true.into_bound_py_any(py)?),
            Turn::Woken => Ok(false.into_bound_py_any(py)?),
            Turn::Notice(text) => Ok(text.into_bound_py_any(py)?),
        }
    }

    fn handover(&self) -> Result<Option<(RawFd, RawFd, RawFd)>> {
        let handover = self.with(|lender| lender.pool().handover());
        Ok(handover?.map(|given| {
            (
                given.control.into_raw_fd(),
                given.page.into_raw_fd(),
                given.client.into_raw_fd(),
            )
        }))
    }

    fn attach(&self, pidfd: RawFd) -> Result<u64> {
        let keeper = take(pidfd)?;
        Ok(self.with(|lender| lender.pool().attach(keeper))?)
    }

    fn stop_listening(&self) -> Result<()> {
        Ok(self.with(|lender| {
            lender.stop_listening();
            Ok(())
        })?)
    }

    fn close(&self, py: Python<'_>, timeout: f64) -> Result<()> {
        let limit_ms = milliseconds(timeout)?;
        let Some(lender) = self.lock().take() else {
            return Ok(());
        };
        Ok(py.detach(|| lender.close(limit_ms))?)
    }
}

/// A program's end. Any thread may call any method; only `wait` and `take` wait.
#[pyclass(frozen, module = "forebay._core")]
pub struct Borrower(Core);

impl Borrower {
    fn ask(&self, question: impl FnOnce(u64) -> Request) -> Result<u64> {
        Ok(self.0.ask(question)?)
    }

    fn say(&self, word: &Request) -> Result<()> {
        Ok(self.0.send_notice(word)?)
    }
}

#[pymethods]
impl Borrower {
    #[new]
    fn new(path: PathBuf) -> Result<Self> {
        Ok(Self(Core::connect(&path)?))
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
        private: bool,
        leases: u32,
        limits: Option<PyLimits>,
    ) -> Result<u64> {
        let launch = template_launch(arguments, environment, directory);
        let kind = Kind {
            digest,
            name,
            template,
            launch,
            setup,
            private,
            leases,
            limits: limits_of(limits),
        };
        let kind = Box::new(kind);
        self.ask(|ticket| Request::Kind { ticket, kind })
    }

    /// Ask for a service and look for a moment: the answer, or else the ticket.
    fn take<'py>(
        &self,
        py: Python<'py>,
        key: u32,
        patience: f64,
        group: u32,
    ) -> Result<Bound<'py, PyAny>> {
        let patience = Duration::try_from_secs_f64(patience).unwrap_or_default();
        signals::watch();
        loop {
            let ticket = self.ask(|ticket| Request::Ask { ticket, key, group })?;
            let deadline = Some(Instant::now() + patience);
            match py.detach(|| self.0.wait(ticket, deadline)) {
                Ok(Some(answer)) => return Ok(answer_to_python(py, answer)?.into_any()),
                Ok(None) => return Ok(ticket.into_bound_py_any(py)?),
                Err(Error::Interrupted) => {
                    // A handler that raises takes the question along.
                    self.0.withdraw(ticket)?;
                    py.check_signals()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Ask for a program to be started; `own` are its end of its socket and ours, which are taken.
    fn launch(
        &self,
        handle: &PyHandle,
        launch: PyLaunch,
        port: u16,
        own: Option<(RawFd, RawFd)>,
    ) -> Result<u64> {
        let mut ends = Vec::new();
        if let Some((theirs, ours)) = own {
            ends = vec![take(theirs)?, take(ours)?];
        }
        let launch = Box::new(launch_of(launch)?);
        let (handle, own) = (handle.0, own.is_some());
        let question = |ticket| Request::Launch {
            ticket,
            handle,
            launch,
            port,
            own,
        };
        Ok(self.0.ask_with(question, ends)?)
    }

    fn lend(&self, handle: &PyHandle, report: Vec<u8>) -> Result<u64> {
        let handle = handle.0;
        self.ask(|ticket| Request::Lend {
            ticket,
            handle,
            report,
        })
    }

    fn death(&self, handle: &PyHandle) -> Result<u64> {
        let handle = handle.0;
        self.ask(|ticket| Request::Death { ticket, handle })
    }

    fn output(&self, handle: &PyHandle) -> Result<u64> {
        let handle = handle.0;
        self.ask(|ticket| Request::Output { ticket, handle })
    }

    fn branch(&self, parent: &PyHandle) -> Result<u64> {
        let handle = parent.0;
        self.ask(|ticket| Request::Branch { ticket, handle })
    }

    fn follow(&self, handle: &PyHandle, seen: u64) -> Result<u64> {
        let handle = handle.0;
        self.ask(|ticket| Request::Follow {
            ticket,
            handle,
            seen,
        })
    }

    fn directory(&self, handle: &PyHandle) -> Result<u64> {
        let handle = handle.0;
        self.ask(|ticket| Request::Directory { ticket, handle })
    }

    fn status(&self) -> Result<u64> {
        self.ask(|ticket| Request::Status { ticket })
    }

    fn services(&self, from_: u32) -> Result<u64> {
        let from = from_; // `from` is a word of Python
        self.ask(|ticket| Request::Services { ticket, from })
    }

    fn drain(&self, name: Vec<u8>) -> Result<u64> {
        self.ask(|ticket| Request::Drain { ticket, name })
    }

    fn refill(&self, key: u32, min_idle: u32) -> Result<u64> {
        self.ask(|ticket| Request::Refill {
            ticket,
            key,
            min_idle,
        })
    }

    fn stop_refill(&self, key: u32) -> Result<()> {
        self.say(&Request::StopRefill { ticket: 0, key })
    }

    fn stop_events(&self) -> Result<()> {
        self.say(&Request::StopEvents { ticket: 0 })
    }

    fn events(&self, from_: u64) -> Result<u64> {
        let from = from_;
        self.ask(|ticket| Request::Events { ticket, from })
    }

    fn open(&self, handle: &PyHandle) -> Result<()> {
        Ok(self.0.open(handle.0)?)
    }

    fn release_shared(&self, handle: &PyHandle, closed: bool) -> Result<bool> {
        Ok(self.0.release_shared(handle.0, closed)?)
    }

    fn release(&self, handle: &PyHandle, owed: u64) -> Result<()> {
        let (handle, unanswered) = (handle.0, owed);
        Ok(self
            .0
            .end_lease(handle, &Request::Release { handle, unanswered })?)
    }

    fn abandon(&self, handle: &PyHandle, owed: u64, met: bool, report: Vec<u8>) -> Result<()> {
        let handle = handle.0;
        self.say(&Request::Abandon {
            handle,
            unanswered: owed,
            preface_read: met,
            report,
        })
    }

    #[pyo3(signature = (handle, cause="discarded"))]
    fn discard(&self, handle: &PyHandle, cause: &str) -> Result<()> {
        let (handle, cause) = (handle.0, discard_cause(cause));
        Ok(self
            .0
            .end_lease(handle, &Request::Discard { handle, cause })?)
    }

    fn end_overdue(&self, handle: &PyHandle) -> Result<()> {
        let handle = handle.0;
        self.say(&Request::Overdue { handle })
    }

    /// The answer, where it is there; otherwise `queue` is notified of it.
    #[pyo3(signature = (ticket, queue = None))]
    fn look<'py>(
        &self,
        py: Python<'py>,
        ticket: u64,
        queue: Option<&WakeQueue>,
    ) -> Result<Option<Bound<'py, PyTuple>>> {
        let answer = self.0.look(ticket, queue.map(|queue| &queue.0))?;
        let answer = answer.map(|answer| answer_to_python(py, answer));
        Ok(answer.transpose()?)
    }

    /// Wait without the GIL, at most `timeout` seconds; signal handlers run meanwhile.
    #[pyo3(signature = (ticket, timeout = None))]
    fn wait<'py>(
        &self,
        py: Python<'py>,
        ticket: u64,
        timeout: Option<f64>,
    ) -> Result<Option<Bound<'py, PyTuple>>> {
        let limit = timeout.map(milliseconds).transpose()?;
        let deadline = deadline(limit.map(Duration::from_millis));
        signals::watch();
        loop {
            match py.detach(|| self.0.wait(ticket, deadline)) {
                Err(Error::Interrupted) => py.check_signals()?,
                answer => {
                    let answer = answer?.map(|answer| answer_to_python(py, answer));
                    return Ok(answer.transpose()?);
                }
            }
        }
    }

    /// Give a question up; its answer, where it was there already.
    fn leave<'py>(&self, py: Python<'py>, ticket: u64) -> Result<Option<Bound<'py, PyTuple>>> {
        let answer = self.0.leave(ticket)?;
        let answer = answer.map(|answer| answer_to_python(py, answer));
        Ok(answer.transpose()?)
    }

    /// Give a question up whose answer nobody takes: what it was granted is ended.
    fn withdraw(&self, ticket: u64) -> Result<()> {
        Ok(self.0.withdraw(ticket)?)
    }

    fn drive(&self) -> Result<()> {
        Ok(self.0.drive()?)
    }

    fn watch(&self) -> Result<RawFd> {
        let watched = self.0.watch()?;
        Ok(watched.into_raw_fd())
    }

    #[getter]
    fn ended(&self) -> bool {
        self.0.is_ended()
    }

    #[getter]
    fn over(&self) -> Result<bool> {
        Ok(self.0.is_over()?)
    }

    fn close(&self) {
        self.0.close();
    }

    fn forked(&self) {
        self.0.forked();
    }
}

/// An answer as a tuple that begins with its number in the protocol; see the stub.
fn answer_to_python(py: Python<'_>, answer: Response) -> PyResult<Bound<'_, PyTuple>> {
    let mut given = answer.descriptors.into_iter();
    let mut next = || given.next().map_or(-1, OwnedFd::into_raw_fd);
    let bytes = |text: &[u8]| PyBytes::new(py, text);
    match answer.reply {
        Reply::Lent { lent, .. } => lent_to_python(py, lent, next),
        Reply::Start { handle, leases, .. } => {
            (4, PyHandle(handle), next(), leases).into_pyobject(py)
        }
        Reply::Joined { handle, .. } => (15, PyHandle(handle)).into_pyobject(py),
        Reply::Started { pid, .. } => (5, pid, next()).into_pyobject(py),
        Reply::Died { death, .. } => (6, death_to_python(py, &death)).into_pyobject(py),
        Reply::Kind { key, terms, .. } => (2, key, terms_of(terms)).into_pyobject(py),
        Reply::Status { fields, deaths, .. } => (1, fields, counts_of(&deaths)).into_pyobject(py),
        Reply::Output { text, .. } => (7, bytes(&text)).into_pyobject(py),
        Reply::Services { rows, next, .. } => (8, rows_of(rows), next).into_pyobject(py),
        Reply::Drained { ended, marked, .. } => (9, ended, marked).into_pyobject(py),
        Reply::Refused {
            limit,
            next,
            maximum,
            value,
            ..
        } => (10, text(&limit), maximum, value, text(&next)).into_pyobject(py),
        Reply::Failed { reason, .. } => (11, text(&reason)).into_pyobject(py),
        Reply::Written { total, text, .. } => (12, total, bytes(&text)).into_pyobject(py),
        Reply::Directory { path, .. } => (13, bytes(&path)).into_pyobject(py),
        Reply::Events { next, events, .. } => (14, next, events_of(events)).into_pyobject(py),
    }
}

/// A lent process; its socket, pidfd and own socket are -1 where they did not come.
fn lent_to_python(
    py: Python<'_>,
    lent: Lent,
    mut next: impl FnMut() -> RawFd,
) -> PyResult<Bound<'_, PyTuple>> {
    let connected = next();
    let own = if lent.has_own { next() } else { -1 };
    let report = PyBytes::new(py, &lent.report);
    let given = (connected, next(), own, lent.port, report);
    let (handle, pid, owed) = (PyHandle(lent.handle), lent.pid, lent.unanswered);
    let (met, changes_hands) = (lent.preface_read, lent.changes_hands);
    let (quiet, check) = (lent.quiet, lent.check);
    (
        3,
        handle,
        pid,
        owed,
        met,
        changes_hands,
        quiet,
        check,
        given,
    )
        .into_pyobject(py)
}

const fn terms_of(terms: Terms) -> (u32, u32, u64, u64) {
    let Terms {
        canary_every,
        min_idle,
        leak_after_ms,
        reset_ms,
    } = terms;
    (canary_every, min_idle, leak_after_ms, reset_ms)
}

fn counts_of(deaths: &[(Cause, u64)]) -> Vec<(&'static str, u64)> {
    let counts = deaths.iter().map(|(cause, count)| (cause.name(), *count));
    counts.collect()
}

/// Slot, process, kind, state, holder, age in seconds.
type PyRow = (u32, i32, String, &'static str, i32, f64);

#[allow(clippy::cast_precision_loss)] // ages are far below 2^53 ms
fn rows_of(rows: Vec<Row>) -> Vec<PyRow> {
    let row = |row: Row| {
        let (name, age_s) = (text(&row.name), row.age_ms as f64 / 1000.0);
        (row.slot, row.pid, name, row.state.name(), row.holder, age_s)
    };
    rows.into_iter().map(row).collect()
}

/// When, what, the kind, the process, slot and generation of its lease, the cause of an end.
type PyEvent = (
    u64,
    &'static str,
    String,
    i32,
    u32,
    u64,
    Option<&'static str>,
);

fn events_of(events: Vec<ServiceEvent>) -> Vec<PyEvent> {
    let event = |event: ServiceEvent| {
        let (what, cause) = event.transition.words();
        let Handle { slot, generation } = event.handle;
        let name = text(&event.name);
        (event.at_ms, what, name, event.pid, slot, generation, cause)
    };
    events.into_iter().map(event).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Add the classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Lender>()?;
    module.add_class::<Borrower>()
}
