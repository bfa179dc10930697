//! Long buffers of calls, which are copied to where the peer reads them, and received ones around a fork.

use forebay_transport::calls::{Connection as Core, Outgoing, Taker};
use forebay_transport::link::Payload;
use forebay_transport::{Result, limit, share};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

static WATCHED: PyOnceLock<()> = PyOnceLock::new();

/// Send something with these segments; what is long is copied without the GIL.
pub fn send<R: Send>(
    py: Python<'_>,
    segments: Vec<Payload>,
    act: impl FnOnce(Vec<Payload>) -> R + Send,
) -> R {
    let bytes = |segment: &Payload| (**segment).as_ref().len();
    if segments.iter().map(bytes).sum::<usize>() >= limit::STAGE_BYTES_MIN {
        return py.detach(|| act(segments));
    }
    act(segments)
}

/// Start a call.
pub fn start(py: Python<'_>, core: &Core, mut call: Outgoing<'_>, taker: Taker) -> Result<u64> {
    let segments = std::mem::take(&mut call.segments);
    send(py, segments, |segments| {
        call.segments = segments;
        core.start(call, taker)
    })
}

/// Start a call that is answered by a stream.
pub fn start_stream(
    py: Python<'_>,
    core: &Core,
    mut call: Outgoing<'_>,
    taker: Taker,
    credit: u32,
) -> Result<u64> {
    let segments = std::mem::take(&mut call.segments);
    send(py, segments, |segments| {
        call.segments = segments;
        core.start_stream(call, taker, credit)
    })
}

/// Have what is borrowed from peers become this process's own before it forks, from the first time on that it is.
pub fn watch_forks(py: Python<'_>) -> PyResult<()> {
    WATCHED
        .get_or_try_init(py, || {
            let hooks = PyDict::new(py);
            hooks.set_item("before", wrap_pyfunction!(keep_borrowed, py)?)?;
            py.import("os")?
                .call_method("register_at_fork", (), Some(&hooks))?;
            Ok(())
        })
        .copied()
}

/// Make everything that this process holds of its peers' memory its own.
#[pyfunction]
fn keep_borrowed() {
    share::keep_borrowed();
}

/// Reclaim segments that peers released after their connections ended. Also runs on every open and close.
#[pyfunction]
fn sweep_lent() {
    share::sweep_lent();
}

/// Add the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(sweep_lent, module)?)
}
