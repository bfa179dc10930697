//! Unix sockets: connect, listen, accept, and who the peer is.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_base::peer::peer_of;
use rustix::fs::{FlockOperation, Mode, OFlags, chmod, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect as connect_to, listen as listen_on, socket_with, socketpair,
    sockopt::{Timeout, set_socket_timeout},
};

use crate::error::{Error, Result};
use crate::limit::UNIX_PATH_BYTES_MAX;
use crate::stream::listed::Listed;
use crate::sys::process;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// The user id of the process at the other end, asked of the kernel.
///
/// # Errors
/// `Config` if the descriptor is no connected Unix socket.
pub fn peer_uid(socket: impl AsFd) -> Result<u32> {
    peer_of(socket)
        .map(|peer| peer.uid)
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

/// A listening socket, its file, and the lock that says that the file is in use.
///
/// Dropping it removes the file, unless in a forked child.
#[derive(Debug)]
pub struct Listener {
    /// Socket and lock, of which a forked child lets go. First, so that it ends before they are closed.
    _listed: [Listed; 2],
    socket: OwnedFd,
    path: PathBuf,
    /// The socket's file, to tell it from a successor's.
    file: Identity,
    owner: u64,
    /// Held while the listener lives; a stale socket file is one whose lock is free.
    lock: File,
}

/// Device and inode of a file.
type Identity = (u64, u64);

impl Listener {
    /// Listen at `path`: its directory is made private (0700) if it is not there, the file gets
    /// 0600, and a stale file is replaced under a lock.
    ///
    /// # Errors
    /// `Config` if the path is too long, is no socket, or is in use, if its directory is another
    /// user's or lets others write, or if its lock is another user's; `System`.
    pub fn bind(path: &Path) -> Result<Self> {
        let address = address(path)?;
        make_private_directory(path)?;
        let lock = lock_path(path)?;
        remove_stale(path)?;
        let socket = stream_socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        bind(&socket, &address)
            .map_err(|errno| system(&format!("bind {}", path.display()), errno))?;
        let file = path
            .symlink_metadata()
            .map_err(|error| system_io("stat", &error))?;
        let listener = Self {
            _listed: [Listed::new(&socket), Listed::new(&lock)],
            socket,
            path: path.to_owned(),
            file: identity(&file),
            owner: process::current(),
            lock,
        };
        chmod(path, Mode::RUSR | Mode::WUSR).map_err(|errno| system("chmod", errno))?;
        listen_on(&listener.socket, BACKLOG).map_err(|errno| system("listen", errno))?;
        Ok(listener)
    }

    /// Take a waiting connection; `None` if there is none. The listener never blocks.
    ///
    /// # Errors
    /// `System`, for example with EMFILE: pause accepting then.
    pub fn accept(&self) -> Result<Option<OwnedFd>> {
        match accept_with(&self.socket, SocketFlags::CLOEXEC) {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(system("accept", errno)),
        }
    }

    /// For a system call.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// For a selector.
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if process::current() != self.owner {
            return;
        }
        // Where somebody removed them, as those who clean /tmp do, they may be a successor's by now.
        remove_own(&self.path, self.file);
        if let Ok(held) = self.lock.metadata() {
            remove_own(&lock_name(&self.path), identity(&held));
        }
    }
}

pub(crate) fn address(path: &Path) -> Result<SocketAddrUnix> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > UNIX_PATH_BYTES_MAX {
        return Err(Error::Config(format!(
            "the socket path {} has {bytes} bytes, the kernel takes {UNIX_PATH_BYTES_MAX}; choose a shorter directory",
            path.display()
        )));
    }
    SocketAddrUnix::new(path).map_err(|errno| Error::Config(format!("{}: {errno}", path.display())))
}

pub(crate) fn stream_socket(flags: SocketFlags) -> Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|errno| system("socket", errno))
}

fn make_private_directory(path: &Path) -> Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if !directory.exists() {
        return DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| system_io(&format!("create {}", directory.display()), &error));
    }
    let found = directory
        .metadata()
        .map_err(|error| system_io("stat", &error))?;
    let (user, owner) = (rustix::process::geteuid().as_raw(), found.uid());
    if owner != user && owner != 0 {
        return Err(Error::Config(format!(
            "{} belongs to user {owner}, who could replace the socket; this is user {user}: use a directory of your own (0700)",
            directory.display()
        )));
    }
    let sticky = found.mode() & 0o1000 != 0;
    if found.mode() & 0o022 != 0 && !sticky {
        return Err(Error::Config(format!(
            "others may write to {}, so they could replace the socket; use a directory of your own (0700)",
            directory.display()
        )));
    }
    Ok(())
}

fn lock_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Lock the file beside the socket. The owner removes it at its end, so what was locked must
/// still be what the name stands for; otherwise try again with the new one.
fn lock_path(path: &Path) -> Result<File> {
    let name = lock_name(path);
    loop {
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            // Nonblocking: a pipe of that name would wait for a reader.
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(&name)
            .map_err(|error| system_io(&format!("open {}", name.display()), &error))?;
        let held = lock.metadata().map_err(|error| system_io("stat", &error))?;
        let user = rustix::process::geteuid().as_raw();
        if held.uid() != user || !held.is_file() {
            return Err(Error::Config(format!(
                "the lock {} belongs to user {}, who could keep it locked; this is user {user}: use a directory of your own (0700)",
                name.display(),
                held.uid()
            )));
        }
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            Errno::WOULDBLOCK => {
                Error::Config(format!("{} is in use by another process", path.display()))
            }
            _ => system("flock", errno),
        })?;
        if name
            .symlink_metadata()
            .is_ok_and(|named| identity(&named) == identity(&held))
        {
            return Ok(lock);
        }
    }
}

fn identity(file: &Metadata) -> Identity {
    (file.dev(), file.ino())
}

/// Remove a file, unless the name stands for another one.
fn remove_own(path: &Path, file: Identity) {
    if path
        .symlink_metadata()
        .is_ok_and(|named| identity(&named) == file)
    {
        let _ = std::fs::remove_file(path);
    }
}

fn remove_stale(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(found) if found.file_type().is_socket() => {
            std::fs::remove_file(path).map_err(|error| system_io("remove the stale socket", &error))
        }
        Ok(_) => Err(Error::Config(format!(
            "{} exists and is no socket",
            path.display()
        ))),
    }
}

fn system(what: &str, errno: Errno) -> Error {
    Error::System {
        what: what.to_owned(),
        errno,
    }
}

fn system_io(what: &str, error: &std::io::Error) -> Error {
    system(what, Errno::from_io_error(error).unwrap_or(Errno::IO))
}
