//! A listening Unix socket that belongs to this user alone.
//!
//! A [`Listener`] checks three things. Its *directory* may not let another user replace the socket ([`Directory`]). Its
//! *file* gets 0600. Its *peers* are processes of this user ([`Listener::accept_own`]). It replaces a socket that has its
//! name, also one that is in use: its caller knows that no other process serves at that path.
//!
//! An [`ExclusiveListener`] finds out whether one does. It has a [`Lock`] beside the socket, which holds a process id and
//! ends with its holder: a socket whose lock is free was left behind by a killed process and is replaced.
//!
//! Each file is told from a successor's by device and inode, so that only its owner removes it. A forked child's copy
//! removes nothing when it is dropped. Sources: unix(7), flock(2).

mod directory;
mod error;
mod exclusive;
mod listener;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::net::SocketAddrUnix;

pub use directory::{Directory, check_directory};
pub use error::ListenError;
pub use exclusive::{ExclusiveListener, Lock};
pub use listener::Listener;

/// What fits the kernel's address of a Unix socket: `sun_path` without its final zero.
pub const PATH_BYTES_MAX: usize = 107;

/// The kernel's address of a path.
///
/// # Errors
/// [`ListenError::Path`]; [`ListenError::System`] for a path that holds a zero.
pub fn address(path: &Path) -> Result<SocketAddrUnix, ListenError> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > PATH_BYTES_MAX {
        return Err(ListenError::Path {
            path: path.to_owned(),
            bytes,
        });
    }
    SocketAddrUnix::new(path).map_err(ListenError::system("the socket path", path))
}

#[cfg(test)]
mod tests;
