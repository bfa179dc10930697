//! Accepting connections, also when no descriptor is left.
//!
//! Where the process has no descriptor, accept(2) fails and the connection stays in the queue: the listener is readable
//! for ever, a level-triggered loop turns without end, and the peer waits for nothing. So one descriptor is kept in
//! reserve: it is closed, the connection at the head of the queue is accepted and closed, and the reserve is taken again.
//! The caller then pauses for a while ([`Accepting::pause`]): others are turned away no faster than it looks.

mod accepting;

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

pub use accepting::Accepting;

/// Connections that are accepted in one turn of a loop, so that what it serves already gets its turn.
pub const ACCEPTS_PER_TURN: usize = 64;

/// What came of an attempt.
#[derive(Debug)]
pub enum Accepted {
    /// A connection; its descriptor is nonblocking and close-on-exec.
    Connection(OwnedFd),
    /// Nobody waits.
    Nothing,
    /// No descriptor was left; the first connection of the queue was turned away. Pause.
    Exhausted,
}

/// Accepts for the listeners of one loop, with a descriptor in reserve.
#[derive(Debug)]
pub struct Acceptor(Option<OwnedFd>);

impl Default for Acceptor {
    fn default() -> Self {
        Self(reserve())
    }
}

impl Acceptor {
    /// Accept one connection of a nonblocking listener.
    pub fn accept(&mut self, listener: impl AsFd) -> Accepted {
        match next(&listener) {
            Ok(Some(connection)) => Accepted::Connection(connection),
            Ok(None) => Accepted::Nothing,
            Err(_) => {
                drop(self.0.take());
                drop(next(&listener)); // closed, so that its peer does not wait
                self.0 = reserve();
                Accepted::Exhausted
            }
        }
    }
}

fn reserve() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

/// The next connection of a nonblocking listener; `None` where nobody waits. Its descriptor is nonblocking and
/// close-on-exec.
///
/// For a caller that leaves a connection in the queue where it has no descriptor, rather than turn it away.
///
/// # Errors
/// Where it is this process that cannot have it, `MFILE`, `NFILE`, `NOBUFS` or `NOMEM`: pause then.
pub fn next(listener: impl AsFd) -> Result<Option<OwnedFd>, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    loop {
        match accept_with(&listener, flags) {
            Ok(connection) => return Ok(Some(connection)),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                return Err(errno);
            }
            // AGAIN, and errors of the connection that was next, which is gone: accept(2).
            Err(_) => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connections_come_one_by_one() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        listener.set_nonblocking(true).expect("nonblocking");
        let mut acceptor = Acceptor::default();
        assert!(matches!(acceptor.accept(&listener), Accepted::Nothing));
        let address = listener.local_addr().expect("an address");
        let _client = TcpStream::connect(address).expect("connected");
        assert!(matches!(
            acceptor.accept(&listener),
            Accepted::Connection(_)
        ));
        assert!(matches!(acceptor.accept(&listener), Accepted::Nothing));
    }
}
