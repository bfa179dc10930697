//! Why a Unix socket cannot listen.

use std::io;
use std::path::{Path, PathBuf};

use super::PATH_BYTES_MAX;

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
    /// What another process has passed on does not listen.
    #[error("the descriptor that was passed on for {0} is no listening socket of its kind")]
    Passed(PathBuf),
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
    pub(super) fn system<E: Into<io::Error>>(
        what: &str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self + use<E> {
        let what = format!("{what} {}", path.display());
        |source| Self::System {
            what,
            source: source.into(),
        }
    }
}
