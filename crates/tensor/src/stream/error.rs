//! What can go wrong with a link or a server.
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

/// Why something was refused or ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The machine's own word, about what it was asked for or about its peer.
    #[error("{peer}: {error}")]
    Tensor {
        /// The other end.
        peer: Arc<str>,
        /// What it was.
        error: crate::Error,
    },
    /// It was closed here.
    #[error("{what} is closed; open another one")]
    Closed {
        /// The link or server.
        what: Arc<str>,
    },
    /// Its thread has panicked, which is a defect of ours.
    #[error(
        "the thread of {what} has panicked, which is a bug: its stderr says where; start another one"
    )]
    Panicked {
        /// The server.
        what: Arc<str>,
    },
    /// It was canceled here.
    #[error("{what}: it was canceled")]
    Canceled {
        /// The link.
        what: Arc<str>,
    },
    /// Time ran out: for an operation, which has ended with this, or for a wait, and what is waited for goes on.
    #[error("{peer} did not end it within {} s", allowed.as_secs_f64())]
    Deadline {
        /// The other end.
        peer: Arc<str>,
        /// The time that there was.
        allowed: Duration,
    },
    /// A signal came while waiting; wait again.
    #[error("a signal interrupted the wait")]
    Interrupted,
    /// A forked child must not use what is its parent's.
    #[error(
        "{what} belongs to the process that made it, of which this one was forked; open another one here"
    )]
    Forked {
        /// The link or server.
        what: Arc<str>,
    },
    /// The kernel refused.
    #[error("{what} failed: {errno}")]
    System {
        /// Which call.
        what: &'static str,
        /// Why.
        errno: Errno,
    },
    /// The connection could not be taken over.
    #[error(transparent)]
    Transport(#[from] forebay_transport::Error),
}

impl StreamError {
    pub(super) fn system(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::System { what, errno }
    }
}
