//! One turn of the selector: who polls, who sleeps, who is called.

use std::time::{Duration, Instant};

use forebay_transport::drive::selector::{Errno, Events, Set, Timeout};
use forebay_transport::limit::{EVENTS_MIN, SPIN_US, YIELD_US};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOverflowError, PySystemExit, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::watch::Watch;
use super::{Selector, closed_for_selectors};
use crate::error::system;
use crate::transport::messages::MessageConnection;

/// Whom an event is told to, from inside the wait.
enum Direct<'py> {
    Callback(Bound<'py, PyAny>),
    Connection(Bound<'py, MessageConnection>),
}

impl Selector {
    /// Wait as asyncio's loop asks; an interruption whose handler does not raise is no event.
    ///
    /// The first look is made with the GIL held. Where another thread computes, letting go of it
    /// costs up to a switch interval (5 ms), which is only worth it when there is nothing to do.
    pub(super) fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Events> {
        let timeout = wait_timeout(timeout)?;
        let (set, mut events) = self.waiting(py)?;
        look(py, &set, &mut events)?;
        if !events.is_empty() || timeout == Timeout::Zero {
            return Ok(events);
        }
        if self.spin(py, &set, &mut events)? {
            self.lock().counters.spins_found += 1;
            return Ok(events);
        }
        self.lock().counters.sleeps += 1;
        loop {
            match py.detach(|| set.wait(&mut events, timeout)) {
                Err(Errno::INTR) => py.check_signals()?,
                Err(errno) => return Err(system(py, errno)),
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
    ) -> PyResult<Bound<'py, PyList>> {
        let mut direct = 0_u64;
        let mut registered = 0_usize;
        let mut ghosts = false;
        for event in events {
            let found = self.with(|core| {
                let Some((entry, ready)) = core.resolve(event) else {
                    // Only before any callback has run is it sure that none of them removed it.
                    ghosts |= direct == 0;
                    return None;
                };
                match &entry.payload {
                    Watch::Direct(callback) => {
                        let callback = callback.clone_ref(py).into_bound(py);
                        Some((Direct::Callback(callback), ready.bits()))
                    }
                    Watch::Connection(connection) => {
                        let connection = connection.clone_ref(py).into_bound(py);
                        Some((Direct::Connection(connection), ready.bits()))
                    }
                    Watch::Key { .. } => {
                        registered += 1;
                        None
                    }
                }
            });
            if let Some(Some((callee, ready))) = found
                && ready != 0
            {
                direct += 1;
                self.call(py, callee, ready)?;
            }
        }
        self.note(direct, ghosts);
        if registered == 0 {
            return Ok(PyList::empty(py));
        }
        self.list(py, events)
    }

    fn waiting(&self, py: Python<'_>) -> PyResult<(Set, Events)> {
        let mut state = self.lock();
        let mut events = std::mem::take(&mut state.events);
        state.counters.waits += 1;
        let core = state.core.as_mut().ok_or_else(closed_for_selectors)?;
        let (set, count) = core.waiting().map_err(|errno| system(py, errno))?;
        events.reserve(count.max(EVENTS_MIN));
        Ok((set, events))
    }

    /// Look for a while longer, with the GIL held; true if something came.
    ///
    /// For as long as the maker of the loop said; else as a blocked reader does, where that has paid lately: waking
    /// from a sleep costs more than most of what a loop waits for between two processes.
    fn spin(&self, py: Python<'_>, set: &Set, events: &mut Events) -> PyResult<bool> {
        let Some(spin_us) = self.spin_us else {
            if !self.lock().glance.is_worth_it() {
                // Whoever shares the core may bring something at once, where a sleep had to be woken from.
                return Ok(look_for(py, set, events, YIELD_US)? != Found::Nothing);
            }
            let found = look_for(py, set, events, SPIN_US)?;
            // What is found late came while another program had the core: a sleep had woken as soon.
            self.lock().glance.ended(found == Found::InTime);
            return Ok(found != Found::Nothing);
        };
        Ok(look_for(py, set, events, spin_us.into())? != Found::Nothing)
    }

    /// Call one; what it raises is the loop's to tell, as after a callback of its own.
    fn call(&self, py: Python<'_>, callee: Direct<'_>, ready: u8) -> PyResult<()> {
        let (outcome, callback) = match callee {
            Direct::Callback(callback) => (callback.call1((ready,)).map(drop), callback),
            Direct::Connection(connection) => {
                let outcome = MessageConnection::on_ready(connection.clone(), ready);
                (outcome, connection.into_any())
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

    fn list<'py>(&self, py: Python<'py>, events: &Events) -> PyResult<Bound<'py, PyList>> {
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

/// Look until something is there or the time is over, and let whoever shares the core run in between.
fn look_for(py: Python<'_>, set: &Set, events: &mut Events, time_us: u64) -> PyResult<Found> {
    let end = Instant::now() + Duration::from_micros(time_us);
    let mut in_time = time_us > 0;
    while in_time {
        rustix::thread::sched_yield();
        look(py, set, events)?;
        in_time = Instant::now() < end;
        if !events.is_empty() {
            return Ok(if in_time { Found::InTime } else { Found::Late });
        }
    }
    Ok(Found::Nothing)
}

fn look(py: Python<'_>, set: &Set, events: &mut Events) -> PyResult<()> {
    set.wait(events, Timeout::Zero)
        .map(drop)
        .map_err(|errno| system(py, errno))
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
    Duration::try_from_secs_f64(seconds)
        .map(Timeout::after)
        .map_err(|_| PyOverflowError::new_err("timeout is too large"))
}
