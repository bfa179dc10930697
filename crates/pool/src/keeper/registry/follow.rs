//! Telling what a service writes while it writes.

use super::Registry;
use crate::wire::{Event, Handle};

impl Registry {
    /// The client wants to know what a service writes beyond so many bytes.
    pub(super) fn follow(&mut self, handle: Handle, beyond: u64) {
        if let Some(service) = self.services.get_mut(&handle.slot) {
            service.followed_by = handle;
            service.output.drain();
            service.output.follow(beyond);
        }
        self.notify_followers(handle.slot);
    }

    /// Send the followers of a service what it has written since, if there is more.
    pub(super) fn notify_followers(&mut self, slot: u32) {
        let Some(service) = self.services.get_mut(&slot) else {
            return;
        };
        if let Some((total, text)) = service.output.take_update() {
            let handle = service.followed_by;
            let written = Event::Written {
                handle,
                total,
                text,
            };
            self.events.push((written, None));
        }
    }
}
