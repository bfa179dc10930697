//! Giving the stream away: what follows on it is not a message.

use super::State;
use crate::error::Fault;
use crate::stream::Stream;

impl<S: Stream> State<S> {
    /// Take the stream between two messages, if nothing is queued in either direction; `None`, without a change,
    /// otherwise.
    ///
    /// The next byte in each direction has the meaning that the two ends agreed on by messages. So the peer must not send
    /// such bytes before it knows that this end has taken the stream: they would be read as messages. The end that
    /// answers last sends its answer, and takes the stream before it receives again.
    ///
    /// This closes the state.
    pub fn take_stream(&mut self) -> Option<S> {
        if !self.is_between() {
            return None;
        }
        self.break_with(Fault::Closed);
        self.usage.close();
        self.stream.take()
    }

    /// Whether no message is in transit or queued, in either direction.
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
