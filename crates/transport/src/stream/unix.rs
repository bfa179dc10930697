//! Unix sockets: connect, listen, and the user of the peer.

use std::num::NonZeroI32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::Duration;

use forebay_base::peer::peer_of;
use forebay_base::unix::{self, Directory, ListenError as Refused};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect as connect_to,
    socket_with, socketpair,
    sockopt::{Timeout, set_socket_timeout},
};

use crate::error::{Error, Result};
use crate::stream::listed::Listed;

/// The user id of the process at the other end, asked of the kernel.
///
/// # Errors
/// `Config` if the descriptor is no connected Unix socket.
pub fn peer_uid(socket: impl AsFd) -> Result<u32> {
    peer_of(socket)
        .map(|peer| peer.uid)
        .map_err(|errno| Error::Config(format!("not a connected Unix socket ({errno})")))
}

/// The process at the other end, as it was when it connected; `None` for one that this one's namespace does not show.
///
/// # Errors
/// `Config` if the descriptor is no connected Unix socket.
pub fn peer_pid(socket: impl AsFd) -> Result<Option<NonZeroI32>> {
    peer_of(socket)
        .map(|peer| peer.pid)
        .map_err(|errno| Error::Config(format!("not a connected Unix socket ({errno})")))
}

/// Two connected sockets; one is inherited by a child or passed on.
///
/// # Errors
/// `System`.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| system("socketpair", errno))
}

/// Connect to a listening socket; waits while its backlog is full, at most for a time. None of it is not to wait at all.
///
/// # Errors
/// `Config` for a path that is too long; `System` with errno if nobody listens; `Deadline`; `Interrupted`, then do it again.
pub fn connect(path: &Path, timeout: Option<Duration>) -> Result<OwnedFd> {
    let address = address(path)?;
    let at_once = timeout.is_some_and(|timeout| timeout.is_zero());
    let waits = timeout.filter(|_| !at_once);
    let mut flags = SocketFlags::CLOEXEC;
    flags.set(SocketFlags::NONBLOCK, at_once);
    let socket = stream_socket(flags)?;
    let limit = |timeout| {
        // The kernel takes it for that of connecting too: socket(7).
        set_socket_timeout(&socket, Timeout::Send, timeout)
            .map_err(|errno| system("setsockopt", errno))
    };
    if waits.is_some() {
        limit(waits)?;
    }
    connect_to(&socket, &address).map_err(|errno| match errno {
        Errno::AGAIN => Error::Deadline {
            peer: path.display().to_string(),
        },
        Errno::INTR => Error::Interrupted,
        _ => system(&format!("connect to {}", path.display()), errno),
    })?;
    if waits.is_some() {
        limit(None)?;
    }
    Ok(socket)
}

/// A listening socket of this user alone, which a forked child releases: see [`forebay_base::unix`].
#[derive(Debug)]
pub struct Listener {
    /// Socket and lock. First, so that they are delisted before they are closed.
    listed: Option<[Listed; 2]>,
    listener: unix::ExclusiveListener,
}

impl Listener {
    /// Listen at `path`: its directory is made private (0700) if it is missing, the file gets 0600, and a stale file
    /// is replaced under a lock.
    ///
    /// # Errors
    /// `Config` if the path is too long, is no socket, or is in use, if its directory is another
    /// user's or lets others write, or if its lock is another user's; `System`.
    pub fn bind(path: &Path) -> Result<Self> {
        let listener =
            unix::ExclusiveListener::bind(path, SocketType::STREAM, Directory::Unwritable)
                .map_err(|error| refused(&error))?;
        Ok(Self {
            listed: Some(listed(&listener)),
            listener,
        })
    }

