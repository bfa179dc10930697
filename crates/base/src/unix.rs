//! A listening Unix socket that belongs to this user alone.
//!
//! Four things make it so. Its *directory* may not let another user replace the socket ([`Directory`]). Its *file* gets
//! 0600. A *lock* beside it says that somebody listens, and holds their process id; it ends with its holder, so a socket
//! whose lock is free was left behind by a killed process and is replaced. And both files are told from a successor's by
//! device and inode, so that nobody removes what somebody else made in their place.
//!
//! A forked child's copy removes nothing when it is dropped. Sources: unix(7), flock(2).

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, chmod, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::process;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// What fits the kernel's address of a Unix socket: `sun_path` without its final zero.
pub const PATH_BYTES_MAX: usize = 107;

/// What is asked of the socket's directory, which is made (0700) where it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    /// It is this user's, and nobody else may read or write it: 0700.
    Private,
    /// It is this user's or root's, and others cannot replace files in it: not writable for them, or sticky as `/tmp`.
    Unwritable,
}

/// Why no socket listens. Each names what a message must say; the next step is the caller's to add.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The path does not fit.
    #[error("the socket path {path} has {bytes} bytes, the kernel takes {PATH_BYTES_MAX}")]
    Path {
        /// What was asked for.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// The directory is missing, and was not to be made.
    #[error("the directory {0} does not exist")]
    Missing(PathBuf),
    /// Other users could replace the socket in its directory.
    #[error(
        "{directory} (user {owner}, mode {mode:03o}) lets other users replace the socket in it"
    )]
    Exposed {
        /// The directory.
        directory: PathBuf,
        /// The user that it belongs to.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// The lock is another user's, who could keep it locked for ever.
    #[error("the lock {lock} belongs to user {owner}, who could keep it locked")]
    Lock {
        /// The lock's file.
        lock: PathBuf,
        /// The user that it belongs to.
        owner: u32,
    },
    /// A process listens there.
    #[error("{path} is in use by {}", process_of(*.holder))]
    InUse {
        /// The socket.
        path: PathBuf,
        /// The process that holds the lock, where it says so.
        holder: Option<u32>,
    },
    /// Something else has that name.
    #[error("{0} exists and is no socket")]
    NotASocket(PathBuf),
    /// The system refused a step.
    #[error("{what}: {source}")]
    System {
        /// The step, and of what.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

fn process_of(holder: Option<u32>) -> String {
    holder.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

impl ListenError {
    fn system<E: Into<io::Error>>(what: &str, path: &Path) -> impl FnOnce(E) -> Self + use<E> {
        let what = format!("{what} {}", path.display());
        |source| Self::System {
            what,
            source: source.into(),
        }
    }
}

/// Device and inode of a file.
type Identity = (u64, u64);

/// A listening socket, its file and its lock. Dropping it removes both files.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// The socket's file, to tell it from a successor's.
    file: Identity,
    /// The process that made it.
    epoch: u64,
    lock: File,
}

impl Listener {
    /// Listen at `path` with a nonblocking socket. A stale file is replaced under the lock.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(path: &Path, kind: SocketType, directory: Directory) -> Result<Self, ListenError> {
        make_directory(path)?;
        check_directory(path, directory)?;
        let lock = take_lock(path)?;
        remove_stale(path)?;
        let (socket, file) = listening(path, kind)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
            file,
            epoch: process::epoch(),
            lock,
        })
    }

    /// Whether the socket's file was removed. Where another lies in its place, that is somebody else's affair.
    pub fn is_gone(&self) -> bool {
        let found = self.path.symlink_metadata();
        found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Listen there again, with a new socket of the same kind, after the file was removed. On failure the old one stays.
    ///
    /// # Errors
    /// Those of [`Self::bind`].
    pub fn bind_again(
        &mut self,
        kind: SocketType,
        directory: Directory,
    ) -> Result<(), ListenError> {
        make_directory(&self.path)?;
        check_directory(&self.path, directory)?;
        let held = self.lock.metadata().map(|held| identity(&held));
        let named = lock_name(&self.path).symlink_metadata();
        let kept = held.is_ok_and(|held| named.is_ok_and(|named| identity(&named) == held));
        if !kept {
            self.lock = take_lock(&self.path)?; // it was removed too
        }
        (self.socket, self.file) = listening(&self.path, kind)?;
        Ok(())
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lock's file, whose descriptor a forked child may have to close.
    pub fn lock(&self) -> &File {
        &self.lock
    }

    /// The number of the socket, for a selector.
    pub fn fileno(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if process::epoch() != self.epoch {
            return;
        }
        remove_own(&self.path, self.file);
        if let Ok(held) = self.lock.metadata() {
            remove_own(&lock_name(&self.path), identity(&held));
        }
    }
}

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

/// Whether other users can replace a socket at `path`: an error then, also for a client that is about to connect there.
///
/// # Errors
/// [`ListenError::Exposed`], [`ListenError::Missing`].
pub fn check_directory(path: &Path, wanted: Directory) -> Result<(), ListenError> {
    let directory = parent(path);
    let found = match wanted {
        // A link to it could be turned elsewhere by whom the link belongs to.
        Directory::Private => directory.symlink_metadata(),
        Directory::Unwritable => directory.metadata(),
    };
    let Ok(found) = found else {
        return Err(ListenError::Missing(directory.to_owned()));
    };
    let user = rustix::process::geteuid().as_raw();
    let (owner, mode) = (found.uid(), found.mode());
    let safe = match wanted {
        Directory::Private => found.is_dir() && owner == user && mode.trailing_zeros() >= 6,
        Directory::Unwritable => {
            (owner == user || owner == 0) && (mode & 0o022 == 0 || mode & 0o1000 != 0)
        }
    };
    if safe {
        return Ok(());
    }
    Err(ListenError::Exposed {
        directory: directory.to_owned(),
        owner,
        mode: mode & 0o7777,
    })
}

fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

fn make_directory(path: &Path) -> Result<(), ListenError> {
    let directory = parent(path);
    if directory.exists() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(ListenError::system("create", directory))
}

/// A socket that listens at `path`, for this user alone, and its file.
fn listening(path: &Path, kind: SocketType) -> Result<(OwnedFd, Identity), ListenError> {
    let address = address(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)
        .map_err(ListenError::system("socket for", path))?;
    bind(&socket, &address).map_err(ListenError::system("bind", path))?;
    let file = path
        .symlink_metadata()
        .map_err(ListenError::system("stat", path))?;
    let file = identity(&file);
    // Nobody can connect before `listen`, so the mode comes in time.
    let open = chmod(path, Mode::RUSR | Mode::WUSR)
        .map_err(ListenError::system("chmod", path))
        .and_then(|()| listen(&socket, BACKLOG).map_err(ListenError::system("listen", path)));
    if let Err(error) = open {
        remove_own(path, file);
        return Err(error);
    }
    Ok((socket, file))
}

fn lock_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Lock the file beside the socket, and write this process's id into it. The holder before may remove it at that very
/// moment, so what was locked must still be what the name stands for; otherwise try again with the new one.
fn take_lock(path: &Path) -> Result<File, ListenError> {
    let name = lock_name(path);
    loop {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            // Nonblocking: a pipe of that name would wait for its other end.
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(&name)
            .map_err(ListenError::system("open", &name))?;
        let held = file
            .metadata()
            .map_err(ListenError::system("stat", &name))?;
        if held.uid() != rustix::process::geteuid().as_raw() || !held.is_file() {
            return Err(ListenError::Lock {
                owner: held.uid(),
                lock: name,
            });
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(in_use(path, &mut file)),
            Err(errno) => return Err(ListenError::system("flock", &name)(errno)),
        }
        let named = name.symlink_metadata();
        if named.is_ok_and(|named| identity(&named) == identity(&held)) {
            write_holder(&mut file).map_err(ListenError::system("write", &name))?;
            return Ok(file);
        }
    }
}

fn write_holder(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}

fn in_use(path: &Path, lock: &mut File) -> ListenError {
    let mut text = String::new();
    let _ = lock.read_to_string(&mut text); // without it the message says less
    ListenError::InUse {
        path: path.to_owned(),
        holder: text.trim().parse().ok(),
    }
}

fn identity(file: &Metadata) -> Identity {
    (file.dev(), file.ino())
}

/// Remove a file, unless the name stands for another one, as it may where somebody cleaned the directory.
fn remove_own(path: &Path, file: Identity) {
    let named = path.symlink_metadata();
    if named.is_ok_and(|named| identity(&named) == file) {
        let _ = std::fs::remove_file(path);
    }
}

fn remove_stale(path: &Path) -> Result<(), ListenError> {
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(found) if found.file_type().is_socket() => {
            std::fs::remove_file(path).map_err(ListenError::system("remove the stale socket", path))
        }
        Ok(_) => Err(ListenError::NotASocket(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A directory of one test, removed at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("base-{name}-{}", std::process::id()));
            DirBuilder::new().mode(0o700).create(&path).expect("made");
            Self(path)
        }

        fn socket(&self) -> PathBuf {
            self.0.join("sock")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn bound(path: &Path) -> Result<Listener, ListenError> {
        Listener::bind(path, SocketType::STREAM, Directory::Private)
    }

    #[test]
    fn one_process_listens_and_leaves_nothing() {
        let scratch = Scratch::new("one");
        let path = scratch.0.join("made").join("sock");
        let listener = bound(&path).expect("free");
        assert_eq!(path.metadata().expect("a file").mode() & 0o777, 0o600);
        assert!(UnixStream::connect(&path).is_ok());
        let own = std::process::id();
        match bound(&path) {
            Err(ListenError::InUse { holder, .. }) => assert_eq!(holder, Some(own)),
            other => panic!("{other:?}"),
        }
        drop(listener);
        let left = std::fs::read_dir(path.parent().expect("one")).expect("a directory");
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_file_is_not() {
        let scratch = Scratch::new("stale");
        drop(std::os::unix::net::UnixListener::bind(scratch.socket()).expect("bound"));
        drop(bound(&scratch.socket()).expect("nobody holds the lock"));
        std::fs::write(scratch.socket(), "precious").expect("written");
        assert!(matches!(
            bound(&scratch.socket()),
            Err(ListenError::NotASocket(_))
        ));
        assert_eq!(std::fs::read(scratch.socket()).expect("kept"), b"precious");
    }

    #[test]
    fn a_directory_that_others_may_read_is_not_private_and_one_that_they_write_is_neither() {
        let scratch = Scratch::new("exposed");
        let mode = |mode| {
            std::fs::set_permissions(&scratch.0, Permissions::from_mode(mode)).expect("ours");
        };
        let check = |wanted| check_directory(&scratch.socket(), wanted).is_ok();
        for (bits, private, unwritable) in [
            (0o700, true, true),
            (0o755, false, true),
            (0o777, false, false),
            (0o1777, false, true),
        ] {
            mode(bits);
            let found = (check(Directory::Private), check(Directory::Unwritable));
            assert_eq!(found, (private, unwritable), "{bits:o}");
        }
        mode(0o700);
    }

    #[test]
    fn a_socket_whose_file_was_removed_can_be_bound_again() {
        let scratch = Scratch::new("again");
        let mut listener = bound(&scratch.socket()).expect("free");
        std::fs::remove_file(scratch.socket()).expect("there");
        assert!(listener.is_gone());
        listener
            .bind_again(SocketType::STREAM, Directory::Private)
            .expect("free");
        assert!(!listener.is_gone() && UnixStream::connect(scratch.socket()).is_ok());
    }

    #[test]
    fn a_successors_files_are_left_alone() {
        let scratch = Scratch::new("successor");
        let first = bound(&scratch.socket()).expect("free");
        std::fs::remove_file(scratch.socket()).expect("there");
        std::fs::remove_file(lock_name(&scratch.socket())).expect("there");
        let second = bound(&scratch.socket()).expect("free");
        drop(first);
        assert!(!second.is_gone());
    }

    #[test]
    fn a_path_that_does_not_fit_is_named_with_its_length() {
        let long = PathBuf::from("/tmp").join("x".repeat(200));
        let error = address(&long).expect_err("too long").to_string();
        assert!(
            error.contains("205 bytes") && error.contains("107"),
            "{error}"
        );
    }
}
