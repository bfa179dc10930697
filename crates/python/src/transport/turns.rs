//! Turns of an asyncio loop: `_run_once` and `call_soon` of `BaseEventLoop` without Python's share.
//!
//! An echo of 1 kB costs its client 7 % less CPU time than on the same loop with asyncio's turns
//! with one connection, 12 % less with four (17.2 and 16.0 us, 14.3 and 12.6 us, interleaved, on a
//! loaded machine). Most of what is left goes into the attributes of asyncio's handles.
//!
//! The queues, the timers and the handles stay asyncio's own objects, and every turn that is out of
//! the ordinary (debug mode, cancelled timers to clear away, a closed loop) is asyncio's own turn.
//! What is used of its internals is checked before a loop is made with this class:
//! `knows_asyncio` in `python/forebay/transport/_event_loop.py`.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use super::selector::Selector;

/// asyncio's `_MIN_SCHEDULED_TIMER_HANDLES`: from here on cancelled timers are cleared away when
/// they are more than half.
const TIMERS_MIN: usize = 100;
/// asyncio's `MAXIMUM_SELECT_TIMEOUT`, seconds.
const SLEEP_S_MAX: f64 = 24.0 * 3600.0;

/// A base class of an event loop, to stand before `asyncio.SelectorEventLoop`.
#[pyclass(frozen, subclass, module = "forebay._core")]
pub struct Turns {
    handle: Py<PyType>,
    timer_handle: Py<PyType>,
    make: Py<PyAny>,
    pop_timer: Py<PyAny>,
    copy_context: Py<PyAny>,
    stock_turn: Py<PyAny>,
    stock_call_soon: Py<PyAny>,
}

#[pymethods]
impl Turns {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(
        py: Python<'_>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let events = py.import("asyncio.events")?;
        let stock = py.import("asyncio.base_events")?.getattr("BaseEventLoop")?;
        let class = |name| PyResult::Ok(events.getattr(name)?.cast_into::<PyType>()?.unbind());
        Ok(Self {
            handle: class("Handle")?,
            timer_handle: class("TimerHandle")?,
            make: py.get_type::<PyAny>().getattr("__new__")?.unbind(),
            pop_timer: py.import("heapq")?.getattr("heappop")?.unbind(),
            copy_context: py.import("contextvars")?.getattr("copy_context")?.unbind(),
            stock_turn: stock.getattr("_run_once")?.unbind(),
            stock_call_soon: stock.getattr("call_soon")?.unbind(),
        })
    }

    /// Run `callback` in the next turn; asyncio's `call_soon`.
    #[pyo3(signature = (callback, *args, context = None))]
    fn call_soon<'py>(
        slf: &Bound<'py, Self>,
        callback: Bound<'py, PyAny>,
        args: Bound<'py, PyTuple>,
        context: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if is_true(slf, intern!(py, "_closed"))? || is_true(slf, intern!(py, "_debug"))? {
            let named = PyDict::new(py);
            named.set_item("context", context)?;
            let given = [slf.as_any().clone(), callback]
                .into_iter()
                .chain(args.iter());
            let given = PyTuple::new(py, given.collect::<Vec<_>>())?;
            return slf.get().stock_call_soon.bind(py).call(given, Some(&named));
        }
        let handle = slf.get().new_handle(slf, callback, args, context)?;
        slf.getattr(intern!(py, "_ready"))?
            .call_method1(intern!(py, "append"), (&handle,))?;
        Ok(handle)
    }

    /// Wait for what is ready, or for the next timer, and run what is due; asyncio's `_run_once`.
    fn _run_once(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let timers = slf
            .getattr(intern!(py, "_scheduled"))?
            .cast_into::<PyList>()?;
        if is_true(slf, intern!(py, "_debug"))? || needs_clearing(slf, &timers)? {
            return slf.get().stock_turn.call1(py, (slf,)).map(drop);
        }
        let ready = slf.getattr(intern!(py, "_ready"))?;
        let timeout = timeout(slf, &ready, &timers)?;
        let found = select(slf, timeout)?;
        if found.len()? > 0 {
            slf.call_method1(intern!(py, "_process_events"), (found,))?;
        }
        slf.get().move_due_timers(slf, &ready)?;
        let pop = ready.getattr(intern!(py, "popleft"))?;
        // Those that they add run in the next turn, after the sockets had theirs.
        for _ in 0..ready.len()? {
            slf.get().run(slf, &pop.call0()?)?;
        }
        Ok(())
    }
}

