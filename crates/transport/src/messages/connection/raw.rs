//! Giving the stream of a connection away.

use super::{Messages, release};
use crate::error::{Delivered, Result};
use crate::stream::socket::Wire;

impl Messages {
    /// Take the stream between two messages, to go on with something else on it: see
    /// [`State::take_stream`](crate::messages::state::State::take_stream).
    ///
    /// The connection is closed by it; nobody may be waiting for it.
    ///
    /// # Errors
    /// `Busy` while part of a message, or a whole one, is under way or waits to be taken; then nothing has changed.
    /// What ended the connection, `Closed`, `Forked`.
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