    /// Listen with the socket and the lock of another process, which has passed them on. Their files stay that one's until
    /// [`Self::own_files`].
    ///
    /// # Errors
    /// `Config` if one of them is none; those of [`Self::bind`].
    pub fn adopt(path: &Path, [socket, lock]: [OwnedFd; 2]) -> Result<Self> {
        let (kind, directory) = (SocketType::STREAM, Directory::Unwritable);
        let listener = unix::ExclusiveListener::adopt(path, kind, directory, socket, lock)
            .map_err(|error| refused(&error))?;
        Ok(Self {
            listed: Some(listed(&listener)),
            listener,
        })
    }

    /// The files of a socket that was [adopted](Self::adopt) are this process's from now on: it removes them.
    pub fn own_files(&mut self) {
        self.listener.own_files();
    }

    /// Duplicates of the socket and of its lock, for a process that is to listen there. Their files stay when this is
    /// dropped.
    ///
    /// # Errors
    /// `System`: there is no descriptor left; then nothing has changed.
    pub fn give(&mut self) -> Result<[OwnedFd; 2]> {
        let duplicate = |descriptor: BorrowedFd<'_>| {
            let made = descriptor.try_clone_to_owned();
            made.map_err(|error| system("dup", Errno::from_io_error(&error).unwrap_or(Errno::IO)))
        };
        let both = [
            duplicate(self.listener.as_fd())?,
            duplicate(self.listener.lock().as_fd())?,
        ];
        self.listener.leave_files();
        Ok(both)
    }

    /// Whether the socket's file was removed; another file in its place counts as present.
    pub fn is_gone(&self) -> bool {
        self.listener.socket().is_gone()
    }

    /// Listen there again, with a new socket, after the file was removed. On failure the old one stays. A selector
    /// must forget the old one before.
    ///
    /// # Errors
    /// Those of [`Self::bind`].
    pub fn bind_again(&mut self) -> Result<()> {
        self.listed = None;
        let bound = self.listener.bind_again();
        self.listed = Some(listed(&self.listener));
        bound.map_err(|error| refused(&error))
    }

    /// Take a waiting connection; `None` if there is none. The listener never blocks.
    ///
    /// # Errors
    /// `System`, for example with EMFILE: pause accepting then.
    pub fn accept(&self) -> Result<Option<OwnedFd>> {
        match accept_with(&self.listener, SocketFlags::CLOEXEC) {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(system("accept", errno)),
        }
    }

    /// For a selector.
    pub fn descriptor(&self) -> RawFd {
        self.listener.as_fd().as_raw_fd()
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        self.listener.socket().path()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn listed(listener: &unix::ExclusiveListener) -> [Listed; 2] {
    [Listed::new(listener), Listed::new(listener.lock())]
}

pub(crate) fn address(path: &Path) -> Result<SocketAddrUnix> {
    unix::address(path).map_err(|error| refused(&error))
}

pub(crate) fn stream_socket(flags: SocketFlags) -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|errno| system("socket", errno))
}

/// The ground floor's reasons, with what a user can do about each.
fn refused(error: &Refused) -> Error {
    let user = rustix::process::geteuid().as_raw();
    let advice = match error {
        Refused::System { what, source } => {
            return Error::System {
                what: what.clone(),
                errno: Errno::from_io_error(source).unwrap_or(Errno::IO),
            };
        }
        Refused::Exposed {
            directory, owner, ..
        } if *owner != user && *owner != 0 => {
            return Error::Config(format!(
                "{} belongs to user {owner}, who could replace the socket; this is user {user}: use a directory of your own (0700)",
                directory.display()
            ));
        }
        Refused::Exposed { .. } => "; use a directory of your own (0700)".to_owned(),
        Refused::Lock { .. } => {
            format!("; this is user {user}: use a directory of your own (0700)")
        }
        Refused::Path { .. } => "; choose a shorter directory".to_owned(),
        _ => String::new(),
    };
    Error::Config(format!("{error}{advice}"))
}

fn system(what: &str, errno: Errno) -> Error {
    Error::System {
        what: what.to_owned(),
        errno,
    }
}
