//! Who is at the other end of a Unix socket.
//!
//! The credentials are those at the time of `connect` or `listen` (unix(7)), as this process may see them. A process
//! that its PID namespace does not show, as one outside of its container, has the number 0, and so none; its user is
//! known all the same. `rustix` has no form for that: its type of a process id cannot be 0.

use std::num::NonZeroI32;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::sys;

/// The process at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its effective user id.
    pub uid: u32,
    /// Its process id; `None` where this process cannot see it.
    pub pid: Option<NonZeroI32>,
}

/// Ask the kernel who is there.
///
/// # Errors
/// `NOTCONN` where the socket has no peer of this host; what getsockopt(2) says otherwise.
pub fn peer_of(socket: impl AsFd) -> Result<Peer, Errno> {
    let (pid, uid) = sys::peer_credentials(socket.as_fd())?;
    if uid == u32::MAX {
        return Err(Errno::NOTCONN);
    }
    Ok(Peer {
        uid,
        pid: NonZeroI32::new(pid),
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn both_ends_of_a_pair_are_this_process() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let peer = peer_of(&ours).expect("a peer");
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        let own = i32::try_from(std::process::id()).expect("a process id");
        assert_eq!(peer.pid.map(NonZeroI32::get), Some(own));
    }

    #[test]
    fn a_socket_without_a_peer_of_this_host_has_none() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        assert_eq!(peer_of(&listener), Err(Errno::NOTCONN));
    }

    #[test]
    fn what_is_no_socket_is_refused() {
        let file = std::fs::File::open("/proc/self/stat").expect("a file");
        assert_eq!(peer_of(&file), Err(Errno::NOTSOCK));
    }
}
