//! What the client is to be sent: the events of one turn of the keeper, in order.

use std::os::fd::OwnedFd;

use crate::death::{Cause, Death};
use crate::wire::Event;

/// Events, each with the descriptor that goes with it.
#[derive(Debug, Default)]
pub struct Events(Vec<(Event, Option<OwnedFd>)>);

impl Events {
    /// Add an event.
    pub fn push(&mut self, event: Event) {
        self.0.push((event, None));
    }

    /// Add an event with a descriptor.
    pub fn push_with(&mut self, event: Event, descriptor: OwnedFd) {
        self.0.push((event, Some(descriptor)));
    }

    /// A service that was asked for will not have a process.
    pub fn push_not_started(&mut self, slot: u32, cause: Cause, text: Vec<u8>) {
        let death = Death {
            cause,
            pid: 0,
            text,
            ..Death::default()
        };
        self.push(Event::Died { slot, death });
    }

    /// Take all events.
    pub fn take(&mut self) -> Vec<(Event, Option<OwnedFd>)> {
        std::mem::take(&mut self.0)
    }
}
