//! Whose process is at the other end of a loopback connection.
use std::os::fd::{OwnedFd, RawFd};

use forebay_transport::serve::Listening;
use forebay_transport::stream::owner;
use pyo3::prelude::*;

use crate::error::transport_error;
use crate::sys::descriptor;

/// Asks the kernel whose a peer is.
#[pyclass(frozen, module = "forebay._core")]
pub(crate) struct Owners {
    core: owner::Owners,
}

#[pymethods]
impl Owners {
    #[new]
    fn new(py: Python<'_>, listening: RawFd) -> PyResult<Self> {
        let core = owner::Owners::open(descriptor::borrow(listening)?);
        let core = core.map_err(|error| transport_error(py, &error, None))?;
        Ok(Self { core })
    }

    /// Why the peer of a connected socket is not let in; None: it is of this user, or root.
    fn complaint(&self, connected: RawFd) -> PyResult<Option<String>> {
        let socket = descriptor::borrow(connected)?;
        if self.core.admits(socket) {
            return Ok(None);
        }
        Ok(Some(owner::foreign_user_message(self.core.of_peer(socket))))
    }
}

/// Listening sockets, of which those of the loopback interface may be for this user alone.
pub(crate) fn tcp(py: Python<'_>, sockets: Vec<OwnedFd>, own: bool) -> PyResult<Listening> {
    let Some(first) = sockets.first().filter(|_| own) else {
        return Ok(Listening::Tcp(sockets));
    };
    let owners = owner::Owners::open(first).map_err(|error| transport_error(py, &error, None))?;
    Ok(Listening::OwnTcp(sockets, owners))
}
