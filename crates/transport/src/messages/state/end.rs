//! The end of a connection: by a fault, by the peer, by closing it, or by giving its stream away.

use super::State;
use crate::error::{Cause, Fault, Violation};
use crate::stream::{Stream, StreamFault};

impl<S: Stream> State<S> {
    /// Why the connection broke, if it did.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Whether the peer sends nothing more, after its last whole message.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Why nothing more arrives once the inbox is empty, if so.
    pub fn end(&self) -> Option<Fault> {
        let ended = self.ended.then_some(Fault::Broken(Cause::EndOfFile));
        self.fault.clone().or(ended)
    }

    /// Whether the peer is gone; polls the stream if it is not read.
    pub fn is_over(&mut self) -> bool {
        self.fault.is_some()
            || self.ended
            || self
                .stream
                .as_ref()
                .is_none_or(|stream| self.inbox.is_paused() && stream.hung_up())
    }

    /// End the connection; received messages can still be taken.
    pub fn break_with(&mut self, fault: Fault) {
        if self.fault.is_none() {
            self.fault = Some(fault);
            self.outbox.clear();
            self.account();
        }
    }

    pub(super) fn end_of_file(&mut self) -> Option<usize> {
        if self.decoder.at_boundary() && self.is_open() {
            self.ended = true;
        } else {
            self.break_with(Fault::Broken(Cause::Truncated));
        }
        None
    }

    pub(super) fn fail_receiving(&mut self, fault: StreamFault) -> Option<usize> {
        if !fault.is_transient() {
            self.fail(fault);
        }
        None
    }

    pub(super) fn fail(&mut self, fault: StreamFault) {
        match fault {
            StreamFault::Violation(violation) => drop(self.violate(violation)),
            fault => self.break_with(Fault::Broken(fault.into())),
        }
    }

    pub(super) fn violate(&mut self, violation: Violation) -> Option<usize> {
        self.break_with(Fault::Protocol {
            offset: self.decoder.offset(),
            violation,
        });
        None
    }

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
        self.close()
    }

    /// Close now: queued bytes are dropped. Returns the stream, to be dropped outside of any lock.
    pub fn close(&mut self) -> Option<S> {
        self.break_with(Fault::Closed);
        self.usage.close();
        self.stream.take()
    }

    /// Drop the stream alone, in a forked child: the peer does not notice, and what the parent counts stays.
    pub fn drop_stream(&mut self) {
        self.stream = None;
    }

    /// Continue to send after a fault, for a message that tells the peer about it. Nothing more should be received.
    pub fn send_despite_fault(&mut self) {
        self.fault = None;
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
