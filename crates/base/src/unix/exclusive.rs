//! A listener with a lock beside its socket.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::net::SocketType;

use super::directory::{Directory, prepare_directory};
use super::error::ListenError;
use super::listener::Listener;
use crate::file_id::FileId;
use crate::process;

/// The right to listen at a path: the locked file `<path>.lock`, which dropping it removes.
#[derive(Debug)]
pub struct Lock {
    file: File,
    name: PathBuf,
    identity: FileId,
    /// The process that removes the file; `None`: another one has the lock too, and the file is its affair.
    epoch: Option<u64>,
}

impl Lock {
    /// Lock the file beside the socket at `path`, and write this process's id into it. The holder before may remove it
    /// at that very moment, so what was locked must still be what the name stands for; otherwise try again with the new
    /// one.
    fn take(path: &Path) -> Result<Self, ListenError> {
        let name = lock_name(path);
        loop {
            let mut file = open_lock(&name)?;
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
            let identity = FileId::of(&held);
            if identity.is_at(&name) {
                write_holder(&mut file).map_err(ListenError::system("write", &name))?;
                return Ok(Self {
                    file,
                    name,
                    identity,
                    epoch: Some(process::epoch()),
                });
            }
        }
    }

    /// Hold the lock beside the socket at `path` of another process, which has passed its descriptor on: the lock is
    /// of the open file, so that it was never free.
    fn adopt(path: &Path, file: OwnedFd) -> Result<Self, ListenError> {
        let name = lock_name(path);
        let mut file = File::from(file);
        let held = file
            .metadata()
            .map_err(ListenError::system("stat", &name))?;
        let identity = FileId::of(&held);
        if !identity.is_at(&name) {
            return Self::take(path); // it was removed meanwhile
        }
        write_holder(&mut file).map_err(ListenError::system("write", &name))?;
        Ok(Self {
            file,
            name,
            identity,
            epoch: None,
        })
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.epoch == Some(process::epoch()) {
            self.identity.remove_at(&self.name);
        }
    }
}

/// A listening socket that no other process replaces while this one listens.
#[derive(Debug)]
pub struct ExclusiveListener {
    listener: Listener, // first: its file goes before the lock is free
    lock: Lock,
}

impl ExclusiveListener {
    /// Listen at `path` with a nonblocking socket. A stale file is replaced under the lock.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn bind(path: &Path, kind: SocketType, directory: Directory) -> Result<Self, ListenError> {
        prepare_directory(path, directory)?;
        let lock = Lock::take(path)?;
        let listener = Listener::bind(path, kind, directory)?;
        Ok(Self { listener, lock })
    }

    /// Listen with the socket and the lock of another process, which has passed them on. The files stay that one's until
    /// [`Self::own_files`].
    ///
    /// # Errors
    /// Those of [`Listener::adopt`].
    pub fn adopt(
        path: &Path,
        kind: SocketType,
        directory: Directory,
        socket: OwnedFd,
        lock: OwnedFd,
    ) -> Result<Self, ListenError> {
        let lock = Lock::adopt(path, lock)?;
        let listener = Listener::adopt(path, kind, directory, socket)?;
        Ok(Self { listener, lock })
    }

    /// The files are this process's from now on.
    pub fn own_files(&mut self) {
        self.listener.own_file();
        self.lock.epoch = Some(process::epoch());
    }

    /// Leave both files when this is dropped, for a process that has the socket and the lock too.
    pub fn leave_files(&mut self) {
        self.listener.leave_file();
        self.lock.epoch = None;
    }

    /// Listen there again, with a new socket, after the file was removed. On failure the old one stays.
    ///
    /// # Errors
    /// Those of [`Self::bind`]; a file that has the name by now is not replaced.
    pub fn bind_again(&mut self) -> Result<(), ListenError> {
        self.listener.prepare_directory()?;
        if !self.lock.identity.is_at(&self.lock.name) {
            self.lock = Lock::take(self.listener.path())?; // it was removed too
        }
        self.listener.bind_again()
    }

    /// The socket, for all but binding it.
    pub fn socket(&self) -> &Listener {
        &self.listener
    }

    /// The lock, whose descriptor a forked child may have to close.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }
}

impl AsFd for ExclusiveListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

pub(super) fn lock_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn open_lock(name: &Path) -> Result<File, ListenError> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        // Nonblocking: a pipe of that name would wait for its other end.
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(name)
        .map_err(ListenError::system("open", name))
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
