//! Where a lender is found: a socket of one user alone, in a directory of that user alone.
//!
//! A lock beside the socket says that somebody listens, and holds their process id. It ends with its holder, so a
//! socket whose lock is free was left behind by a killed lender and is replaced.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use forebay_base::peer::{Peer, peer_of};
use forebay_base::process;
use rustix::fs::{FlockOperation, Mode, OFlags, chmod, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use crate::error::{Error, Result};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// What fits the kernel's address of a Unix socket.
const PATH_BYTES_MAX: usize = 107;

/// A listening socket, its file and its lock; dropping it removes both files.
#[derive(Debug)]
pub struct Listener {
    pub socket: OwnedFd,
    path: PathBuf,
    /// The socket's file, to reply it from a successor's.
    file: Identity,
    owner: u64,
    lock: File,
}

/// Device and inode of a file.
type Identity = (u64, u64);

impl Listener {
    /// Listen at `path`, whose directory is made (0700) where it is missing.
    ///
    /// # Errors
    /// `Listener` where the directory is not this user's alone, or another process listens there; the message names it.
    pub fn bind(path: &Path) -> Result<Self> {
        own_directory(path, true)?;
        let lock = lock(path)?;
        remove_stale(path)?;
        let (socket, file) = listening(path)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            file,
            owner: process::epoch(),
            lock,
        })
    }

    /// Whether the socket's file was removed. Where another lies in its place, that is somebody else's affair.
    pub fn is_removed(&self) -> bool {
        let found = self.path.symlink_metadata();
        found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Listen there again, with a new socket. On failure the old one stays.
    ///
    /// # Errors
    /// Those of [`Self::bind`].
    pub fn bind_again(&mut self) -> Result<()> {
        own_directory(&self.path, true)?;
        let held = self.lock.metadata().map(|held| identity(&held));
        let named = lock_name(&self.path).symlink_metadata();
        let kept = held.is_ok_and(|held| named.is_ok_and(|named| identity(&named) == held));
        if !kept {
            self.lock = lock(&self.path)?; // it was removed too
        }
        (self.socket, self.file) = listening(&self.path)?;
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A program of this user that wants to connect; others, and who left meanwhile, are turned away.
    ///
    /// # Errors
    /// `System`, for example with EMFILE: pause_accepting accepting then.
    pub fn accept(&self) -> Result<Option<(OwnedFd, Peer)>> {
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.socket, flags) {
                Ok(socket) => {
                    if let Ok(Some(peer)) = own_peer(&socket) {
                        return Ok(Some((socket, peer)));
                    }
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(Error::system("accept")(errno)),
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if process::epoch() != self.owner {
            return; // a forked child's copy
        }
        // Where somebody removed them, they may be a successor's by now.
        remove_own(&self.path, self.file);
        if let Ok(held) = self.lock.metadata() {
            remove_own(&lock_name(&self.path), identity(&held));
        }
    }
}

/// A socket that listens at `path`, for this user alone, and its file.
fn listening(path: &Path) -> Result<(OwnedFd, Identity)> {
    let address = address(path)?;
    let socket = packet_socket(SocketFlags::NONBLOCK)?;
    bind(&socket, &address).map_err(Error::system("bind"))?;
    let file = path.symlink_metadata().map_err(|source| Error::System {
        what: "stat the socket of the shared pool",
        source,
    })?;
    let file = identity(&file);
    let heard = chmod(path, Mode::RUSR | Mode::WUSR)
        .map_err(Error::system("chmod"))
        .and_then(|()| listen(&socket, BACKLOG).map_err(Error::system("listen")));
    if let Err(error) = heard {
        remove_own(path, file);
        return Err(error);
    }
    Ok((socket, file))
}

/// Connect to the lender at `path`, which must be this user's.
///
/// # Errors
/// `Gone` where none listens, `Listener` where it is another user's.
pub fn connect_lender(path: &Path) -> Result<OwnedFd> {
    let address = address(path)?;
    own_directory(path, false)?;
    let socket = packet_socket(SocketFlags::empty())?;
    match connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR) => return Err(no_lender(path)),
        Err(errno) => return Err(Error::system("connect to the shared pool")(errno)),
    }
    if own_peer(&socket)?.is_none() {
        return Err(Error::Address(format!(
            "{} belongs to another user; give the path of your own: forebay serve --path",
            path.display()
        )));
    }
    Ok(socket)
}

