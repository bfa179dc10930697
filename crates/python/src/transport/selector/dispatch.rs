//! One turn of the selector: poll, spin, sleep, and call back.

use std::time::{Duration, Instant};

use forebay_transport::drive::selector::{Errno, Event, Events, Set, Timeout};
use forebay_transport::limit::{EVENTS_MIN, SPIN_US, YIELD_US};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOverflowError, PySystemExit, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::watch::Watch;
use super::{Selector, closed_for_selectors};
use crate::error::Result;
use crate::transport::messages::MessageConnection;

/// What is called for an event, from inside the wait.
enum Direct<'py> {
    Callback(Bound<'py, PyAny>),
    Connection(Bound<'py, MessageConnection>),
}

/// What an event concerns.
enum Target<'py> {
    /// What is called at once, and for which events.
    Attached(Direct<'py>, u8),
    /// What is listed.
    Registered,
    /// Nothing any more: it was removed since the wait.
    Removed,
}

impl Selector {
    /// Wait as asyncio's loop asks; an interruption whose handler does not raise is no event.
    ///
    /// The first look is made with the GIL held. Where another thread computes, letting go of it
    /// costs up to a switch interval (5 ms), which is only worth it when there is nothing to do.
    pub(super) fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> Result<Events> {
        let timeout = wait_timeout(timeout)?;
        let (set, mut events) = self.waiting()?;
        look(&set, &mut events)?;
        if !events.is_empty() || timeout == Timeout::Zero {
            return Ok(events);
        }
        if self.spin(&set, &mut events)? {
            self.lock().counters.spins_found += 1;
            return Ok(events);
        }
        self.lock().counters.sleeps += 1;
        loop {
            match py.detach(|| set.wait(&mut events, timeout)) {
                Err(Errno::INTR) => py.check_signals()?,
                Err(errno) => return Err(errno.into()),
                Ok(_) => return Ok(events),
            }
        }
    }

    /// Call what is attached, then list what is registered.
    ///
    /// In this order, because a callback may unregister, register and modify. asyncio takes the
    /// list for the state of things: a reader that was cancelled in between would cost the one
    /// that came after it its registration.
    pub(super) fn dispatch<'py>(
        &self,
        py: Python<'py>,
        events: &Events,
    ) -> Result<Bound<'py, PyList>> {
        let mut direct = 0_u64;
        let mut registered = 0_usize;
        let mut ghosts = false;
        for event in events {
            match self.target(py, event) {
                // After a callback has run, it may have been the one that removed it.
                Some(Target::Removed) => ghosts |= direct == 0,
                Some(Target::Registered) => registered += 1,
                Some(Target::Attached(callee, ready)) if ready != 0 => {
                    direct += 1;
                    self.call(py, callee, ready)?;
                }
                Some(Target::Attached(..)) | None => {}
            }
        }
        self.note(direct, ghosts);
        if registered == 0 {
            return Ok(PyList::empty(py));
        }
        self.list(py, events)
    }

    /// What an event concerns by now; `None` once closed.
    fn target<'py>(&self, py: Python<'py>, event: &Event) -> Option<Target<'py>> {
        self.with(|core| {
            let Some((entry, ready)) = core.resolve(event) else {
                return Target::Removed;
            };
            let callee = match &entry.payload {
                Watch::Key { .. } => return Target::Registered,
                Watch::Direct(callback) => Direct::Callback(callback.bind(py).clone()),
                Watch::Connection(connection) => Direct::Connection(connection.bind(py).clone()),
            };
            Target::Attached(callee, ready.bits())
        })
    }

    fn waiting(&self) -> Result<(Set, Events)> {
        let mut state = self.lock();
        let mut events = std::mem::take(&mut state.events);
        state.counters.waits += 1;
        let core = state.core.as_mut().ok_or_else(closed_for_selectors)?;
        let (set, count) = core.waiting()?;
        events.reserve(count.max(EVENTS_MIN));
        Ok((set, events))
    }

    /// Look for a while longer, with the GIL held; true if something came.
    ///
    /// For as long as the maker of the loop said; else as a blocked reader does, where that has paid lately: waking
    /// from a sleep costs more than most of what a loop waits for between two processes.
    fn spin(&self, set: &Set, events: &mut Events) -> Result<bool> {
        let Some(spin_us) = self.spin_us else {
            if !self.lock().glance.is_worth_it() {
                // Another process on this core may bring something at once, where a sleep would need a wake-up.
                return Ok(look_for(set, events, YIELD_US)? != Found::Nothing);
            }
            let found = look_for(set, events, SPIN_US)?;
            // What is found late came while another program had the core: a sleep had woken as soon.
            self.lock().glance.ended(found == Found::InTime);
            return Ok(found != Found::Nothing);
        };
        Ok(look_for(set, events, spin_us.into())? != Found::Nothing)
    }

    /// Call one; the loop reports what it raises, as for a callback of its own.
    fn call(&self, py: Python<'_>, callee: Direct<'_>, ready: u8) -> PyResult<()> {
        let (outcome, callback) = match callee {
            Direct::Callback(callback) => (callback.call1((ready,)).map(drop), callback),
            Direct::Connection(connection) => {
                let outcome = MessageConnection::on_ready(connection.clone(), ready);
                (outcome.map_err(PyErr::from), connection.into_any())
            }
        };
        let Err(error) = outcome else {
            return Ok(());
        };
        if error.is_instance_of::<PyKeyboardInterrupt>(py)
            || error.is_instance_of::<PySystemExit>(py)
        {
            return Err(error);
        }
        self.report.call1(py, (error, callback)).map(drop)
    }

    fn note(&self, direct: u64, ghosts: bool) {
        let mut state = self.lock();
        state.counters.direct_calls += direct;
        if !ghosts {
            return;
        }
        if let Some(core) = state.core.as_mut()
            && core.rebuild().is_ok()
        {
            state.counters.heals += 1;
        }
    }

    fn list<'py>(&self, py: Python<'py>, events: &Events) -> Result<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for event in events {
            let found = self.with(|core| {
                let (entry, ready) = core.resolve(event)?;
                Some((entry.payload.as_key(py)?, ready.bits()))
            });
            if let Some(Some(pair)) = found {
                list.append(pair)?;
            }
        }
        Ok(list)
    }
}

/// What a look found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    InTime,
    Late,
    Nothing,
}

/// Look until something is there or the time is over, and let other processes on the core run in between.
fn look_for(set: &Set, events: &mut Events, time_us: u64) -> Result<Found> {
    let end = Instant::now() + Duration::from_micros(time_us);
    let mut in_time = time_us > 0;
    while in_time {
        rustix::thread::sched_yield();
        look(set, events)?;
        in_time = Instant::now() < end;
        if !events.is_empty() {
            return Ok(if in_time { Found::InTime } else { Found::Late });
        }
    }
    Ok(Found::Nothing)
}

fn look(set: &Set, events: &mut Events) -> Result<()> {
    Ok(set.wait(events, Timeout::Zero).map(drop)?)
}

fn wait_timeout(timeout: Option<f64>) -> PyResult<Timeout> {
    let Some(seconds) = timeout else {
        return Ok(Timeout::Never);
    };
    if seconds.is_nan() {
        return Err(PyValueError::new_err("timeout is not a number"));
    }
    if seconds <= 0.0 {
        return Ok(Timeout::Zero);
    }
    match Duration::try_from_secs_f64(seconds) {
        Ok(timeout) => Ok(Timeout::after(timeout)),
        Err(_) => Err(PyOverflowError::new_err("timeout is too large")),
    }
}
