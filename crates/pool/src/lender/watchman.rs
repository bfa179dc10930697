//! The socket's file, which a clean-up of the runtime directory may take away from programs that look for it.

use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::{LISTENER, Lender};
use crate::limit::PLACE_LOOK_MS;

/// When the lender looks next, and what it has said.
#[derive(Debug)]
pub(super) struct Watchman {
    pub(super) due: Instant,
    /// That the socket is gone and cannot be made again was said.
    said: bool,
}

impl Default for Watchman {
    fn default() -> Self {
        Self {
            due: next_look(),
            said: false,
        }
    }
}

fn next_look() -> Instant {
    let now = Instant::now();
    now.checked_add(Duration::from_millis(PLACE_LOOK_MS))
        .unwrap_or(now)
}

impl Lender {
    /// Make the socket again where it was removed; what a person should know of that.
    pub(super) fn look_after_place(&mut self) -> Option<String> {
        if Instant::now() < self.watchman.due {
            return None;
        }
        self.watchman.due = next_look();
        if !self.place.is_gone() {
            return None;
        }
        self.accept(); // who came while it was there still
        let path = self.place.path().display().to_string();
        let heard = self.deaf_until.is_none();
        if heard {
            let _ = epoll::delete(&self.poller, &self.place.socket);
        }
        let taken = self.place.take_again();
        if heard && self.watch(&self.place.socket, LISTENER).is_err() {
            self.pause();
        }
        match taken {
            Ok(()) => {
                self.watchman.said = false;
                Some(format!("the socket {path} was removed and made again"))
            }
            Err(error) if !self.watchman.said => {
                self.watchman.said = true;
                Some(format!(
                    "the socket {path} was removed and cannot be made again yet: {error}; \
                     programs that look for it find no lender until it can be"
                ))
            }
            Err(_) => None,
        }
    }
}
