//! The side of a connection that a loop sees: what it watches, and which tasks sleep until something comes.

use std::collections::VecDeque;
use std::os::fd::RawFd;

use forebay_transport::messages::Readiness;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use super::awaitable::Wanted;
use super::{MessageConnection, READABLE, WRITABLE};
use crate::error::{Result, busy};
use crate::transport::sleeper::Sleeper;

/// What belongs to the loop that steps the connection.
pub(super) struct Face {
    event_loop: Py<PyAny>,
    /// The selector of our own loop, which calls back without a turn of the loop.
    selector: Option<Py<PyAny>>,
    /// Tasks are run from the callback of the socket, except in debug mode, which wants to time each.
    runs: bool,
    /// The loop reports an error of the socket once, and nothing after it, as libuv does.
    reports_once: bool,
    socket: RawFd,
    /// What the loop watches for.
    pub watched: u8,
    /// The task in `recv`, and those that wait for the end of the handshake.
    receiver: Option<Py<Sleeper>>,
    handshakes: Vec<Py<Sleeper>>,
    /// Senders, by where in the stream they go on.
    senders: VecDeque<(u64, Py<Sleeper>)>,
}

/// What a loop watches at this moment.
struct Watch {
    event_loop: Py<PyAny>,
    selector: Option<Py<PyAny>>,
    socket: RawFd,
    watched: u8,
}

impl Face {
    pub fn new(event_loop: Bound<'_, PyAny>, socket: RawFd) -> Result<Self> {
        let py = event_loop.py();
        let selector = event_loop.getattr_opt(intern!(py, "forebay_selector"))?;
        let debug = event_loop.call_method0(intern!(py, "get_debug"))?;
        Ok(Self {
            runs: !debug.is_truthy()?,
            reports_once: !is_asyncios(&event_loop)?,
            selector: selector.map(Bound::unbind),
            event_loop: event_loop.unbind(),
            socket,
            watched: 0,
            receiver: None,
            handshakes: Vec::new(),
            senders: VecDeque::new(),
        })
    }

    pub fn event_loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.event_loop.clone_ref(py)
    }

    /// Have the loop watch the socket no more.
    pub fn forget(&self, py: Python<'_>) -> Result<()> {
        if let Some(selector) = &self.selector {
            selector.call_method1(py, intern!(py, "detach"), (self.socket,))?;
            return Ok(());
        }
        if self
            .event_loop
            .call_method0(py, intern!(py, "is_closed"))?
            .is_truthy(py)?
        {
            return Ok(());
        }
        for (bit, remove) in [(READABLE, "remove_reader"), (WRITABLE, "remove_writer")] {
            if self.watched & bit != 0 {
                self.event_loop.call_method1(py, remove, (self.socket,))?;
            }
        }
        Ok(())
    }

    /// Wake all that sleep, each in a turn of its own; the connection is closed.
    pub fn dismiss(&self, py: Python<'_>) -> Result<()> {
        let senders = self.senders.iter().map(|(_, sleeper)| sleeper);
        let mut sleepers = self.receiver.iter().chain(&self.handshakes).chain(senders);
        Ok(sleepers.try_for_each(|sleeper| Sleeper::run_later(sleeper.bind(py)))?)
    }

    /// Take a sleeper out of where it waits, for the caller to drop without a lock.
    fn take_out(&mut self, sleeper: &Py<Sleeper>) -> Option<Py<Sleeper>> {
        if self.receiver.as_ref().is_some_and(|kept| kept.is(sleeper)) {
            return self.receiver.take();
        }
        if let Some(index) = self.handshakes.iter().position(|kept| kept.is(sleeper)) {
            return Some(self.handshakes.remove(index));
        }
        let index = self.senders.iter().position(|(_, kept)| kept.is(sleeper))?;
        self.senders.remove(index).map(|(_, kept)| kept)
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        visit.call(&self.selector)?;
        let senders = self.senders.iter().map(|(_, sleeper)| sleeper);
        let mut sleepers = self.receiver.iter().chain(&self.handshakes).chain(senders);
        sleepers.try_for_each(|sleeper| visit.call(sleeper))
    }

    /// Take the tasks for which the connection has something now.
    fn take_woken(&mut self, readiness: &Readiness) -> (Option<Py<Sleeper>>, Vec<Py<Sleeper>>) {
        let reads = readiness.ready || readiness.over;
        let receiver = if reads { self.receiver.take() } else { None };
        let mut others = Vec::new();
        if readiness.open || readiness.over {
            others.append(&mut self.handshakes);
        }
        // A sender that waits for its own buffers may be queued behind one that waits for less.
        let done = |end: u64| readiness.over || end <= readiness.sent;
        while let Some((end, _)) = self.senders.front()
            && done(*end)
        {
            others.extend(self.senders.pop_front().map(|(_, sleeper)| sleeper));
        }
        (receiver, others)
    }
}

impl MessageConnection {
    /// What a coroutine sleeps on until it should look again.
    pub(crate) fn sleep_on(&self, py: Python<'_>, wanted: Wanted) -> Result<Py<Sleeper>> {
        let mut slot = self.face();
        let Some(face) = &mut *slot else {
            drop(slot);
            return Err(self.ended());
        };
        if let (Wanted::Message(_), Some(receiver)) = (wanted, &face.receiver)
            && receiver.get().is_awaited()
        {
            drop(slot);
            let peer = self.core.peer();
            return Err(busy(format!("another task waits for messages of {peer}")));
        }
        let sleeper = Py::new(py, Sleeper::new(face.event_loop.clone_ref(py)))?;
        let kept = sleeper.clone_ref(py);
        let left = match wanted {
            Wanted::Message(_) => face.receiver.replace(kept),
            Wanted::Sent { end, .. } => {
                face.senders.push_back((end, kept));
                None
            }
            Wanted::Open | Wanted::Nothing => {
                face.handshakes.push(kept);
                None
            }
        };
        drop(slot);
        drop(left); // one that was cancelled, and with it what it kept alive
        Ok(sleeper)
    }

