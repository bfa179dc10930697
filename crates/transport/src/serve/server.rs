//! A native listener from outside: start, count, close.

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
    /// Whom the listener lets in.
    pub admission: Admission,
    /// Whether memory for what a client announces is obtained at once.
    pub trusted: bool,
    /// In which a client must have said who it is.
    pub handshake: Duration,
    /// In which half a message, or an answer that nobody takes, must have moved on.
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

/// What a listener counts while it runs.
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

/// What a listener has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    pub accepted: u64,
    pub open: usize,
    pub messages: u64,
    /// Connections that were handed over.
    pub handed_over: u64,
    /// Clients that did not say in time who they are.
    pub late: u64,
    /// Connections that did not move on in the middle of something.
    pub stalled: u64,
    /// Connections that ended with an error, those two not among them.
    pub failed: u64,
    /// Clients that were turned away for want of a descriptor.
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

/// What the thread and its owner share.
pub(crate) struct Common {
    pub metrics: Metrics,
    pub closing: AtomicBool,
    /// Readable once something is to be done besides the sockets.
    pub wakeup: Wakeup,
    /// Connections that are somebody else's; closed with the thread.
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
    /// Serve what is listened on, in a thread of its own.
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

    /// Take the connections that were handed over; `None` once the thread has ended and none is left.
    pub fn take_handed(&self) -> Option<Vec<Handed>> {
        let mut batch = Vec::new();
        match self.common.handed.drain(&mut batch) {
            Ok(_) => Some(batch),
            Err(_) => None,
        }
    }

    /// Begin to close: nobody is accepted, what was received is answered, for a moment. Idempotent; does not wait.
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
            let _ = thread.join(); // a panic has been told by its hook
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
