//! Threads of our own.
use std::io;
use std::thread::{Builder, JoinHandle};

use crate::error::Error;
use crate::sys::signals::Blocked;

/// Start a thread in which signals are blocked; they are for the threads that can act on them.
pub(crate) fn start<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    let blocked = Blocked::all();
    let started = Builder::new().name(name).spawn(body);
    drop(blocked);
    started.map_err(refused)
}

fn refused(source: io::Error) -> Error {
    Error::System {
        call: "pthread_create",
        source,
        advice: "; block I/O needs a thread here: raise the limit on threads (ulimit -u, or pids.max of the cgroup)",
    }
}
