//! Looking for input before a caller of Python's sockets sleeps.

use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

use forebay_transport::drive::LongLook;
use pyo3::prelude::*;

use crate::sys::descriptor::borrow;

/// Where looking has paid at one socket.
#[pyclass(frozen, module = "forebay._core")]
pub struct Look(Mutex<LongLook>);

#[pymethods]
impl Look {
    #[new]
    const fn new() -> Self {
        Self(Mutex::new(LongLook::new()))
    }

    /// Look for a moment, without the GIL, until input is there. Nothing happens where that has not paid lately.
    fn look(&self, py: Python<'_>, socket: RawFd) -> PyResult<()> {
        let socket = borrow(socket)?;
        py.detach(|| {
            let mut look = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            look.look_for_input(socket);
        });
        Ok(())
    }
}
