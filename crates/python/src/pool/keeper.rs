//! The keeper's process.

use std::os::fd::RawFd;
use std::path::PathBuf;

use forebay_pool::keeper::{self, Inherited};
use pyo3::prelude::*;

use crate::error::Result;
use crate::sys::descriptor::take;

/// Be the keeper, until the client is gone. The descriptors are given away. Never attached to Python meanwhile.
#[pyfunction]
pub fn run_keeper(
    py: Python<'_>,
    control: RawFd,
    page: RawFd,
    client: RawFd,
    scratch: PathBuf,
) -> Result<()> {
    let inherited = Inherited {
        control: take(control)?,
        page: take(page)?,
        client: take(client)?,
        scratch,
    };
    Ok(py.detach(|| keeper::run(inherited))?)
}
