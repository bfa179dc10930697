//! Giving a connection's stream away.

use super::{Messages, release};
use crate::error::{Delivered, Result};
use crate::stream::socket::Wire;

impl Messages {
    /// Take the stream between two messages, to go on with something else on it: see
    /// [`State::take_stream`](crate::messages::state::State::take_stream).
    ///
    /// This closes the connection; no thread may be waiting on it.
    ///
    /// # Errors
    /// `Busy`, without a change, while a message or part of one is in transit or waits to be taken. What ended the
    /// connection, `Closed`, `Forked`.
    pub fn take_stream(&self) -> Result<Wire> {
        let mut state = self.lock()?;
        if let Some(fault) = state.end() {
            return Err(fault.to_error(&self.peer, Delivered::No));
        }
        let taken = state.take_stream();
        release(state);
        taken.ok_or_else(|| self.busy("messages are under way, or wait to be taken"))
    }
}
