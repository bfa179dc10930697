//! Whose process is at the other end of a loopback connection.
use std::os::fd::RawFd;
use std::path::PathBuf;

use forebay_transport::serve::Listening;
use forebay_transport::stream::owner;
use forebay_transport::stream::unix::Listener;
use pyo3::prelude::*;

use crate::error::Result;
use crate::sys::descriptor;

/// Asks the kernel whose a peer is.
#[pyclass(frozen, module = "forebay._core")]
pub(crate) struct Owners {
    core: owner::Owners,
}

#[pymethods]
impl Owners {
    #[new]
    fn new(listening: RawFd) -> Result<Self> {
        let core = owner::Owners::open(descriptor::borrow(listening)?)?;
        Ok(Self { core })
    }

    /// Why the peer of a connected socket is not let in; None: it is of this user, or root.
    fn complaint(&self, connected: RawFd) -> Result<Option<String>> {
        let socket = descriptor::borrow(connected)?;
        if self.core.admits(socket) {
            return Ok(None);
        }
        Ok(Some(owner::foreign_user_message(self.core.of_peer(socket))))
    }
}

/// A path to listen at, or else listening sockets, which are given away.
///
/// `own`: those of the loopback interface are for this user alone.
pub(crate) fn listening(
    path: Option<PathBuf>,
    descriptors: Vec<RawFd>,
    own: bool,
) -> Result<Listening> {
    let sockets: PyResult<Vec<_>> = descriptors.into_iter().map(descriptor::take).collect();
    let sockets = sockets?; // before anything else fails: they are closed then
    if let Some(path) = path {
        return Ok(Listening::Unix(Listener::bind(&path)?));
    }
    let Some(first) = sockets.first().filter(|_| own) else {
        return Ok(Listening::Tcp(sockets));
    };
    let owners = owner::Owners::open(first)?;
    Ok(Listening::OwnTcp(sockets, owners))
}