impl Turns {
    /// What `Handle.__init__` makes outside debug mode.
    fn new_handle<'py>(
        &self,
        event_loop: &Bound<'py, Self>,
        callback: Bound<'py, PyAny>,
        args: Bound<'py, PyTuple>,
        context: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = event_loop.py();
        let context = match context {
            Some(context) => context,
            None => self.copy_context.bind(py).call0()?,
        };
        let handle = self.make.bind(py).call1((&self.handle,))?;
        handle.setattr(intern!(py, "_context"), context)?;
        handle.setattr(intern!(py, "_loop"), event_loop)?;
        handle.setattr(intern!(py, "_callback"), callback)?;
        handle.setattr(intern!(py, "_args"), args)?;
        handle.setattr(intern!(py, "_cancelled"), false)?;
        handle.setattr(intern!(py, "_repr"), py.None())?;
        handle.setattr(intern!(py, "_source_traceback"), py.None())?;
        Ok(handle)
    }

    fn move_due_timers(
        &self,
        event_loop: &Bound<'_, Self>,
        ready: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let py = event_loop.py();
        // Callbacks of the direct path may have added timers, or replaced the list.
        let timers = event_loop
            .getattr(intern!(py, "_scheduled"))?
            .cast_into::<PyList>()?;
        if timers.is_empty() {
            return Ok(());
        }
        let resolution: f64 = event_loop
            .getattr(intern!(py, "_clock_resolution"))?
            .extract()?;
        let end = now(event_loop)? + resolution;
        while !timers.is_empty() && when(&timers.get_item(0)?)? < end {
            let handle = self.pop_timer.bind(py).call1((&timers,))?;
            handle.setattr(intern!(py, "_scheduled"), false)?;
            ready.call_method1(intern!(py, "append"), (handle,))?;
        }
        Ok(())
    }

    /// What `Handle._run` does.
    fn run(&self, event_loop: &Bound<'_, Self>, handle: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = event_loop.py();
        if is_true(handle, intern!(py, "_cancelled"))? {
            return Ok(());
        }
        let class = handle.get_type();
        if !class.is(&self.handle) && !class.is(&self.timer_handle) {
            return handle.call_method0(intern!(py, "_run")).map(drop);
        }
        let callback = handle.getattr(intern!(py, "_callback"))?;
        let args = handle.getattr(intern!(py, "_args"))?;
        let context = handle.getattr(intern!(py, "_context"))?;
        let run = context.getattr(intern!(py, "run"))?;
        let outcome = run.call1(&with_first(callback, args.cast::<PyTuple>()?)?);
        let Err(error) = outcome else {
            return Ok(());
        };
        if error.is_instance_of::<PyKeyboardInterrupt>(py)
            || error.is_instance_of::<PySystemExit>(py)
        {
            return Err(error);
        }
        event_loop
            .call_method1(intern!(py, "_report_handle"), (handle, error))
            .map(drop)
    }
}

fn is_true<T>(object: &Bound<'_, T>, name: &Bound<'_, pyo3::types::PyString>) -> PyResult<bool> {
    object.as_any().getattr(name)?.is_truthy()
}

/// A tuple with one more in front.
fn with_first<'py>(
    first: Bound<'py, PyAny>,
    rest: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyTuple>> {
    let py = rest.py();
    match rest.len() {
        0 => PyTuple::new(py, [first]),
        1 => PyTuple::new(py, [first, rest.get_item(0)?]),
        _ => PyTuple::new(py, [first])?
            .as_sequence()
            .concat(rest.as_sequence())?
            .to_tuple(),
    }
}

/// Whether cancelled timers are in the way, which asyncio's own turn clears away.
fn needs_clearing(event_loop: &Bound<'_, Turns>, timers: &Bound<'_, PyList>) -> PyResult<bool> {
    let py = timers.py();
    if timers.is_empty() {
        return Ok(false);
    }
    if timers.len() > TIMERS_MIN {
        let cancelled = event_loop.getattr(intern!(py, "_timer_cancelled_count"))?;
        if 2 * cancelled.extract::<usize>()? > timers.len() {
            return Ok(true);
        }
    }
    is_true(&timers.get_item(0)?, intern!(py, "_cancelled"))
}

fn now<T>(event_loop: &Bound<'_, T>) -> PyResult<f64> {
    event_loop
        .as_any()
        .call_method0(intern!(event_loop.py(), "time"))?
        .extract()
}

fn when(timer: &Bound<'_, PyAny>) -> PyResult<f64> {
    timer.getattr(intern!(timer.py(), "_when"))?.extract()
}

/// How long this turn may sleep, in seconds; `None` for as long as nothing happens.
fn timeout(
    event_loop: &Bound<'_, Turns>,
    ready: &Bound<'_, PyAny>,
    timers: &Bound<'_, PyList>,
) -> PyResult<Option<f64>> {
    if ready.len()? > 0 || is_true(event_loop, intern!(event_loop.py(), "_stopping"))? {
        return Ok(Some(0.0));
    }
    if timers.is_empty() {
        return Ok(None);
    }
    let left = when(&timers.get_item(0)?)? - now(event_loop)?;
    Ok(Some(left.clamp(0.0, SLEEP_S_MAX)))
}

/// Wait on the loop's selector: ours without a detour, another one as asyncio does.
fn select<'py>(
    event_loop: &Bound<'py, Turns>,
    timeout: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = event_loop.py();
    let selector = event_loop.getattr(intern!(py, "_selector"))?;
    match selector.cast::<Selector>() {
        Ok(ours) => ours.get().select(py, timeout).map(Bound::into_any),
        Err(_) => selector.call_method1(intern!(py, "select"), (timeout,)),
    }
}
