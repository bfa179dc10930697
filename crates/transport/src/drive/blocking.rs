//! How a thread sleeps until a descriptor is ready, a wakeup is raised, or a process has ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use forebay_base::signals;
use forebay_base::time::left;
use forebay_base::wakeup::Wakeup;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::drive::look::{Look, spin};
use crate::error::{Error, Result};
use crate::limit::SPIN_US;

/// How a sleep ended, for one connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct Woken {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    pub(crate) peer_died: bool,
}

/// Sleep on the socket, for what is wanted of it, on the peer's process and on the wakeup, whichever is there.
#[inline]
pub(crate) fn sleep(
    (socket, pidfd, wake): (BorrowedFd<'_>, Option<&OwnedFd>, Option<&Wakeup>),
    (read, write): (bool, bool),
    deadline: Option<Instant>,
    look: &mut Look,
    before_sleep: impl FnOnce(),
) -> Result<Woken> {
    let mut interest = PollFlags::empty();
    interest.set(PollFlags::IN, read);
    interest.set(PollFlags::OUT, write);
    // poll(2) reports a hang-up even for an empty interest, so it would return at once, for ever.
    let socket = (read || write).then(|| PollFd::from_borrowed_fd(socket, interest));
    let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
    let sources = [
        socket,
        pidfd.map(|fd| readable(fd.as_fd())),
        wake.map(|fd| readable(fd.as_fd())),
    ];
    let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(sources.len());
    let mut places = [None; 3];
    for (place, source) in places.iter_mut().zip(sources) {
        if let Some(fd) = source {
            *place = Some(fds.len());
            fds.push(fd);
        }
    }
    if read && look.is_worth_it() && spin(&mut fds, SPIN_US) {
        look.hit();
        return Ok(found(&fds, places, wake));
    }
    let looked = read && look.is_worth_it();
    before_sleep(); // not before spinning: the thread that was answered may be waiting for this core
    let slept = Instant::now();
    match signals::poll(&mut fds, left(deadline)) {
        Ok(_) => {}
        Err(Errno::INTR) => return Err(Error::Interrupted),
        Err(errno) => {
            return Err(Error::System {
                what: "poll".into(),
                errno,
            });
        }
    }
    look.slept(looked, slept.elapsed());
    Ok(found(&fds, places, wake))
}

/// What `poll` reported.
#[inline]
fn found(fds: &[PollFd<'_>], places: [Option<usize>; 3], wake: Option<&Wakeup>) -> Woken {
    let seen = |at: usize| places[at].map_or(PollFlags::empty(), |place| fds[place].revents());
    if let (Some(wake), false) = (wake, seen(2).is_empty()) {
        wake.clear();
    }
    Woken {
        readable: seen(0).intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
        writable: seen(0).intersects(PollFlags::OUT | PollFlags::HUP | PollFlags::ERR),
        peer_died: !seen(1).is_empty(),
    }
}

pub(crate) fn is_past(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|at| at <= Instant::now())
}

/// The calling thread's eventfd.
pub(crate) fn thread_wakeup() -> Result<Arc<Wakeup>> {
    Wakeup::of_thread().map_err(|error| Error::System {
        what: "eventfd".into(),
        errno: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
    })
}
