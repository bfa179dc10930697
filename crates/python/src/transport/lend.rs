//! Long buffers of calls, which are copied to where the peer reads them, and received ones around a fork.

use forebay_transport::call::Taker;
use forebay_transport::connection::Outgoing;
use forebay_transport::{Codec, Connection as Core, Head, Payload, Result, lending, limit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

static WATCHED: PyOnceLock<()> = PyOnceLock::new();

/// Start a call; what is long is copied without the GIL.
pub fn start(py: Python<'_>, core: &Core, call: Outgoing<'_>, taker: Taker) -> Result<u64> {
    if is_long(&call.segments) {
        return py.detach(|| core.start(call, taker));
    }
    core.start(call, taker)
}

/// Answer a call; what is long is copied without the GIL.
pub fn reply(
    py: Python<'_>,
    core: &Core,
    id: u64,
    codec: Codec,
    head: Head<'_>,
    segments: Vec<Payload>,
) -> Result<()> {
    if is_long(&segments) {
        return py.detach(|| core.reply(id, codec, head, segments));
    }
    core.reply(id, codec, head, segments)
}

fn is_long(segments: &[Payload]) -> bool {
    let bytes = |segment: &Payload| (**segment).as_ref().len();
    segments.iter().map(bytes).sum::<usize>() >= limit::ASIDE_BYTES_MIN
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
    lending::keep_borrowed();
}

/// Take back what peers have given back since their connections ended; whoever opens or closes one does so too.
#[pyfunction]
fn sweep_lent() {
    lending::sweep_lent();
}

/// Add the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(sweep_lent, module)?)
}
