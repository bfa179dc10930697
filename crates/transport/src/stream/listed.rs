//! Listening sockets and their locks, which a forked child must release.
//!
//! A descriptor that a fork has copied keeps the socket listening after its server was killed: clients are queued and
//! never answered, and the next server finds the address in use. An executed program does not inherit them (`CLOEXEC`);
//! a child that continues without exec calls [`release_inherited`]. The numbers stay taken, by `/dev/null`, because the
//! child has copies of the objects that would close them.

use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_base::{PerProcess, process};
use rustix::fs::{Mode, OFlags, open};

use crate::sys::descriptor;

static LISTED: PerProcess<Mutex<Vec<RawFd>>> = PerProcess::new();

/// Lists a descriptor for children to release, until its owner closes it.
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
            owner: process::epoch(),
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if self.owner == process::epoch() {
            lock().retain(|&number| number != self.number);
        }
    }
}

/// In a forked child: stop listening on the parent's sockets. Does nothing if a thread of the parent was opening or
/// closing one at the fork, since the list may then be incomplete.
pub fn release_inherited() {
    let Some(Ok(mut listed)) = LISTED.inherited().map(Mutex::try_lock) else {
        return;
    };
    for number in listed.drain(..) {
        let null = null().or_else(|_| {
            descriptor::vacate(number); // no other number is free
            null()
        });
        match null {
            Ok(null) if null.as_raw_fd() == number => _ = null.into_raw_fd(), // the number's owner closes it
            Ok(null) => descriptor::replace(number, null),
            Err(_) => return,
        }
    }
}

fn null() -> rustix::io::Result<OwnedFd> {
    open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn lock() -> MutexGuard<'static, Vec<RawFd>> {
    LISTED
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use forebay_base::process::in_child;
    use rustix::process::{Resource, Rlimit, setrlimit};

    use super::*;
    use crate::alone::alone;

    fn is_null(descriptor: impl AsFd) -> bool {
        rustix::fs::fstat(descriptor).is_ok_and(|found| found.st_rdev != 0)
    }

    #[test]
    fn a_child_without_free_descriptors_lets_go_of_them_all() {
        let _alone = alone();
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a listener"));
        let listed = listeners.each_ref().map(Listed::new);
        assert!(in_child(|| {
            let mut taken = Vec::new();
            let highest = listeners.iter().map(AsRawFd::as_raw_fd).max();
            let most = highest.map(|number| u64::from(number.unsigned_abs()) + 1);
            let as_now = Rlimit {
                current: most,
                maximum: most,
            };
            setrlimit(Resource::Nofile, as_now).expect("a lower one is allowed");
            while let Ok(one) = null() {
                taken.push(one);
            }
            release_inherited();
            null().is_err() && listeners.iter().all(is_null)
        }));
        drop(listed);
    }

    #[test]
    fn a_child_lists_its_own_whatever_its_parent_did() {
        let _alone = alone();
        let _locked = lock();
        assert!(in_child(|| {
            release_inherited();
            drop(Listed::new(TcpListener::bind("127.0.0.1:0").expect("one")));
            lock().is_empty()
        }));
    }

    #[test]
    fn a_child_listens_no_more_and_its_parent_goes_on() {
        let _alone = alone();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let listed = Listed::new(&listener);
        assert!(in_child(|| {
            release_inherited();
            is_null(&listener) && lock().is_empty()
        }));
        drop(TcpStream::connect(address).expect("the parent listens"));
        drop(listed);
        assert!(!lock().contains(&listener.as_raw_fd()));
    }
}
