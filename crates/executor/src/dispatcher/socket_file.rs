//! A socket's file, which another process may remove.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::Result;

/// The file of a socket that listens.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    is_reported: bool,
}

impl SocketFile {
    /// The socket that listens at `path` now.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.into(),
            is_reported: false,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file was removed. A file that another process created there counts as present: it is not ours to
    /// replace.
    pub fn is_gone(&self) -> bool {
        let found = self.path.symlink_metadata();
        found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// What to report of an attempt to bind it again. A failed one puts the file back into `socket_file`, to be tried
    /// again, and is reported once.
    pub fn after_rebind(
        mut self,
        attempt: Result<()>,
        socket_file: &mut Option<Self>,
    ) -> Option<std::result::Result<(), String>> {
        let Err(why) = attempt else {
            return Some(Ok(()));
        };
        let path = self.path.display();
        let text = format!(
            "the socket {path} was removed and cannot be made again: {why}; start the server again"
        );
        let first = !std::mem::replace(&mut self.is_reported, true);
        *socket_file = Some(self);
        first.then_some(Err(text))
    }
}