/// Nobody lends there.
pub fn no_lender(path: &Path) -> Error {
    Error::Gone(format!(
        "no shared pool at {}; start one: forebay serve",
        path.display()
    ))
}

/// The process at the other end, where the kernel says that it is of this user.
fn own_peer(socket: impl AsFd) -> Result<Option<Peer>> {
    let peer = peer_of(socket).map_err(Error::system("getsockopt(SO_PEERCRED)"))?;
    let own = peer.uid == rustix::process::geteuid().as_raw();
    Ok(own.then_some(peer))
}

fn address(path: &Path) -> Result<SocketAddrUnix> {
    let bytes = path.as_os_str().as_bytes().len();
    if bytes > PATH_BYTES_MAX {
        return Err(Error::Address(format!(
            "the socket path {} has {bytes} bytes, the kernel takes {PATH_BYTES_MAX}; give a shorter one: --path",
            path.display()
        )));
    }
    SocketAddrUnix::new(path)
        .map_err(|errno| Error::Address(format!("{}: {errno}", path.display())))
}

fn packet_socket(flags: SocketFlags) -> Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(Error::system("socket"))
}

/// The socket's directory must be this user's alone: whoever may write there could replace the socket.
fn own_directory(path: &Path, make: bool) -> Result<()> {
    let parent = path.parent().filter(|name| !name.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    if make && !directory.exists() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|source| Error::System {
                what: "make the directory of the shared pool",
                source,
            })?;
    }
    let Ok(found) = directory.symlink_metadata() else {
        return Err(no_lender(path));
    };
    let own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    let others = found.mode() & 0o077;
    if own && others == 0 {
        return Ok(());
    }
    Err(Error::Address(format!(
        "{} is not a directory of yours alone (0700), so others could replace the socket in it; \
         remove it, or give another path: --path",
        directory.display()
    )))
}

fn lock_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Lock the file beside the socket and write our process id into it. The holder before us may remove it at that very
/// moment, so what was locked must still be what the name stands for.
fn lock(path: &Path) -> Result<File> {
    let name = lock_name(path);
    let failed = |what| move |source| Error::System { what, source };
    loop {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&name)
            .map_err(failed("open the lock of the shared pool"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(taken(path, &mut file)),
            Err(errno) => return Err(Error::system("flock")(errno)),
        }
        let held = file.metadata().map_err(failed("stat"))?;
        let named = name.symlink_metadata();
        if named.is_ok_and(|named| identity(&named) == identity(&held)) {
            let pid = std::process::id();
            file.set_len(0).map_err(failed("truncate"))?;
            file.rewind().map_err(failed("rewind"))?;
            writeln!(file, "{pid}").map_err(failed("write the lock of the shared pool"))?;
            return Ok(file);
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

fn taken(path: &Path, lock: &mut File) -> Error {
    let mut pid = String::new();
    let _ = lock.read_to_string(&mut pid); // without it the message says less
    let pid = pid.trim();
    let by = if pid.is_empty() {
        "another process".to_owned()
    } else {
        format!("process {pid}")
    };
    Error::Address(format!(
        "{by} already lends services at {}; end it first (kill {pid}), or use another path: --path",
        path.display()
    ))
}

fn remove_stale(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(found) if found.file_type().is_socket() => {
            std::fs::remove_file(path).map_err(|source| Error::System {
                what: "remove the stale socket",
                source,
            })
        }
        Ok(_) => Err(Error::Address(format!(
            "{} exists and is no socket; give another path: --path",
            path.display()
        ))),
    }
}
