//! The socket of a lender: of one user alone, in a directory of that user alone.
//!
//! [`forebay_base::unix`] makes it so; here are the messages, which name the option that helps, and the check of the
//! lender that a program connects to.

use std::os::fd::OwnedFd;
use std::path::Path;

use forebay_base::peer::peer_of;
use forebay_base::unix::{self, Directory, ExclusiveListener, ListenError};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use crate::error::{Error, Result};

/// Listen at `path`, whose directory is made (0700) where it is missing.
///
/// # Errors
/// `Address` where the directory is not this user's alone, or another process listens there; the message names it.
pub fn listen(path: &Path) -> Result<ExclusiveListener> {
    ExclusiveListener::bind(path, SocketType::SEQPACKET, Directory::Private).map_err(explained)
}

/// Listen there again, with a new socket. On failure the old one stays.
///
/// # Errors
/// Those of [`listen`].
pub fn listen_again(listener: &mut ExclusiveListener) -> Result<()> {
    listener.bind_again().map_err(explained)
}

/// Connect to the lender at `path`, which must be this user's.
///
/// # Errors
/// `Gone` where none listens, `Address` where it is another user's.
pub fn connect_to_lender(path: &Path) -> Result<OwnedFd> {
    let address = unix::address(path).map_err(explained)?;
    unix::check_directory(path, Directory::Private).map_err(|error| match error {
        ListenError::Missing(_) => no_lender(path),
        error => explained(error),
    })?;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(Error::system("socket"))?;
    match connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR) => return Err(no_lender(path)),
        Err(errno) => return Err(Error::system("connect to the shared pool")(errno)),
    }
    let peer = peer_of(&socket).map_err(Error::system("getsockopt(SO_PEERCRED)"))?;
    if peer.uid != rustix::process::geteuid().as_raw() {
        return Err(Error::Address(format!(
            "{} belongs to another user; give the path of your own: forebay serve --path",
            path.display()
        )));
    }
    Ok(socket)
}

/// No process lends at `path`.
pub fn no_lender(path: &Path) -> Error {
    Error::Gone(format!(
        "no shared pool at {}; start one: forebay serve",
        path.display()
    ))
}

/// Why a socket cannot be used, and what to do.
fn explained(error: ListenError) -> Error {
    Error::Address(match error {
        ListenError::Path { .. } => format!("{error}; give a shorter one: --path"),
        ListenError::Exposed { directory, .. } => format!(
            "{} is not a directory of yours alone (0700), so others could replace the socket in it; \
             remove it, or give another path: --path",
            directory.display()
        ),
        ListenError::InUse {
            path,
            holder: Some(pid),
        } => format!(
            "process {pid} already lends services at {}; end it first (kill {pid}), \
             or use another path: --path",
            path.display()
        ),
        ListenError::System { what, source } => {
            let what = what.into();
            return Error::System { what, source };
        }
        error => format!("{error}; give another path: --path"),
    })
}
