//! Where the pool wakes waiting callers.

use std::os::fd::RawFd;
use std::sync::Arc;

use forebay_base::Queue;
use forebay_pool::client::Wake;
use pyo3::prelude::*;

use crate::error::Result;

/// Wake-ups that may wait for a caller; a caller has few tickets at once, an event loop many.
const WAKES_MAX: usize = 1 << 20;

/// Notifies a caller or a loop that its ticket was granted.
#[pyclass(frozen, module = "forebay._core")]
pub struct WakeQueue(pub Arc<Queue<Wake>>);

#[pymethods]
impl WakeQueue {
    #[new]
    fn new() -> Result<Self> {
        Ok(Queue::new(WAKES_MAX).map(|queue| Self(Arc::new(queue)))?)
    }

    fn fileno(&self) -> RawFd {
        self.0.fileno()
    }

    fn drain(&self) -> Result<Vec<Wake>> {
        let mut batch = Vec::new();
        self.0.drain(&mut batch)?;
        Ok(batch)
    }
}
