//! Giving the stream away: what follows on it is no message.

use super::State;
use crate::error::Fault;
use crate::stream::Stream;

impl<S: Stream> State<S> {
    /// Take the stream, where both ends stand between two messages and nothing waits; `None` otherwise, and nothing
    /// has changed.
    ///
    /// Its next byte in each direction is whatever the two ends agreed on in messages before.
    /// For that the peer must not send such bytes before it knows that this end takes the stream: they would have been
    /// read as messages. An end that answers last does so by sending its answer, and taking the stream before it
    /// receives again.
    ///
    /// The state is closed by it.
    pub fn take_stream(&mut self) -> Option<S> {
        if !self.is_between() {
            return None;
        }
        self.break_with(Fault::Closed);
        self.usage.close();
        self.stream.take()
    }

    /// Whether nothing of a message is under way or waits, in either direction.
    fn is_between(&self) -> bool {
        let sent = |stream: &S| stream.unsent() == 0 && !stream.wants_write();
        self.fault.is_none()
            && !self.ended
            && !self.is_within()
            && self.deferred.is_empty()
            && self.inbox.is_empty()
            && self.outbox.is_empty()
            && self.stream.as_ref().is_some_and(sent)
    }
}
