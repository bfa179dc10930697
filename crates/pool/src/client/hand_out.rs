//! Descriptors of a lent service for a holder in another process.

use std::os::fd::OwnedFd;

use super::Client;
use crate::error::{Error, Result};
use crate::wire::Handle;

/// Duplicates for one holder.
#[derive(Debug)]
pub struct HandedOut {
    /// The holder's end of the service's socket.
    pub socket: OwnedFd,
    /// Process id and pidfd, once the keeper has reported them.
    pub process: Option<(i32, OwnedFd)>,
}

impl Client {
    /// What another process needs to use a lent service.
    pub fn hand_out(&self, handle: Handle) -> Result<HandedOut> {
        let mut state = self.enter()?;
        let entry = state.entry(handle)?;
        let duplicate = |descriptor: &OwnedFd| {
            descriptor.try_clone().map_err(|source| Error::System {
                what: "dup for another process".into(),
                source,
            })
        };
        let socket = entry.socket.as_ref().ok_or(Error::KeeperLost)?;
        let pidfd = entry.pidfd.as_ref().map(duplicate).transpose()?;
        Ok(HandedOut {
            socket: duplicate(socket)?,
            process: pidfd.map(|pidfd| (entry.pid, pidfd)),
        })
    }
}
