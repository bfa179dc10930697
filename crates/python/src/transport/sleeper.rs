//! What a task sleeps on until its connection has something for it.
//!
//! It speaks as much of `asyncio.Future` as a task uses, and saves what a future costs: a wake-up from a turn
//! of the loop runs the task there and then, without a handle and without a place in the loop's queue.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

/// Who is to be run, and in which context.
struct Sleeping {
    wakeup: Py<PyAny>,
    context: Option<Py<PyAny>>,
}

enum State {
    /// Handed to its task, which has not said yet how to wake it.
    Lent,
    Asleep(Sleeping),
    /// Its task was run, or will be soon.
    Woken,
    /// The same, by `cancel`.
    Cancelled(Option<Py<PyAny>>),
}

/// A future for one task and one occasion.
#[pyclass(frozen, module = "forebay._core")]
pub struct Sleeper {
    event_loop: Py<PyAny>,
    state: Mutex<State>,
}

#[pymethods]
impl Sleeper {
    /// True until the task has seen it: the protocol between a coroutine and its task.
    #[getter(_asyncio_future_blocking)]
    fn blocking(&self) -> bool {
        matches!(*self.lock(), State::Lent)
    }

    /// The task says that it has seen it, and adds itself next.
    #[setter(_asyncio_future_blocking)]
    #[allow(clippy::unused_self)]
    fn set_blocking(&self, _blocking: bool) {}

    fn get_loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.event_loop.clone_ref(py)
    }

    #[pyo3(signature = (wakeup, *, context = None))]
    fn add_done_callback(
        slf: Bound<'_, Self>,
        wakeup: Py<PyAny>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let sleeping = Sleeping { wakeup, context };
        let mut state = slf.get().lock();
        match *state {
            State::Lent => {
                *state = State::Asleep(sleeping);
                Ok(())
            }
            State::Asleep(_) => Err(PyTypeError::new_err(
                "one task sleeps here already; make a task of the call to wait for it twice",
            )),
            State::Woken | State::Cancelled(_) => {
                drop(state);
                Self::run_soon(&slf, sleeping)
            }
        }
    }

    /// Have the task run with a `CancelledError`; false where it was woken before.
    #[pyo3(signature = (msg = None))]
    fn cancel(slf: Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let was = {
            let mut state = slf.get().lock();
            if matches!(*state, State::Woken | State::Cancelled(_)) {
                return Ok(false);
            }
            std::mem::replace(&mut *state, State::Cancelled(msg))
        };
        if let State::Asleep(sleeping) = was {
            Self::run_soon(&slf, sleeping)?;
        }
        Ok(true)
    }

    fn cancelled(&self) -> bool {
        matches!(*self.lock(), State::Cancelled(_))
    }

    fn done(&self) -> bool {
        matches!(*self.lock(), State::Woken | State::Cancelled(_))
    }

    /// Nothing: the task looks for itself. Raises `CancelledError` after `cancel`.
    fn result(&self, py: Python<'_>) -> PyResult<()> {
        let state = self.lock();
        let State::Cancelled(message) = &*state else {
            return Ok(());
        };
        let message = message.as_ref().map(|message| message.clone_ref(py));
        drop(state);
        let class = cancelled_error(py)?;
        let error = match message {
            Some(message) => class.call1((message,))?,
            None => class.call0()?,
        };
        Err(PyErr::from_value(error))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.event_loop)?;
        match self.state.try_lock().as_deref() {
            Ok(State::Asleep(sleeping)) => {
                visit.call(&sleeping.wakeup)?;
                visit.call(&sleeping.context)
            }
            Ok(State::Cancelled(message)) => visit.call(message),
            Ok(State::Lent | State::Woken) | Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        let was = std::mem::replace(&mut *self.lock(), State::Woken);
        drop(was); // without the lock
    }
}

impl Sleeper {
    pub fn new(event_loop: Py<PyAny>) -> Self {
        Self {
            event_loop,
            state: Mutex::new(State::Lent),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a task still waits here to be woken.
    pub fn is_awaited(&self) -> bool {
        matches!(*self.lock(), State::Lent | State::Asleep(_))
    }

    /// Run the task now, where no other one runs, as is so in a callback of the loop.
    ///
    /// What its step raises beyond the task, as `KeyboardInterrupt`, comes from here.
    pub fn run(slf: &Bound<'_, Self>) -> PyResult<()> {
        let Some(sleeping) = slf.get().wake() else {
            return Ok(());
        };
        let Some(context) = &sleeping.context else {
            return Self::run_soon(slf, sleeping);
        };
        let py = slf.py();
        let running = current_task(py)?.call1((&slf.get().event_loop,))?;
        if !running.is_none() {
            return Self::run_soon(slf, sleeping); // a loop within a task
        }
        let outcome = context.call_method1(py, intern!(py, "run"), (&sleeping.wakeup, slf));
        match outcome {
            Err(error) if is_entered(py, &error) => Self::run_soon(slf, sleeping),
            outcome => outcome.map(drop),
        }
    }

    /// Have the loop run the task in its next turn.
    pub fn run_later(slf: &Bound<'_, Self>) -> PyResult<()> {
        match slf.get().wake() {
            Some(sleeping) => Self::run_soon(slf, sleeping),
            None => Ok(()),
        }
    }

    fn wake(&self) -> Option<Sleeping> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Woken) {
            State::Asleep(sleeping) => Some(sleeping),
            State::Lent | State::Woken => None,
            cancelled @ State::Cancelled(_) => {
                *state = cancelled;
                None
            }
        }
    }

    fn run_soon(slf: &Bound<'_, Self>, sleeping: Sleeping) -> PyResult<()> {
        let py = slf.py();
        let named = PyDict::new(py);
        named.set_item(intern!(py, "context"), sleeping.context)?;
        slf.get()
            .event_loop
            .bind(py)
            .getattr(intern!(py, "call_soon"))?
            .call((sleeping.wakeup, slf), Some(&named))
            .map(drop)
    }
}

fn current_task(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    FUNCTION.import(py, "asyncio", "current_task")
}

/// Whether a context refused to be entered once more, before anything ran in it.
fn is_entered(py: Python<'_>, error: &PyErr) -> bool {
    error.get_type(py).is(py.get_type::<PyRuntimeError>())
        && error
            .value(py)
            .to_string()
            .starts_with("cannot enter context")
}

fn cancelled_error(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "asyncio", "CancelledError")
}
