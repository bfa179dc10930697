//! The epoll set of a pool: the keeper's socket, and the sockets of services that settle.
//!
//! Callers wait for it without a lock. It stays open as long as one waits, also when the pool is closed meanwhile.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_base::time::timespec;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;

use crate::error::{Error, Result};

/// The epoll data of the keeper's socket; slots use their own number.
const CONTROL: u64 = u64::MAX;

/// What is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadySource {
    /// The keeper's socket.
    Keeper,
    /// The socket of the service of a slot.
    Slot(u32),
}

/// The set; None once the pool is closed.
#[derive(Debug)]
pub struct ReadySet(Mutex<Option<Arc<OwnedFd>>>);

impl ReadySet {
    /// A set that watches nothing yet.
    pub fn new() -> Result<Self> {
        let set =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("epoll_create1"))?;
        Ok(Self(Mutex::new(Some(Arc::new(set)))))
    }

    /// Its descriptor, which stays open as long as it is used.
    pub fn descriptor(&self) -> Result<Arc<OwnedFd>> {
        let set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        set.as_ref().map(Arc::clone).ok_or(Error::Closed)
    }

    /// The pool is closed.
    pub fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Watch a socket.
    pub fn watch(&self, socket: impl AsFd, source: ReadySource) -> Result<()> {
        let data = epoll::EventData::new_u64(match source {
            ReadySource::Keeper => CONTROL,
            ReadySource::Slot(slot) => u64::from(slot),
        });
        epoll::add(self.descriptor()?, socket, data, epoll::EventFlags::IN)
            .map_err(Error::system("epoll_ctl"))
    }

    /// Watch a socket no more.
    pub fn unwatch(&self, socket: impl AsFd) {
        if let Ok(set) = self.descriptor() {
            let _ = epoll::delete(set, socket); // not watched is as good
        }
    }
}

/// Some of the sources that are ready in a set now; None where none is.
pub fn look(set: &OwnedFd) -> Result<Option<impl Iterator<Item = ReadySource> + use<>>> {
    let mut events = Vec::with_capacity(32);
    let now = timespec(Duration::ZERO);
    match epoll::wait(set, spare_capacity(&mut events), Some(&now)) {
        Ok(0) => return Ok(None),
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(Error::system("epoll_wait")(errno)),
    }
    let source = |event: epoll::Event| {
        u32::try_from(event.data.u64()).map_or(ReadySource::Keeper, ReadySource::Slot)
    };
    Ok(Some(events.into_iter().map(source)))
}
