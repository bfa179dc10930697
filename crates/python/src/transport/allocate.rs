//! Receiving long frames into memory that Python gives.

use std::sync::Arc;

use forebay_transport::Buffer;
use forebay_transport::messages::Allocator;
use pyo3::prelude::*;

use crate::sys::given::Given;

/// An allocator that asks `function(nbytes)` for a writable buffer for each long frame.
///
/// What it raises, or a buffer of another size, is reported as unraisable, and memory of our own is taken.
pub fn allocator(function: Py<PyAny>) -> Allocator {
    let function = Arc::new(function);
    Box::new(move |lengths| {
        Python::attach(|py| {
            let ask = |&bytes: &usize| {
                if bytes == 0 {
                    return None;
                }
                obtain(function.bind(py), bytes)
                    .inspect_err(|error| {
                        error
                            .clone_ref(py)
                            .write_unraisable(py, Some(function.bind(py)));
                    })
                    .ok()
            };
            lengths.iter().map(ask).collect()
        })
    })
}

fn obtain(function: &Bound<'_, PyAny>, bytes: usize) -> PyResult<Buffer> {
    Given::new(function.call1((bytes,))?, bytes).map(Given::into_buffer)
}

/// The object whose memory a frame was received into, where it was given.
pub fn given_back(buffer: Buffer) -> Result<Py<PyAny>, Buffer> {
    let owner = buffer.into_owner()?;
    match owner.downcast::<Given>() {
        Ok(given) => Ok(given.into_object()),
        Err(_) => unreachable!("memory is given by Python alone"),
    }
}
