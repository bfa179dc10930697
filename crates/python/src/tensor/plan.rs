//! `forebay._core.TensorPlan`: pulls from shared memory whose buffers are taken once.
use forebay_tensor::stream::Work;
use pyo3::prelude::*;

use super::batch::CoreLink;
use super::request::{KEPT_BYTES_MAX, Request, bytes_of};
use crate::sys::kept::KeptExports;

/// Pulls of one link, and the buffers that they are on, which are exported for as long as this lives.
#[pyclass(frozen, weakref, module = "forebay._core")]
pub(crate) struct TensorPlan {
    link: CoreLink,
    works: Vec<Work>,
    bytes: u64,
    _memory: KeptExports,
}

impl TensorPlan {
    pub(super) fn new(link: CoreLink, request: Request) -> Self {
        let (works, memory) = request.split();
        let bytes = bytes_of(&works);
        Self {
            link,
            works,
            bytes,
            _memory: memory,
        }
    }
}

#[pymethods]
impl TensorPlan {
    /// Make the pulls, if that can be done at once; otherwise False, and what they were to fill means nothing.
    fn read(&self, py: Python<'_>) -> bool {
        let read = || self.link.read(&self.works, |_, _| {});
        if self.bytes <= KEPT_BYTES_MAX {
            return read();
        }
        py.detach(read)
    }
}
