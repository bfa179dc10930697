//! The socket's file, which a clean-up of the runtime directory may take away from programs that look for it.

use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::{LISTENER, Lender};
use crate::limit::SOCKET_CHECK_MS;

/// When the lender looks next, and what it has said.
#[derive(Debug)]
pub(super) struct SocketWatch {
    pub(super) due: Instant,
    /// That the socket is gone and cannot be made again was said.
    said: bool,
}

impl Default for SocketWatch {
    fn default() -> Self {
        Self {
            due: next_look(),
            said: false,
        }
    }
}

fn next_look() -> Instant {
    let now = Instant::now();
    now.checked_add(Duration::from_millis(SOCKET_CHECK_MS))
        .unwrap_or(now)
}

impl Lender {
    /// Make the socket again where it was removed; what a person should know of that.
    pub(super) fn check_socket_file(&mut self) -> Option<String> {
        if Instant::now() < self.socket_watch.due {
            return None;
        }
        self.socket_watch.due = next_look();
        if !self.listener.is_removed() {
            return None;
        }
        self.accept(); // who came while it was there still
        let path = self.listener.path().display().to_string();
        let heard = self.paused_until.is_none();
        if heard {
            let _ = epoll::delete(&self.poller, &self.listener.socket);
        }
        let taken = self.listener.bind_again();
        if heard && self.watch(&self.listener.socket, LISTENER).is_err() {
            self.pause_accepting();
        }
        match taken {
            Ok(()) => {
                self.socket_watch.said = false;
                Some(format!("the socket {path} was removed and made again"))
            }
            Err(error) if !self.socket_watch.said => {
                self.socket_watch.said = true;
                Some(format!(
                    "the socket {path} was removed and cannot be made again yet: {error}; \
                     programs that look for it find no lender until it can be"
                ))
            }
            Err(_) => None,
        }
    }
}
