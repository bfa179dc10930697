//! A listening socket with its file.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, chmod};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use super::address;
use super::directory::{Directory, prepare_directory};
use super::error::ListenError;
use crate::file_id::FileId;
use crate::peer::{Peer, peer_of};
use crate::{accept, process};

/// Connections that may wait to be accepted: as many as a server has clients, who all dial again when another server
/// takes its place.
const BACKLOG: i32 = 1_024;

/// A listening socket with its file, which dropping it removes.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    kind: SocketType,
    directory: Directory,
    /// The socket's file, to tell it from a successor's.
    file: FileId,
    /// The process that removes the file; `None`: another one has the socket too, and the file is its affair.
    epoch: Option<u64>,
}

impl Listener {
    /// Listen at `path` with a nonblocking socket. A socket that has this name is replaced, in use or not.
    ///
    /// # Errors
    /// [`ListenError`], but for those of the lock.
    pub fn bind(path: &Path, kind: SocketType, directory: Directory) -> Result<Self, ListenError> {
        prepare_directory(path, directory)?;
        remove_stale(path)?;
        let mut made = Self::new(path, kind, directory, listening(path, kind)?);
        made.own_file();
        Ok(made)
    }

    /// Listen with the socket of another process, which it has passed on. Its file stays that one's until
    /// [`Self::own_file`]. Where it was removed meanwhile, listen there again.
    ///
    /// # Errors
    /// `Passed` for a descriptor of another kind; those of [`Self::bind`].
    pub fn adopt(
        path: &Path,
        kind: SocketType,
        directory: Directory,
        socket: OwnedFd,
    ) -> Result<Self, ListenError> {
        let listens = sockopt::socket_acceptconn(&socket) == Ok(true);
        if !listens || sockopt::socket_type(&socket) != Ok(kind) {
            return Err(ListenError::Passed(path.to_owned()));
        }
        prepare_directory(path, directory)?;
        let listening = match path.symlink_metadata() {
            Ok(found) => (socket, FileId::of(&found)),
            Err(_) => listening(path, kind)?,
        };
        Ok(Self::new(path, kind, directory, listening))
    }

    /// The file is nobody's yet.
    fn new(
        path: &Path,
        kind: SocketType,
        directory: Directory,
        (socket, file): (OwnedFd, FileId),
    ) -> Self {
        Self {
            socket,
            path: path.to_owned(),
            kind,
            directory,
            file,
            epoch: None,
        }
    }

    /// The file is this process's from now on.
    pub fn own_file(&mut self) {
        self.epoch = Some(process::epoch());
    }

    /// Leave the file when this is dropped, for a process that has the socket too.
    pub fn leave_file(&mut self) {
        self.epoch = None;
    }

    /// Whether the socket's file was removed. Where another lies in its place, that is somebody else's affair.
    pub fn is_gone(&self) -> bool {
        let found = self.path.symlink_metadata();
        found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Listen there again, with a new socket, after the file was removed. On failure the old one stays.
    ///
    /// # Errors
    /// Those of [`Self::bind`]; a file that has the name by now is not replaced.
    pub fn bind_again(&mut self) -> Result<(), ListenError> {
        self.prepare_directory()?;
        (self.socket, self.file) = listening(&self.path, self.kind)?;
        Ok(())
    }

    /// Make its directory again where it was removed, and check it.
    pub(super) fn prepare_directory(&self) -> Result<(), ListenError> {
        prepare_directory(&self.path, self.directory)
    }

    /// The next waiting connection of a process of this user; `None` if there is none. Those of other users, and of
    /// peers that the kernel does not name, are closed.
    ///
    /// # Errors
    /// What accept(2) says, for example `MFILE`: pause accepting then. The connection stays in the queue.
    pub fn accept_own(&self) -> Result<Option<(OwnedFd, Peer)>, Errno> {
        let user = rustix::process::geteuid().as_raw();
        while let Some(socket) = accept::next(&self.socket)? {
            if let Ok(peer) = peer_of(&socket)
                && peer.uid == user
            {
                return Ok(Some((socket, peer)));
            }
        }
        Ok(None)
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
        if self.epoch == Some(process::epoch()) {
            self.file.remove_at(&self.path);
        }
    }
}

/// A socket that listens at `path`, for this user alone, and its file.
fn listening(path: &Path, kind: SocketType) -> Result<(OwnedFd, FileId), ListenError> {
    let address = address(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, kind, flags, None)
        .map_err(ListenError::system("socket for", path))?;
    bind(&socket, &address).map_err(ListenError::system("bind", path))?;
    let file = path
        .symlink_metadata()
        .map_err(ListenError::system("stat", path))?;
    let file = FileId::of(&file);
    // Nobody can connect before `listen`, so the mode comes in time.
    let open = chmod(path, Mode::RUSR | Mode::WUSR)
        .map_err(ListenError::system("chmod", path))
        .and_then(|()| listen(&socket, BACKLOG).map_err(ListenError::system("listen", path)));
    if let Err(error) = open {
        file.remove_at(path);
        return Err(error);
    }
    Ok((socket, file))
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