    /// A coroutine is given up: it is not woken any more, and its buffers are the caller's.
    pub fn leave(&self, wanted: Wanted, sleeper: Option<Py<Sleeper>>) {
        let left = match (&sleeper, &mut *self.face()) {
            (Some(sleeper), Some(face)) => face.take_out(sleeper),
            _ => None,
        };
        drop(left);
        if matches!(wanted, Wanted::Sent { lent: true, .. }) {
            let _ = self.core.own(); // only a forked child has nothing to own
        }
    }

    /// Run the tasks that waited for what is there now. Called by the loop, where no task runs.
    ///
    /// They may do anything with the connection, so nothing that was looked up before holds afterwards.
    pub(super) fn wake_tasks(&self, py: Python<'_>, readiness: &Readiness) -> Result<()> {
        let (receiver, others, runs) = match &mut *self.face() {
            Some(face) => {
                let (receiver, others) = face.take_woken(readiness);
                (receiver, others, face.runs)
            }
            None => return Ok(()),
        };
        for sleeper in &others {
            Sleeper::run_later(sleeper.bind(py))?;
        }
        match receiver {
            Some(sleeper) if runs => Sleeper::run(sleeper.bind(py))?,
            Some(sleeper) => Sleeper::run_later(sleeper.bind(py))?,
            None => {}
        }
        Ok(())
    }

    /// Have the loop watch the socket for `wanted`.
    pub(super) fn watch(slf: &Bound<'_, Self>, wanted: u8) -> Result<()> {
        let py = slf.py();
        let Some(watch) = slf.get().changed_watch(py, wanted) else {
            return Ok(());
        };
        let (socket, watched) = (watch.socket, watch.watched);
        if let Some(selector) = watch.selector {
            match (watched, wanted) {
                (_, 0) => selector.call_method1(py, intern!(py, "detach"), (socket,)),
                (0, _) => selector.call_method1(py, intern!(py, "attach"), (socket, wanted, slf)),
                _ => selector.call_method1(py, intern!(py, "change"), (socket, wanted)),
            }?;
        } else {
            Self::watch_on(slf, &watch.event_loop, socket, (watched, wanted))?;
        }
        if let Some(face) = &mut *slf.get().face() {
            face.watched = wanted;
        }
        Ok(())
    }

    /// What is watched, where that is not `wanted`; a copy, because the loop's methods run without the lock.
    fn changed_watch(&self, py: Python<'_>, wanted: u8) -> Option<Watch> {
        let face = self.face();
        let face = face.as_ref().filter(|face| face.watched != wanted)?;
        let selector = face.selector.as_ref();
        Some(Watch {
            event_loop: face.event_loop.clone_ref(py),
            selector: selector.map(|selector| selector.clone_ref(py)),
            socket: face.socket,
            watched: face.watched,
        })
    }

    /// The same on a loop of another library.
    fn watch_on(
        slf: &Bound<'_, Self>,
        event_loop: &Py<PyAny>,
        socket: RawFd,
        (watched, wanted): (u8, u8),
    ) -> Result<()> {
        let py = slf.py();
        let changed = watched ^ wanted;
        for (bit, add, remove, callback) in [
            (READABLE, "add_reader", "remove_reader", "on_readable"),
            (WRITABLE, "add_writer", "remove_writer", "on_writable"),
        ] {
            if changed & bit == 0 {
                continue;
            }
            if wanted & bit == 0 {
                event_loop.call_method1(py, remove, (socket,))?;
            } else {
                event_loop.call_method1(py, add, (socket, slf.getattr(callback)?))?;
            }
        }
        Ok(())
    }

    /// Read again where that had stopped because too much lay here.
    pub(crate) fn resume(slf: &Bound<'_, Self>) -> Result<()> {
        let this = slf.get();
        let watched = match &*this.face() {
            Some(face) => face.watched,
            None => return Ok(()),
        };
        if watched & READABLE != 0 {
            return Ok(());
        }
        let readiness = this.core.step(false, false)?;
        if readiness.wants_read {
            Self::watch(slf, watched | READABLE)?;
        }
        if readiness.again {
            Self::come_back(slf)?;
        }
        Ok(())
    }

    /// Whether the loop reported an error together with the bytes that were read, and so never calls again.
    pub(super) fn has_had_last_event(&self) -> bool {
        let reports_once = self.face().as_ref().is_some_and(|face| face.reports_once);
        reports_once && self.core.has_error()
    }

    /// Read on in the next turn of the loop.
    pub(crate) fn come_back(slf: &Bound<'_, Self>) -> Result<()> {
        let py = slf.py();
        let event_loop = slf
            .get()
            .face()
            .as_ref()
            .map(|face| face.event_loop.clone_ref(py));
        if let Some(event_loop) = event_loop {
            let callback = slf.getattr(intern!(py, "on_readable"))?;
            event_loop.call_method1(py, intern!(py, "call_soon"), (callback,))?;
        }
        Ok(())
    }
}

/// Whether a loop is one of asyncio's, whose selectors report an error as long as it is there.
fn is_asyncios(event_loop: &Bound<'_, PyAny>) -> PyResult<bool> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let class = CLASS.import(event_loop.py(), "asyncio", "SelectorEventLoop")?;
    event_loop.is_instance(class)
}
