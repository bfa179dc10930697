//! What can go wrong with a link or a server.
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

/// Why an operation was refused or failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// An error of the state machine, about an operation or about the peer.
    #[error("{peer}: {error}")]
    Tensor {
        /// The other end.
        peer: Arc<str>,
        /// The error.
        error: crate::Error,
    },
    /// The caller closed it.
    #[error("{what} is closed; open another one")]
    Closed {
        /// The link or server.
        what: Arc<str>,
    },
    /// Its thread has panicked, which is a bug.
    #[error(
        "the thread of {what} has panicked, which is a bug: its stderr says where; start another one"
    )]
    Panicked {
        /// The server.
        what: Arc<str>,
    },
    /// The caller canceled it.
    #[error("{what}: the operation was canceled")]
    Canceled {
        /// The link.
        what: Arc<str>,
    },
    /// The deadline passed: of an operation, which has ended, or of a wait, whose operations continue.
    #[error("{peer} did not complete the operation within {} s", allowed.as_secs_f64())]
    Deadline {
        /// The other end.
        peer: Arc<str>,
        /// The time that was allowed.
        allowed: Duration,
    },
    /// A signal interrupted the wait; wait again.
    #[error("a signal interrupted the wait")]
    Interrupted,
    /// A forked child must not use its parent's connection.
    #[error("{what} belongs to the process that this one was forked from; open another one here")]
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
    /// No eventfd: as a rule no descriptor is left.
    pub(super) fn eventfd(error: &std::io::Error) -> Self {
        Self::System {
            what: "eventfd",
            errno: Errno::from_io_error(error).unwrap_or(Errno::MFILE),
        }
    }

    pub(super) fn system(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::System { what, errno }
    }
}
