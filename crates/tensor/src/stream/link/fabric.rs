//! How a link uses its verbs connection: its part of a turn, and what happens when it is lost.
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_memory::Lease;
use forebay_transport::stream::Wire;

use super::inner::Inner;
use super::verbs::{Completed, VerbsCounters, VerbsPulls};
use super::{Link, Work};
use crate::error::Error;
use crate::fabric::RequesterEndpoint;
use crate::requester::Outcome;
use crate::stream::batch::{Batch, BatchEntry};
use crate::stream::channel::Fault;

/// One operation of a batch, with the arena block that a pull goes to, if there is one: only such a pull can use verbs.
/// A pull over verbs reports version 0.
#[derive(Clone, Debug)]
pub struct Submission {
    /// The operation.
    pub work: Work,
    /// The block, of a region that the fabric knows.
    pub block: Option<Lease>,
}

impl From<Work> for Submission {
    fn from(work: Work) -> Self {
        Self { work, block: None }
    }
}

/// A fabric that a link pulls over, beside its stream.
pub struct Fabric {
    /// The endpoint, connected to the server's.
    pub endpoint: Box<dyn RequesterEndpoint>,
    /// The stream on which the endpoint was introduced.
    pub lifeline: Wire,
    /// How long the server may be silent.
    pub liveness: Duration,
    /// Whether the link breaks if the fabric is lost; otherwise the stream takes over.
    pub is_needed: bool,
}

impl<M: Send + Sync + 'static> Link<M> {
    /// Pull over a fabric from now on, where possible.
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
            inner.turn_verbs(Instant::now()); // arms the fabric's descriptor
        }
        Ok(())
    }

    /// Counters of the fabric; the reason once it was lost; `None` if there was none.
    pub fn verbs_counters(&self) -> Option<Result<VerbsCounters, String>> {
        let inner = self.lock().ok()?;
        match (&inner.verbs, &inner.verbs_lost) {
            (Some(verbs), _) => Some(Ok(verbs.counters())),
            (None, Some(why)) => Some(Err(why.clone())),
            (None, None) => None,
        }
    }

    /// Whether pulls use a fabric. It takes no lock, so it may be called under one such as Python's GIL.
    pub fn has_verbs(&self) -> bool {
        self.has_verbs.load(Ordering::Acquire)
    }

    /// Release the blocks that the endpoint keeps for the next pull: the arena is full. Waits for the device.
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
    /// Queue a pull for verbs, unless only the stream can carry it.
    pub(super) fn submit_to_verbs(
        &mut self,
        operation: BatchEntry<M>,
        submission: &mut Submission,
    ) -> Result<(), BatchEntry<M>> {
        match (&mut self.verbs, submission.work, submission.block.take()) {
            (Some(verbs), Work::Pull(pull), Some(block)) => verbs.submit(operation, pull, block),
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

    /// Take completions, and issue waiting pulls.
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
        self.verbs_ended = ended; // keep its capacity
        if let Err(error) = turned {
            self.lose_verbs(&error);
        }
    }

    /// A turn of verbs only: the socket had no event, so no system call is spent on it.
    pub(super) fn turn_verbs_alone(&mut self, now: Instant) {
        self.turn_verbs(now);
        if self.again {
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

    /// The link ends.
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
