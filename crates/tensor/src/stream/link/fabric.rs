//! How a link uses its fabric: what of a turn belongs to it, and what follows where it ends.
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_memory::Lease;
use forebay_transport::Wire;

use super::inner::Inner;
use super::verbs::{Completed, VerbsCounters, VerbsPulls};
use super::{Link, Work};
use crate::error::Error;
use crate::fabric::RequesterEndpoint;
use crate::requester::Outcome;
use crate::stream::batch::{Batch, BatchEntry};
use crate::stream::channel::Fault;

/// One of a batch's operations, with the block of the arena that a pull goes to, where there is one: only such a pull
/// can be made over a fabric. Its version is not told then: it is 0.
#[derive(Clone, Debug)]
pub struct Submission {
    /// What is to be done.
    pub work: Work,
    /// The block, of a region that the fabric knows.
    pub block: Option<Lease>,
}

impl From<Work> for Submission {
    fn from(work: Work) -> Self {
        Self { work, block: None }
    }
}

/// How a link pulls over a fabric.
pub struct Fabric {
    /// Connected to the server's end.
    pub endpoint: Box<dyn RequesterEndpoint>,
    /// The stream on which it was introduced.
    pub lifeline: Wire,
    /// How long the server may be silent.
    pub liveness: Duration,
    /// Whether the link is broken without it; otherwise the stream takes over.
    pub is_needed: bool,
}

impl<M: Send + Sync + 'static> Link<M> {
    /// Make pulls over a fabric from now on, where that can be.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`](crate::stream::StreamError::Forked), [`Error::System`](crate::stream::StreamError::System).
    pub fn attach_fabric(&self, fabric: Fabric) -> Result<(), crate::stream::StreamError> {
        let Fabric {
            endpoint,
            lifeline,
            liveness,
            is_needed,
        } = fabric;
        let socket = Arc::clone(lifeline.socket());
        let mut inner = self.lock()?;
        if inner.is_open() {
            let verbs = VerbsPulls::new(endpoint, socket, liveness, is_needed);
            inner.verbs = Some(verbs.map_err(crate::stream::StreamError::system("a descriptor"))?);
            inner.has_verbs.store(true, Ordering::Release);
            inner.turn_verbs(Instant::now()); // has the fabric tell of what comes
        }
        Ok(())
    }

    /// What was pulled over the fabric; why not, once it was lost; none where there was none.
    pub fn verbs_counters(&self) -> Option<Result<VerbsCounters, String>> {
        let inner = self.lock().ok()?;
        match (&inner.verbs, &inner.verbs_lost) {
            (Some(verbs), _) => Some(Ok(verbs.counters())),
            (None, Some(why)) => Some(Err(why.clone())),
            (None, None) => None,
        }
    }

    /// Whether pulls are made over a fabric. It waits for nobody's turn, so it may be asked under a lock such as Python's.
    pub fn has_verbs(&self) -> bool {
        self.has_verbs.load(Ordering::Acquire)
    }

    /// Have no block be kept for the next pull into it: the arena has no room left. Waits for the device.
    pub fn release_blocks(&self) {
        let Ok(mut inner) = self.lock() else { return };
        if let Some(verbs) = &mut inner.verbs
            && let Err(error) = verbs.release_blocks()
        {
            inner.lose_verbs(&error);
        }
        let now = Instant::now();
        inner.turn_verbs(now);
        inner.update_leader();
    }
}

impl<M: Send + Sync + 'static> Inner<M> {
    /// Have a pull go by the fabric, unless it is one for the stream.
    pub(super) fn submit_to_verbs(
        &mut self,
        operation: BatchEntry<M>,
        submission: &mut Submission,
    ) -> Result<(), BatchEntry<M>> {
        match (&mut self.verbs, submission.work, submission.block.take()) {
            (Some(verbs), Work::Pull(pull), Some(block)) => verbs.ask(operation, pull, block),
            _ => Err(operation),
        }
    }

    pub(super) fn issue_verbs(&mut self, now: Instant) {
        if let Some(verbs) = &mut self.verbs
            && let Err(error) = verbs.issue(now)
        {
            self.lose_verbs(&error);
        }
    }

    /// Take what has come over the fabric, and send what can be.
    pub(super) fn turn_verbs(&mut self, now: Instant) {
        let Some(verbs) = &mut self.verbs else { return };
        let mut ended = std::mem::take(&mut self.verbs_ended);
        let turned = verbs.turn(now, &mut ended);
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
                    self.again = true;
                }
            }
        }
        self.verbs_ended = ended; // its room is used again
        if let Err(error) = turned {
            self.lose_verbs(&error);
        }
    }

    /// A turn of the fabric alone: the socket has said nothing.
    pub(super) fn turn_verbs_alone(&mut self, now: Instant) {
        self.turn_verbs(now);
        if self.again {
            self.send(now); // the stream has got some of it to do
        } else {
            self.expire(now);
        }
    }

    /// The fabric's connection is over. The stream goes on, unless the server lied or is silent.
    pub(super) fn lose_verbs(&mut self, error: &Error) {
        let Some(verbs) = self.take_verbs() else {
            return;
        };
        self.verbs_lost = Some(error.to_string());
        let ends_all = verbs.is_needed || !matches!(error, Error::Broken { .. });
        let left = verbs.break_off(error.clone());
        if ends_all {
            self.end_all(left, error);
            return self.break_off(Fault::Peer(error.clone()));
        }
        for (operation, pull) in left {
            self.submit_to_stream(operation, Work::Pull(pull));
        }
        self.again = true;
    }

    /// The link is over.
    pub(super) fn end_verbs(&mut self, error: &Error) {
        if let Some(verbs) = self.take_verbs() {
            let left = verbs.break_off(error.clone());
            self.end_all(left, error);
        }
    }

    fn end_all(&mut self, left: Vec<(BatchEntry<M>, crate::requester::Pull)>, error: &Error) {
        for (operation, _) in left {
            let error = self.link_error(error.clone());
            self.end(&operation.batch, operation.index, Err(error));
        }
    }

    fn take_verbs(&mut self) -> Option<VerbsPulls<M>> {
        let verbs = self.verbs.take()?;
        self.has_verbs.store(false, Ordering::Release);
        for (entry, socket) in self
            .ports
            .iter()
            .flat_map(|entry| verbs.sockets().map(|socket| (entry, socket)))
        {
            entry.core.unwatch(socket);
        }
        Some(verbs)
    }

    pub(super) fn give_up_verbs(
        &mut self,
        batch: &Arc<Batch<M>>,
        why: &crate::stream::StreamError,
    ) {
        let given = self.verbs.as_mut().map(|verbs| verbs.give_up(batch));
        for index in given.unwrap_or_default() {
            self.end(batch, index, Err(why.clone()));
        }
    }
}
