//! What the thread of a native listener shares with its owner.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_base::Queue;
use forebay_base::wakeup::Wakeup;
use rustix::io::Errno;

use crate::limit::NATIVE_CONNECTIONS_MAX;
use crate::messages::Handed;
use crate::serve::metrics::Metrics;

/// Shared by the thread and its owner.
pub(crate) struct Control {
    pub metrics: Metrics,
    closing: AtomicBool,
    /// Raised when the owner closes.
    pub wakeup: Wakeup,
    /// Connections that were handed over; closed with the thread.
    pub handed: Queue<Handed>,
}

impl Control {
    pub fn new() -> Result<Self, Errno> {
        let wakeup = Wakeup::new().map_err(|error| errno_of(&error))?;
        let handed = Queue::new(NATIVE_CONNECTIONS_MAX).map_err(|_| Errno::MFILE)?;
        Ok(Self {
            metrics: Metrics::default(),
            closing: AtomicBool::new(false),
            wakeup,
            handed,
        })
    }

    /// Ask the thread to close.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.wakeup.raise();
    }

    /// Whether the owner has closed.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
}

pub(crate) fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::AGAIN)
}
