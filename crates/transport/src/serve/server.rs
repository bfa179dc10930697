//! A native listener as its owner sees it: start, count, close.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use forebay_base::process;

use crate::error::{Error, Result};
use crate::messages::Handed;
use crate::serve::acceptor::Listening;
use crate::serve::control::{Control, errno_of};
use crate::serve::metrics::ServerCounters;
use crate::serve::options::ServerOptions;
use crate::serve::reactor::Reactor;
use crate::serve::service::Service;

/// A listener and its thread.
pub struct MessageServer {
    control: Arc<Control>,
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
        let control = Control::new().map_err(|errno| failed("eventfd", errno))?;
        let control = Arc::new(control);
        let reactor = Reactor::new(listening, service, options, Arc::clone(&control))
            .map_err(|errno| failed("epoll", errno))?;
        let thread = Builder::new()
            .name("fb native".into())
            .spawn(move || reactor.run())
            .map_err(|error| failed("a thread", errno_of(&error)))?;
        Ok(Self {
            control,
            thread: Mutex::new(Some(thread)),
            owner: AtomicU64::new(process::epoch()),
        })
    }

    /// What was counted.
    pub fn counters(&self) -> ServerCounters {
        self.control.metrics.counters()
    }

    /// Readable when a connection was handed over, and from the end of the thread on.
    pub fn fileno(&self) -> i32 {
        self.control.handed.fileno()
    }

    /// Take the connections that were handed over; `None` once the thread has ended and there are none left.
    pub fn take_handed(&self) -> Option<Vec<Handed>> {
        let mut batch = Vec::new();
        match self.control.handed.drain(&mut batch) {
            Ok(_) => Some(batch),
            Err(_) => None,
        }
    }

    /// Begin to close: accept no more, and answer what was received, for a short grace. Idempotent; does not wait.
    pub fn stop(&self) {
        if process::epoch() != self.owner.load(Ordering::Relaxed) {
            return; // the thread is the parent's, and so is what wakes it
        }
        self.control.close();
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
