//! The selector of an event loop for Python: `selectors.BaseSelector`, and callbacks without a loop.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

mod dispatch;
mod watch;

use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_transport::drive::LongLook;
use forebay_transport::drive::selector::{Events, Selector as Core, WatchError, WatchKind};
use forebay_transport::limit::LOOP_SPIN_US_MAX;
use pyo3::exceptions::{PyKeyError, PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::{Error, Result, busy, closed, config};
use crate::fields::set_items;
use watch::{Watch, interest, number, number_of};

/// What a loop waits on. Not thread-safe, as no selector is, but nothing breaks beyond the loop.
///
/// No lock is held while Python runs, so that callbacks may attach, change, detach and close.
#[pyclass(frozen, subclass, module = "forebay._core")]
pub struct Selector {
    state: Mutex<State>,
    key_class: Py<PyAny>,
    report: Py<PyAny>,
    /// How long it looks before it sleeps; `None`: where that has paid lately.
    spin_us: Option<u32>,
}

#[derive(Default)]
struct State {
    core: Option<Core<Watch>>,
    /// Kept between waits for its memory.
    events: Events,
    counters: Counters,
    /// Whether looking before a sleep has paid lately.
    glance: LongLook,
}

#[derive(Clone, Copy, Default)]
struct Counters {
    waits: u64,
    sleeps: u64,
    spins_found: u64,
    direct_calls: u64,
    heals: u64,
}

#[pymethods]
impl Selector {
    /// `report(error, callback)` gets what a callback of `attach` raised.
    #[new]
    #[pyo3(signature = (report, spin_us = None))]
    fn new(py: Python<'_>, report: Py<PyAny>, spin_us: Option<u32>) -> Result<Self> {
        if let Some(spin_us) = spin_us
            && spin_us > LOOP_SPIN_US_MAX
        {
            return Err(config(format!(
                "spin_us is {spin_us}, the limit is {LOOP_SPIN_US_MAX}: \
                 nothing else in the process runs Python meanwhile"
            )));
        }
        let core = Core::new()?;
        Ok(Self {
            state: Mutex::new(State {
                core: Some(core),
                ..State::default()
            }),
            key_class: py.import("selectors")?.getattr("SelectorKey")?.unbind(),
            report,
            spin_us,
        })
    }

    /// Watch a file object or descriptor; its key is returned, and comes from `select` when ready.
    #[pyo3(signature = (fileobj, events, data = None))]
    fn register<'py>(
        &self,
        py: Python<'py>,
        fileobj: Bound<'py, PyAny>,
        events: Bound<'py, PyAny>,
        data: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        let wanted = interest(&events)?;
        let fd = self.lookup(&fileobj)?;
        let key = self
            .key_class
            .bind(py)
            .call1((&fileobj, fd, events, data))?;
        let watch = Watch::key(&key, &fileobj);
        let stale = self
            .with(|core| core.insert(fd, WatchKind::Registered, wanted, watch))
            .ok_or_else(closed_for_selectors)?;
        match stale {
            Ok(_) => Ok(key),
            Err(WatchError::System(errno)) => Err(errno.into()),
            Err(_) => {
                let text = format!("{} (FD {fd}) is already registered", fileobj.repr()?);
                Err(PyKeyError::new_err(text).into())
            }
        }
    }

    /// Stop watching; returns the key. `KeyError` when it is not registered.
    fn unregister<'py>(&self, fileobj: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let key = self.key_of(&fileobj)?.ok_or_else(|| missing(&fileobj))?;
        let fd = self.lookup(&fileobj)?;
        drop(self.with(|core| core.remove(fd)));
        Ok(key)
    }

    /// Watch for other events, or with other data; returns the new key.
    #[pyo3(signature = (fileobj, events, data = None))]
    fn modify<'py>(
        &self,
        py: Python<'py>,
        fileobj: Bound<'py, PyAny>,
        events: Bound<'py, PyAny>,
        data: Option<Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        let old = self.key_of(&fileobj)?.ok_or_else(|| missing(&fileobj))?;
        let fd = self.lookup(&fileobj)?;
        let wanted = interest(&events)?;
        if let Some(Err(refusal)) = self.with(|core| core.change(fd, wanted)) {
            drop(self.with(|core| core.remove(fd)));
            return Err(match refusal {
                WatchError::System(errno) => errno.into(),
                _ => missing(&fileobj),
            });
        }
        let registered = old.getattr("fileobj")?;
        let key = self
            .key_class
            .bind(py)
            .call1((&registered, fd, events, data))?;
        let watch = Watch::key(&key, &registered);
        drop(self.with(|core| core.replace(fd, watch)));
        Ok(key)
    }

    /// The key of a registered file object. `KeyError` when it is not registered.
    fn get_key<'py>(&self, fileobj: Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        if self.closed() {
            return Err(PyRuntimeError::new_err("Selector is closed").into());
        }
        self.key_of(&fileobj)?.ok_or_else(|| missing(&fileobj))
    }

    /// The key of a registered file object, or None.
    fn find<'py>(&self, fileobj: Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>> {
        Ok(self.key_of(&fileobj)?)
    }

    /// The descriptors of all registered file objects.
    fn registered(&self) -> Vec<RawFd> {
        self.with(|core| {
            core.entries()
                .filter(|entry| entry.kind == WatchKind::Registered)
                .map(|entry| entry.descriptor)
                .collect()
        })
        .unwrap_or_default()
    }

    /// Wait at most `timeout` seconds; call what is attached and ready, return what is registered.
    #[pyo3(signature = (timeout = None))]
    pub(crate) fn select<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> Result<Bound<'py, PyList>> {
        let events = self.wait(py, timeout)?;
        let outcome = self.dispatch(py, &events);
        self.lock().events = events;
        outcome
    }

    /// Stop watching everything. Idempotent.
    fn close(&self) {
        let core = self.lock().core.take();
        drop(core); // without the lock: it drops Python objects
    }

    #[getter]
    fn closed(&self) -> bool {
        self.lock().core.is_none()
    }

    /// The descriptor of the epoll set. `ValueError` when closed.
    fn fileno(&self) -> Result<RawFd> {
        self.with(|core| core.descriptor())
            .ok_or_else(closed_for_selectors)
    }

    /// Call `callback(events)` from inside `select` whenever `fd` is ready; a connection of messages stands for itself.
    fn attach(&self, fd: RawFd, events: u8, callback: Bound<'_, PyAny>) -> Result<()> {
        let wanted = watch::direct_interest(events)?;
        let watch = Watch::direct(&callback);
        match self.with(|core| core.insert(fd, WatchKind::Attached, wanted, watch)) {
            Some(Ok(_)) => Ok(()),
            Some(Err(refusal)) => Err(refused(fd, refusal)),
            None => Err(closed_for_loops()),
        }
    }

    /// Be called for other events; 0 keeps `fd` attached, and silent.
    fn change(&self, fd: RawFd, events: u8) -> Result<()> {
        let wanted = watch::direct_interest(events)?;
        match self.with(|core| {
            core.get(fd)
                .filter(|entry| entry.kind == WatchKind::Attached)
                .ok_or(WatchError::Missing)?;
            core.change(fd, wanted)
        }) {
            Some(Ok(())) => Ok(()),
            Some(Err(refusal)) => Err(refused(fd, refusal)),
            None => Err(closed_for_loops()),
        }
    }

    /// Be called no more, not even for what this `select` has found; false if it was not attached.
    fn detach(&self, fd: RawFd) -> bool {
        let entry = self.with(|core| {
            core.get(fd)
                .is_some_and(|entry| entry.kind == WatchKind::Attached)
                .then(|| core.remove(fd))?
        });
        entry.flatten().is_some()
    }

    /// What was counted since the start.
    fn metrics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let counters = self.lock().counters;
        let metrics = PyDict::new(py);
        set_items!(metrics, counters; waits sleeps spins_found direct_calls heals);
        Ok(metrics)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.report)?;
        // Held by a thread that waits for the GIL: a later collection sees what this one misses.
        let Ok(state) = self.state.try_lock() else {
            return Ok(());
        };
        let entries = state.core.iter().flat_map(Core::entries);
        entries
            .into_iter()
            .try_for_each(|entry| entry.payload.visit(&visit))
    }

    fn __clear__(&self) {
        self.close();
    }
}

