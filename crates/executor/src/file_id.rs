//! The identity of a file behind a path.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// A file, whatever its name is by now. No other file has this identity while it exists or is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}
