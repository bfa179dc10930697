//! A native listener as its owner sees it: start, count, close.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use forebay_base::Queue;
use forebay_base::process;
use forebay_base::wakeup::Wakeup;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::limit::{Limits, NATIVE_CONNECTIONS_MAX, NATIVE_STALL_S};
use crate::link::admission::Admission;
use crate::messages::Handed;
use crate::serve::acceptor::Listening;
use crate::serve::reactor::Reactor;
use crate::serve::service::Service;

/// How connections are served.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub limits: Limits,
    /// What the listener requires of a client.
    pub admission: Admission,
    /// Whether memory for announced lengths is allocated at once.
    pub trusted: bool,
    /// Within this a client must have finished its handshake.
    pub handshake: Duration,
    /// Within this half a message, or an answer that the client does not take, must have progressed.
    pub stall: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            limits: Limits::of_messages(),
            admission: Admission::Anybody,
            trusted: false,
            handshake: Duration::from_secs(5),
            stall: Duration::from_secs(NATIVE_STALL_S),
        }
    }
}

/// Counts of a running listener.
#[derive(Default)]
pub struct Metrics {
    pub(crate) accepted: AtomicU64,
    pub(crate) open: AtomicUsize,
    pub(crate) messages: AtomicU64,
    pub(crate) handed_over: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) stalled: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) turned_away: AtomicU64,
    failure: Mutex<Option<Error>>,
}

/// Counts of a listener, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    pub accepted: u64,
    pub open: usize,
    pub messages: u64,
    /// Connections that were handed over.
    pub handed_over: u64,
    /// Clients that did not finish their handshake in time.
    pub late: u64,
    /// Connections that made no progress with a message.
    pub stalled: u64,
    /// Connections that ended with another error.
    pub failed: u64,
    /// Clients that were turned away because no descriptor was left.
    pub turned_away: u64,
    /// The error of the last one that failed.
    pub failure: Option<Error>,
}

impl Metrics {
    /// A connection ended with an error.
    pub(crate) fn fail(&self, error: Error) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    fn counters(&self) -> ServerCounters {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        ServerCounters {
            accepted: self.accepted.load(Ordering::Relaxed),
            open: self.open.load(Ordering::Relaxed),
            messages: self.messages.load(Ordering::Relaxed),
            handed_over: self.handed_over.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            stalled: self.stalled.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            turned_away: self.turned_away.load(Ordering::Relaxed),
            failure: failure.clone(),
        }
    }
}

/// Shared by the thread and its owner.
pub(crate) struct Common {
    pub metrics: Metrics,
    pub closing: AtomicBool,
    /// Raised when the owner closes.
    pub wakeup: Wakeup,
    /// Connections that were handed over; closed with the thread.
    pub handed: Queue<Handed>,
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::AGAIN)
}

/// A listener and its thread.
pub struct MessageServer {
    common: Arc<Common>,
    thread: Mutex<Option<JoinHandle<()>>>,
    owner: AtomicU64,
}

impl MessageServer {
    /// Serve in a thread of its own.
    ///
    /// # Errors
    /// `System` where the kernel gives no descriptor or thread.
    pub fn start(listening: Listening, service: Service, options: ServerOptions) -> Result<Self> {
        let failed = |what: &str, errno| Error::System {
            what: what.into(),
            errno,
        };
        let wakeup = Wakeup::new().map_err(|error| failed("eventfd", errno_of(&error)))?;
        let handed =
            Queue::new(NATIVE_CONNECTIONS_MAX).map_err(|_| failed("eventfd", Errno::MFILE))?;
        let common = Arc::new(Common {
            metrics: Metrics::default(),
            closing: AtomicBool::new(false),
            wakeup,
            handed,
        });
        let reactor = Reactor::new(listening, service, options, Arc::clone(&common))
            .map_err(|errno| failed("epoll", errno))?;
        let thread = Builder::new()
            .name("fb native".into())
            .spawn(move || reactor.run())
            .map_err(|error| failed("a thread", errno_of(&error)))?;
        Ok(Self {
            common,
            thread: Mutex::new(Some(thread)),
            owner: AtomicU64::new(process::epoch()),
        })
    }

    /// What was counted.
    pub fn counters(&self) -> ServerCounters {
        self.common.metrics.counters()
    }

    /// Readable when a connection was handed over, and from the end of the thread on.
    pub fn fileno(&self) -> i32 {
        self.common.handed.fileno()
    }

    /// Take the connections that were handed over; `None` once the thread has ended and there are none left.
    pub fn take_handed(&self) -> Option<Vec<Handed>> {
        let mut batch = Vec::new();
        match self.common.handed.drain(&mut batch) {
            Ok(_) => Some(batch),
            Err(_) => None,
        }
    }

    /// Begin to close: accept no more, and answer what was received, for a short grace. Idempotent; does not wait.
    pub fn stop(&self) {
        if process::epoch() != self.owner.load(Ordering::Relaxed) {
            return; // the thread is the parent's, and so is what wakes it
        }
        self.common.closing.store(true, Ordering::Release);
        self.common.wakeup.raise();
    }

    /// Close, and wait until the thread has ended: about half a second at most. Idempotent.
    pub fn close(&self) {
        self.stop();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = thread.take() else {
            return;
        };
        if process::epoch() == self.owner.load(Ordering::Relaxed) {
            let _ = thread.join(); // the panic hook has reported a panic
        } else {
            std::mem::forget(thread); // there is no such thread after a fork
        }
    }
}

impl Drop for MessageServer {
    fn drop(&mut self) {
        self.close();
    }
}
