//! How a link uses its fabric: what of a turn belongs to it, and what follows where it ends.
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_memory::Lease;
use forebay_transport::stream::Wire;

use super::far::{Ended, Far, FarCounters};
use super::inner::Inner;
use super::{Link, Work};
use crate::error::Error;
use crate::fabric::RequesterEndpoint;
use crate::requester::Outcome;
use crate::stream::batch::{Batch, Job};
use crate::stream::channel::Fault;

/// One of a batch's operations, with the block of the arena that a pull goes to, where there is one: only such a pull
/// can be made over a fabric. Its version is not told then: it is 0.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What is to be done.
    pub work: Work,
    /// The block, of a region that the fabric knows.
    pub block: Option<Lease>,
}

impl From<Work> for Wanted {
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
    /// [`Error::Forked`](crate::stream::Error::Forked), [`Error::System`](crate::stream::Error::System).
    pub fn pull_by(&self, fabric: Fabric) -> Result<(), crate::stream::Error> {
        let Fabric {
            endpoint,
            lifeline,
            liveness,
            is_needed,
        } = fabric;
        let socket = Arc::clone(lifeline.socket());
        let mut inner = self.lock()?;
        if inner.is_open() {
            let far = Far::new(endpoint, socket, liveness, is_needed);
            inner.far = Some(far.map_err(crate::stream::Error::system("a descriptor"))?);
            inner.has_far.store(true, Ordering::Release);
            inner.turn_far(Instant::now()); // has the fabric tell of what comes
        }
        Ok(())
    }

    /// What was pulled over the fabric; why not, once it was lost; none where there was none.
    pub fn far_counters(&self) -> Option<Result<FarCounters, String>> {
        let inner = self.lock().ok()?;
        match (&inner.far, &inner.far_lost) {
            (Some(far), _) => Some(Ok(far.counters())),
            (None, Some(why)) => Some(Err(why.clone())),
            (None, None) => None,
        }
    }

    /// Whether pulls are made over a fabric. It waits for nobody's turn, so it may be asked under a lock such as Python's.
    pub fn has_far(&self) -> bool {
        self.has_far.load(Ordering::Acquire)
    }

    /// Have no block be kept for the next pull into it: the arena has no room left. Waits for the device.
    pub fn leave_blocks(&self) {
        let Ok(mut inner) = self.lock() else { return };
        if let Some(far) = &mut inner.far
            && let Err(error) = far.leave_blocks()
        {
            inner.lose_far(&error);
        }
        let now = Instant::now();
        inner.turn_far(now);
        inner.tell();
    }
}

impl<M: Send + Sync + 'static> Inner<M> {
    /// Have a pull go by the fabric, unless it is one for the stream.
    pub(super) fn ask_far(&mut self, job: Job<M>, wanted: &mut Wanted) -> Result<(), Job<M>> {
        match (&mut self.far, wanted.work, wanted.block.take()) {
            (Some(far), Work::Pull(pull), Some(block)) => far.ask(job, pull, block),
            _ => Err(job),
        }
    }

    pub(super) fn issue_far(&mut self, now: Instant) {
        if let Some(far) = &mut self.far
            && let Err(error) = far.issue(now)
        {
            self.lose_far(&error);
        }
    }

    /// Take what has come over the fabric, and send what can be.
    pub(super) fn turn_far(&mut self, now: Instant) {
        let Some(far) = &mut self.far else { return };
        let mut ended = std::mem::take(&mut self.far_ended);
        let turned = far.turn(now, &mut ended);
        for each in ended.drain(..) {
            match each {
                Ended::Well(job) => {
                    self.end(&job.batch, job.index, Ok(Outcome::Moved { version: 0 }));
                }
                Ended::Refused(job, pull) => {
                    self.ask_stream(job, Work::Pull(pull));
                    self.again = true;
                }
            }
        }
        self.far_ended = ended; // its room is used again
        if let Err(error) = turned {
            self.lose_far(&error);
        }
    }

    /// A turn of the fabric alone: the socket has said nothing.
    pub(super) fn turn_far_alone(&mut self, now: Instant) {
        self.turn_far(now);
        if self.again {
            self.send(now); // the stream has got some of it to do
        } else {
            self.keep_time(now);
        }
    }

    /// The fabric's connection is over. The stream goes on, unless the server lied or is silent.
    pub(super) fn lose_far(&mut self, error: &Error) {
        let Some(far) = self.take_far() else { return };
        self.far_lost = Some(error.to_string());
        let ends_all = far.is_needed || !matches!(error, Error::Broken { .. });
        let left = far.break_off(error.clone());
        if ends_all {
            self.end_all(left, error);
            return self.break_off(Fault::Peer(error.clone()));
        }
        for (job, pull) in left {
            self.ask_stream(job, Work::Pull(pull));
        }
        self.again = true;
    }

    /// The link is over.
    pub(super) fn end_far(&mut self, error: &Error) {
        if let Some(far) = self.take_far() {
            let left = far.break_off(error.clone());
            self.end_all(left, error);
        }
    }

    fn end_all(&mut self, left: Vec<(Job<M>, crate::requester::Pull)>, error: &Error) {
        for (job, _) in left {
            let error = self.in_own_words(error.clone());
            self.end(&job.batch, job.index, Err(error));
        }
    }

    fn take_far(&mut self) -> Option<Far<M>> {
        let far = self.far.take()?;
        self.has_far.store(false, Ordering::Release);
        for (seat, socket) in self
            .seats
            .iter()
            .flat_map(|seat| far.sockets().map(|socket| (seat, socket)))
        {
            seat.core.forget(socket);
        }
        Some(far)
    }

    pub(super) fn give_up_far(&mut self, batch: &Arc<Batch<M>>, why: &crate::stream::Error) {
        let given = self.far.as_mut().map(|far| far.give_up(batch));
        for index in given.unwrap_or_default() {
            self.end(batch, index, Err(why.clone()));
        }
    }
}
