//! Whether `io_uring` works here, found by trying: a ring, a round trip, a registration.
//!
//! A version number says little: containers forbid the system calls (Docker's default filter),
//! and machines switch them off (`kernel.io_uring_disabled`).
use std::io;
use std::sync::OnceLock;

use rustix::io::Errno;

use crate::config::Choice;
use crate::engines::ring::registry::Registry;
use crate::error::Error;
use crate::sys::ring::Ring;

/// What carries out operations, and why it and not the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Availability {
    /// Rings, or else threads.
    pub ring: bool,
    /// Why, in words that can be acted on.
    pub reason: String,
    /// Why memory is not registered with rings, where it cannot be.
    pub unregistered: Option<String>,
}

/// What this process can use; tried once.
pub fn availability() -> &'static Availability {
    static FOUND: OnceLock<Availability> = OnceLock::new();
    FOUND.get_or_init(probe)
}

/// What a queue of this choice uses.
pub(crate) fn chosen(choice: Choice) -> Result<Availability, Error> {
    if choice == Choice::Threads {
        return Ok(Availability {
            ring: false,
            reason: "threads were asked for".into(),
            unregistered: None,
        });
    }
    let found = availability();
    if choice == Choice::Ring && !found.ring {
        return Err(Error::Unavailable {
            reason: found.reason.clone(),
        });
    }
    Ok(found.clone())
}

fn probe() -> Availability {
    match round_trip() {
        Ok(deferred) => Availability {
            ring: true,
            reason: if deferred {
                "io_uring works here, with deferred task work".into()
            } else {
                "io_uring works here, without deferred task work, which Linux 6.1 has".into()
            },
            unregistered: Registry::new()
                .err()
                .map(|error| format!("the kernel has no table of buffers: {error}")),
        },
        Err((call, error)) => Availability {
            ring: false,
            reason: refusal(call, &error),
            unregistered: None,
        },
    }
}

fn round_trip() -> Result<bool, (&'static str, io::Error)> {
    let mut ring = Ring::new(2, 4).map_err(|error| ("io_uring_setup", error))?;
    ring.prepare(crate::engines::ring::entry::nothing(1));
    let entered = loop {
        match ring.enter(1, true) {
            Err(Errno::INTR) => {}
            outcome => break outcome,
        }
    };
    entered.map_err(|errno| ("io_uring_enter", errno.into()))?;
    let mut came = false;
    ring.reap(|name, _, _| came = name == 1);
    if came {
        Ok(ring.is_deferred())
    } else {
        Err(("io_uring_enter", io::ErrorKind::InvalidData.into()))
    }
}

fn refusal(call: &'static str, error: &io::Error) -> String {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    match errno {
        Some(Errno::PERM) => format!(
            "{call} is forbidden here ({error}): by a seccomp filter, such as a container's default one, \
             or by the sysctl kernel.io_uring_disabled; allow it, or go on with threads"
        ),
        Some(Errno::NOSYS) => {
            format!("this kernel has no {call} ({error}), or a filter hides it; go on with threads")
        }
        Some(Errno::NOMEM) => format!(
            "{call} had no memory ({error}); raise the memlock limit (ulimit -l), or go on with threads"
        ),
        _ => format!("{call} failed: {error}; go on with threads"),
    }
}
