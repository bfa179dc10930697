//! How many requests wait for something else than a worker.

use crate::machine::entry::State;

/// Requests that wait, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// For other requests.
    pub requests: usize,
    /// For their time.
    pub time: usize,
    /// For a key that others hold.
    pub key: usize,
    /// For their name, of which as many run as may.
    pub name: usize,
}

impl Waits {
    /// All of them.
    pub fn total(self) -> usize {
        self.requests + self.time + self.key + self.name
    }

    /// A request enters this state.
    pub(in crate::machine) fn enter(&mut self, state: &State) {
        if let Some(count) = self.of(state) {
            *count += 1;
        }
    }

    /// A request leaves this state.
    pub(super) fn leave(&mut self, state: &State) {
        if let Some(count) = self.of(state) {
            *count -= 1;
        }
    }

    fn of(&mut self, state: &State) -> Option<&mut usize> {
        match state {
            State::After => Some(&mut self.requests),
            State::Until => Some(&mut self.time),
            State::Keyed => Some(&mut self.key),
            State::Named => Some(&mut self.name),
            _ => None,
        }
    }
}
