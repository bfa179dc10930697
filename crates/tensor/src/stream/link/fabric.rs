//! How a link uses its verbs connection: its part of a turn, and what happens when it is lost.
use std::sync::Arc;
use std::time::Instant;

use super::inner::Inner;
use super::verbs::{Completed, VerbsPulls};
use super::{Submission, Work};
use crate::error::Error;
use crate::requester::{Outcome, Pull};
use crate::stream::batch::{Batch, BatchEntry};
use crate::stream::channel::Fault;
use crate::stream::error::StreamError;

impl<M: Send + Sync + 'static> Inner<M> {
    /// Queue a pull for verbs, unless only the stream can carry it.
    pub(super) fn submit_to_verbs(
        &mut self,
        operation: BatchEntry<M>,
        submission: &mut Submission,
    ) -> Result<(), BatchEntry<M>> {
        match (
            self.verbs.pulls_mut(),
            submission.work,
            submission.block.take(),
        ) {
            (Some(verbs), Work::Pull(pull), Some(block)) => verbs.submit(operation, pull, block),
            _ => Err(operation),
        }
    }

    pub(super) fn issue_verbs(&mut self, now: Instant) {
        if let Some(verbs) = self.verbs.pulls_mut()
            && let Err(error) = verbs.issue(now)
        {
            self.lose_verbs(&error);
        }
    }

    /// Take completions, and issue waiting pulls.
    pub(super) fn turn_verbs(&mut self, now: Instant) {
        if self.verbs.pulls().is_none() {
            return;
        }
        let (mut ended, turned) = self.verbs.turn(now);
        for each in ended.drain(..) {
            match each {
                Completed::Done(operation) => {
                    self.end(
                        &operation.batch,
                        operation.index,
                        Ok(Outcome::Moved { version: 0 }),
                    );
                }
                Completed::Refused(operation, pull) => {
                    self.submit_to_stream(operation, Work::Pull(pull));
                    self.wants.again = true;
                }
            }
        }
        self.verbs.keep_ended(ended);
        if let Err(error) = turned {
            self.lose_verbs(&error);
        }
    }

    /// A turn of verbs only: the socket had no event, so no system call is spent on it.
    pub(super) fn turn_verbs_alone(&mut self, now: Instant) {
        self.turn_verbs(now);
        if self.wants.again {
            self.send(now); // refused pulls go to the stream
        } else {
            self.expire(now);
        }
    }

    /// The verbs connection is lost. The stream takes over, unless the server violated the protocol or is silent.
    pub(super) fn lose_verbs(&mut self, error: &Error) {
        let Some(verbs) = self.take_verbs() else {
            return;
        };
        self.verbs.note_loss(error);
        let ends_all = verbs.is_needed || !matches!(error, Error::Broken { .. });
        let left = verbs.break_off(error.clone());
        if ends_all {
            self.end_all(left, error);
            return self.break_off(Fault::Peer(error.clone()));
        }
        for (operation, pull) in left {
            self.submit_to_stream(operation, Work::Pull(pull));
        }
        self.wants.again = true;
    }

    /// The link ends.
    pub(super) fn end_verbs(&mut self, error: &Error) {
        if let Some(verbs) = self.take_verbs() {
            let left = verbs.break_off(error.clone());
            self.end_all(left, error);
        }
    }

    fn end_all(&mut self, left: Vec<(BatchEntry<M>, Pull)>, error: &Error) {
        for (operation, _) in left {
            let error = self.link_error(error.clone());
            self.end(&operation.batch, operation.index, Err(error));
        }
    }

    fn take_verbs(&mut self) -> Option<VerbsPulls<M>> {
        let verbs = self.verbs.detach()?;
        for socket in verbs.sockets() {
            self.drivers.unwatch(socket);
        }
        Some(verbs)
    }

    pub(super) fn give_up_verbs(&mut self, batch: &Arc<Batch<M>>, why: &StreamError) {
        let given = self.verbs.pulls_mut().map(|verbs| verbs.give_up(batch));
        for index in given.unwrap_or_default() {
            self.end(batch, index, Err(why.clone()));
        }
    }
}
