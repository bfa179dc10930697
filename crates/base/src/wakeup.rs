//! Waking a thread that sleeps in poll(2) or `epoll_wait(2)`: an eventfd; under loom a condition variable, which loom can watch.
//!
//! A [`Wakeup`] holds one bit: readable from `raise` until `clear`. What it is raised for is told by something else, a
//! queue or a flag, which the woken thread reads *after* it has cleared the bit; the other order loses what comes between.
#[cfg(not(loom))]
mod eventfd {
    use std::cell::RefCell;
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
    use std::sync::Arc;
    use std::time::Instant;

    use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
    use rustix::io::Errno;

    use crate::process;
    use crate::time::{left, timespec};

    thread_local! {
        /// The wakeup of this thread, and the fork epoch in which it was made.
        static OF_THREAD: RefCell<Option<(u64, Arc<Wakeup>)>> = const { RefCell::new(None) };
    }

    /// An eventfd: readable from `raise` until `clear`. Any thread may do either.
    #[derive(Debug)]
    pub struct Wakeup(OwnedFd);

    impl Wakeup {
        /// # Errors
        /// Those of eventfd(2): as a rule no descriptor is left.
        pub fn new() -> io::Result<Self> {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            Ok(Self(eventfd(0, flags)?))
        }

        /// The calling thread's; a new one in a forked child, which shares the old one with its parent.
        ///
        /// # Errors
        /// As [`Self::new`].
        pub fn of_thread() -> io::Result<Arc<Self>> {
            OF_THREAD.with_borrow_mut(|slot| {
                let here = process::epoch();
                if let Some((owner, wake)) = slot
                    && *owner == here
                {
                    return Ok(Arc::clone(wake));
                }
                let wake = Arc::new(Self::new()?);
                *slot = Some((here, Arc::clone(&wake)));
                Ok(wake)
            })
        }

        /// Make the descriptor readable. Never blocks; one system call. Source: eventfd(2).
        pub fn raise(&self) {
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
        pub fn clear(&self) {
            let mut count = [0_u8; 8];
            while rustix::io::read(&self.0, &mut count) == Err(Errno::INTR) {}
        }

        /// Sleep until it is raised, or a deadline has passed; whether it is raised. It stays so until `clear`.
        ///
        /// # Errors
        /// `Interrupted` by a signal, and what poll(2) has besides.
        pub fn wait(&self, deadline: Option<Instant>) -> io::Result<bool> {
            let timeout = left(deadline).map(timespec);
            let mut watched = [PollFd::new(&self.0, PollFlags::IN)];
            Ok(poll(&mut watched, timeout.as_ref())? > 0)
        }

        /// The number of the eventfd, which stays this object's: watch it for reading, and neither read nor close it.
        pub fn fileno(&self) -> RawFd {
            self.0.as_raw_fd()
        }
    }

    impl AsFd for Wakeup {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    #[cfg(test)]
    mod tests {
        use std::time::Duration;

        use super::*;

        #[test]
        fn it_is_raised_until_it_is_cleared() {
            let wakeup = Wakeup::new().expect("an eventfd");
            let now = Some(Instant::now());
            assert!(!wakeup.wait(now).expect("no signal"));
            wakeup.raise();
            wakeup.raise();
            assert!(wakeup.wait(None).expect("no signal"));
            assert!(wakeup.wait(now).expect("no signal"));
            wakeup.clear();
            let soon = Some(Instant::now() + Duration::from_millis(2));
            assert!(!wakeup.wait(soon).expect("no signal"));
            assert!(soon < Some(Instant::now()), "it did not wait");
        }
    }
}
#[cfg(not(loom))]
pub use eventfd::Wakeup;

#[cfg(loom)]
mod model {
    use crate::sync::{Condvar, Mutex};

    /// What an eventfd is to the model: one bit that can be waited for.
    #[derive(Debug)]
    pub struct Wakeup {
        raised: Mutex<bool>,
        changed: Condvar,
    }

    impl Wakeup {
        pub fn new() -> std::io::Result<Self> {
            Ok(Self {
                raised: Mutex::new(false),
                changed: Condvar::new(),
            })
        }

        pub fn raise(&self) {
            *self.raised.lock().expect("no poison in the model") = true;
            self.changed.notify_one();
        }

        pub fn clear(&self) {
            *self.raised.lock().expect("no poison in the model") = false;
        }

        /// Block until raised. loom fails the model when nobody is left who could raise it.
        pub fn wait(&self) {
            let mut raised = self.raised.lock().expect("no poison in the model");
            while !*raised {
                raised = self.changed.wait(raised).expect("no poison in the model");
            }
        }
    }
}
#[cfg(loom)]
pub use model::Wakeup;
