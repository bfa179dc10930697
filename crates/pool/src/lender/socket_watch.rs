//! Watching the socket's file: a clean-up of the runtime directory may remove it, and then no program finds the lender.

use std::time::{Duration, Instant};

use forebay_base::poll::Token;

use super::listener::listen_again;
use super::{Lender, LenderSource};
use crate::limit::SOCKET_CHECK_MS;

/// When the lender checks next, and what it has reported.
#[derive(Debug)]
pub(super) struct SocketWatch {
    pub(super) due: Instant,
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

fn next_look() -> Instant {
    let now = Instant::now();
    now.checked_add(Duration::from_millis(SOCKET_CHECK_MS))
        .unwrap_or(now)
}

impl Lender {
    /// Make the socket again where it was removed; returns the notice for a person.
    pub(super) fn check_socket_file(&mut self) -> Option<String> {
        if Instant::now() < self.socket_watch.due {
            return None;
        }
        self.socket_watch.due = next_look();
        if !self.listener.socket().is_gone() {
            return None;
        }
        self.accept(); // programs that connected before the file was removed
        let path = self.listener.socket().path().display().to_string();
        let accepting = self.paused_until.is_none();
        if accepting {
            self.poller.remove(&self.listener);
        }
        let bound = listen_again(&mut self.listener);
        if accepting
            && self
                .watch(&self.listener, Token::only(LenderSource::Listener))
                .is_err()
        {
            self.pause_accepting();
        }
        match bound {
            Ok(()) => {
                self.socket_watch.reported = false;
                Some(format!("the socket {path} was removed and made again"))
            }
            Err(error) if !self.socket_watch.reported => {
                self.socket_watch.reported = true;
                Some(format!(
                    "the socket {path} was removed and cannot be made again yet: {error}; \
                     programs that look for it find no lender until it can be"
                ))
            }
            Err(_) => None,
        }
    }
}
