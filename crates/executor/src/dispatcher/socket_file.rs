//! A socket's file, which somebody else may remove.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::Result;

/// A socket that listens at a path.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// That it is gone and cannot be made again was said.
    said: bool,
}

impl SocketFile {
    /// The socket that listens at `path` now.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.into(),
            said: false,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing is there any more; what somebody else has put there is theirs.
    pub fn is_gone(&self) -> bool {
        let found = self.path.symlink_metadata();
        found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// What to say of an attempt to make it again. One that failed goes back to `socket_file`, to be tried again; that is
    /// said once.
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
            "the socket {path} was removed and cannot be socket_file again: {why}; start the server again"
        );
        let first = !std::mem::replace(&mut self.said, true);
        *socket_file = Some(self);
        first.then_some(Err(text))
    }
}