impl Selector {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Act on the core; `None` when closed. What `act` returns is dropped after the lock.
    fn with<R>(&self, act: impl FnOnce(&mut Core<Watch>) -> R) -> Option<R> {
        self.lock().core.as_mut().map(act)
    }

    /// The descriptor of a file object; a closed one is known by its identity.
    fn lookup(&self, fileobj: &Bound<'_, PyAny>) -> PyResult<RawFd> {
        number(fileobj).or_else(|error| {
            let found = self.with(|core| number_of(core, fileobj)).flatten();
            found.ok_or(error)
        })
    }

    fn key_of<'py>(&self, fileobj: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = fileobj.py();
        let fd = self.lookup(fileobj)?;
        Ok(self.with(|core| core.get(fd)?.payload.as_key(py)).flatten())
    }
}

fn missing(fileobj: &Bound<'_, PyAny>) -> Error {
    let raised = match fileobj.repr() {
        Ok(text) => PyKeyError::new_err(format!("{text} is not registered")),
        Err(error) => error,
    };
    raised.into()
}

fn closed_for_selectors() -> Error {
    PyValueError::new_err("I/O operation on closed selector").into()
}

fn closed_for_loops() -> Error {
    closed("the selector is closed, and so is its loop; make another loop")
}

fn refused(fd: RawFd, refusal: WatchError) -> Error {
    match refusal {
        WatchError::Taken => busy(format!(
            "descriptor {fd} is watched already; remove its reader and writer or detach it first"
        )),
        WatchError::Missing => {
            PyKeyError::new_err(format!("descriptor {fd} is not attached; attach it first")).into()
        }
        WatchError::System(errno) => errno.into(),
    }
}
