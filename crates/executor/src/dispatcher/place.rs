//! A socket's file, which somebody else may remove.

use std::path::{Path, PathBuf};

use crate::file_id::FileId;

/// A file as it was made: its path, and which one it is.
#[derive(Debug)]
pub struct Made {
    path: PathBuf,
    file: Option<FileId>,
    /// That it is gone and cannot be made again was said.
    said: bool,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is there.
    Ours,
    Nothing,
    /// Somebody else's lies in its place.
    Another,
}

impl Made {
    /// The file that was made at `path` now.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.into(),
            file: which(path),
            said: false,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Look whether it is still there.
    pub fn look(&self) -> Found {
        match which(&self.path) {
            None => Found::Nothing,
            found if found == self.file => Found::Ours,
            Some(_) => Found::Another,
        }
    }

    /// Once: that it is gone for good.
    pub fn lament(&mut self, why: &str) -> Option<String> {
        let path = self.path.display();
        (!std::mem::replace(&mut self.said, true)).then(|| {
            format!("the socket {path} was removed and cannot be made again: {why}; start the server again")
        })
    }
}

fn which(path: &Path) -> Option<FileId> {
    let found = path.symlink_metadata().ok()?;
    Some(FileId::of(&found))
}
