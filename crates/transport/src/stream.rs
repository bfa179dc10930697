//! What the state needs of a socket, so that tests can script one.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

/// A nonblocking byte stream. "Would block" is `Errno::AGAIN`.
pub trait Stream {
    /// Send as much as fits.
    fn send(&self, pieces: &[IoSlice<'_>]) -> Result<usize, Errno>;
    /// Receive what is there; an empty slice is the end of the stream.
    fn receive<'a>(&self, into: &'a mut [MaybeUninit<u8>]) -> Result<&'a mut [u8], Errno>;
    /// Whether the peer is gone in both directions.
    fn hung_up(&self) -> bool;
}

impl Stream for Arc<OwnedFd> {
    fn send(&self, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match sendmsg(self, pieces, &mut SendAncillaryBuffer::default(), flags) {
                Err(Errno::INTR) => {}
                outcome => return outcome,
            }
        }
    }

    fn receive<'a>(&self, into: &'a mut [MaybeUninit<u8>]) -> Result<&'a mut [u8], Errno> {
        // A nonblocking receive is not interrupted; EINTR would be passed on as it is.
        recv(self.as_fd(), into, RecvFlags::DONTWAIT).map(|((filled, _), _)| filled)
    }

    fn hung_up(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(self, PollFlags::empty())];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).is_ok()
            && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }
}
