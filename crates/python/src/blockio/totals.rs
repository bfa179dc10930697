//! Operations of this process, for its metrics.

use forebay_blockio::{BACKENDS, KINDS, totals};
use pyo3::prelude::*;

/// What operations do, what carries them out, and how many there were.
#[pyfunction]
pub(crate) fn blockio_totals() -> Vec<(&'static str, &'static str, u64)> {
    let of_backend = |(backend, counts): (&'static str, [u64; KINDS.len()])| {
        let kinds = KINDS.into_iter().zip(counts);
        kinds.map(move |(kind, count)| (kind, backend, count))
    };
    let backends = BACKENDS.into_iter().zip(totals());
    backends.flat_map(of_backend).collect()
}
