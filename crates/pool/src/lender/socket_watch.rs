//! Watching the socket's file: a clean-up of the runtime directory may remove it, and then no program finds the lender.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::limit::SOCKET_CHECK_MS;

/// When the lender checks next, and what it has reported.
#[derive(Debug)]
pub(super) struct SocketWatch {
    due: Instant,
    /// It was reported that the socket is gone and cannot be made again.
    reported: bool,
}

impl Default for SocketWatch {
    fn default() -> Self {
        Self {
            due: next_look(),
            reported: false,
        }
    }
}

impl SocketWatch {
    /// When to check next.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Whether to check now; then the next check is planned.
    pub fn begin_check(&mut self) -> bool {
        let is_due = Instant::now() >= self.due;
        if is_due {
            self.due = next_look();
        }
        is_due
    }

    /// The notice for a person, once the socket that was removed was made again, or could not be.
    pub fn notice(&mut self, path: &Path, bound: Result<()>) -> Option<String> {
        let path = path.display();
        match bound {
            Ok(()) => {
                self.reported = false;
                Some(format!("the socket {path} was removed and made again"))
            }
            Err(error) if !self.reported => {
                self.reported = true;
                Some(format!(
                    "the socket {path} was removed and cannot be made again yet: {error}; \
                     programs that look for it find no lender until it can be"
                ))
            }
            Err(_) => None,
        }
    }
}

fn next_look() -> Instant {
    let now = Instant::now();
    now.checked_add(Duration::from_millis(SOCKET_CHECK_MS))
        .unwrap_or(now)
}
