//! The identity of a file behind a path.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file, whatever its name is by now. No other file has this identity while it exists or is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The file that this was asked of.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }

    /// Whether the path names this file. Another has the name where the first was removed or renamed. A link names
    /// itself, not the file that it points to.
    pub fn is_at(self, path: &Path) -> bool {
        let named = path.symlink_metadata();
        named.is_ok_and(|named| Self::of(&named) == self)
    }

    /// Remove the name, unless it is another file's.
    pub fn remove_at(self, path: &Path) {
        if self.is_at(path) {
            let _ = std::fs::remove_file(path);
        }
    }
}
