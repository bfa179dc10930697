//! The eventfd that wakes the consumer; under loom a condition variable, which loom can watch.
#[cfg(not(loom))]
mod eventfd {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::Errno;

    /// An eventfd: readable from `raise` until `clear`.
    #[derive(Debug)]
    pub(crate) struct Signal(OwnedFd);

    impl Signal {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Self(eventfd(
                0,
                EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
            )?))
        }

        /// Make the descriptor readable. Source: eventfd(2).
        pub(crate) fn raise(&self) {
            let written = loop {
                match rustix::io::write(&self.0, &1_u64.to_ne_bytes()) {
                    Err(Errno::INTR) => {}
                    other => break other,
                }
            };
            // EAGAIN would mean 2^64 - 2 raises without a clear; it is readable then, which is all we want.
            debug_assert!(
                matches!(written, Ok(8) | Err(Errno::AGAIN)),
                "eventfd write: {written:?}"
            );
        }

        /// Make it unreadable; no effect where it was not readable.
        pub(crate) fn clear(&self) {
            let mut count = [0_u8; 8];
            while rustix::io::read(&self.0, &mut count) == Err(Errno::INTR) {}
        }

        pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }

        pub(crate) fn fileno(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }
}
#[cfg(not(loom))]
pub(crate) use eventfd::Signal;

#[cfg(loom)]
mod model {
    use crate::sync::{Condvar, Mutex};

    /// What an eventfd is to the model: one bit that can be waited for.
    #[derive(Debug)]
    pub(crate) struct Signal {
        raised: Mutex<bool>,
        changed: Condvar,
    }

    impl Signal {
        pub(crate) fn new() -> std::io::Result<Self> {
            Ok(Self {
                raised: Mutex::new(false),
                changed: Condvar::new(),
            })
        }

        pub(crate) fn raise(&self) {
            *self.raised.lock().expect("no poison in the model") = true;
            self.changed.notify_one();
        }

        pub(crate) fn clear(&self) {
            *self.raised.lock().expect("no poison in the model") = false;
        }

        /// Block until raised. loom fails the model when nobody is left who could raise it.
        pub(crate) fn wait(&self) {
            let mut raised = self.raised.lock().expect("no poison in the model");
            while !*raised {
                raised = self.changed.wait(raised).expect("no poison in the model");
            }
        }
    }
}
#[cfg(loom)]
pub(crate) use model::Signal;
