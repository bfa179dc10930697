//! The directory of a Unix socket, in which other users must not replace it.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use super::error::ListenError;

/// What is asked of the socket's directory, which is made (0700) where it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directory {
    /// It is this user's, and nobody else may read or write it: 0700.
    Private,
    /// It is this user's or root's, and others cannot replace files in it: not writable for them, or sticky as `/tmp`.
    Unwritable,
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

/// Make the socket's directory where it is missing, and check it.
pub(super) fn prepare_directory(path: &Path, wanted: Directory) -> Result<(), ListenError> {
    let directory = parent(path);
    if !directory.exists() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(ListenError::system("create", directory))?;
    }
    check_directory(path, wanted)
}
