//! Listening sockets and their locks, which a forked child must let go of.
//!
//! A descriptor that a fork has copied keeps the socket listening after its server was killed: who connects is taken into
//! the queue and never answered, and the next server finds the address in use. What is executed does not have them
//! (`CLOEXEC`); a child that goes on as it is calls [`let_go`]. The numbers stay taken, by `/dev/null`, because the
//! child has copies of the objects that would close them.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, open};

use crate::sys::{descriptor, process};

static LISTED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// A descriptor that a child lets go of, while this lives: until its owner closes it.
#[derive(Debug)]
pub struct Listed {
    number: RawFd,
    owner: u64,
}

impl Listed {
    pub fn new(descriptor: impl AsFd) -> Self {
        let number = descriptor.as_fd().as_raw_fd();
        lock().push(number);
        Self {
            number,
            owner: process::current(),
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if self.owner == process::current() {
            lock().retain(|&number| number != self.number);
        }
    }
}

/// In a forked child: stop listening with what is its parent's. Nothing is done where a thread of the parent was opening
/// or closing one at the fork, as nobody can tell then which there are.
pub fn let_go() {
    let Ok(mut listed) = LISTED.try_lock() else {
        return;
    };
    if listed.is_empty() {
        return;
    }
    let Ok(null) = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return;
    };
    for number in listed.drain(..) {
        descriptor::replace(number, &null);
    }
}

fn lock() -> MutexGuard<'static, Vec<RawFd>> {
    LISTED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::sys::process::in_child;

    #[test]
    fn a_child_listens_no_more_and_its_parent_goes_on() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let listed = Listed::new(&listener);
        assert!(in_child(|| {
            let_go();
            let is_null = rustix::fs::fstat(&listener).is_ok_and(|found| found.st_rdev != 0);
            is_null && lock().is_empty()
        }));
        drop(TcpStream::connect(address).expect("the parent listens"));
        drop(listed);
        assert!(!lock().contains(&listener.as_raw_fd()));
    }
}
