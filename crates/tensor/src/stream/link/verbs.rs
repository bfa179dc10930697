//! Pulls of a link over a fabric beside its socket: RDMA verbs, or a test's stand-in.
//!
//! The stream still shows whether the server is alive, and carries everything that the fabric cannot: a pull that the
//! fabric refuses is repeated over the stream, whose answer has the exact error. If the fabric's connection is lost and
//! the stream is not, the stream takes over the pending pulls: pulling rows twice is harmless.
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_base::readiness;
use forebay_base::slots::{self, Slots};
use forebay_memory::Lease;
use forebay_transport::stream::{Socket, Wire};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::error::Error;
use crate::fabric::{Completion, FabricPull, RequesterEndpoint};
use crate::requester::{Pull, Rows};
use crate::stream::batch::{Batch, BatchEntry};
use crate::table::Key;

/// The slowest plausible fabric, bytes per second: the silence limit grows with the bytes that are under way.
const SLOWEST_BYTES: u64 = 64 << 20;
/// How many tensors are remembered that the fabric cannot read.
const ELSEWHERE_MAX: usize = 4096;
/// Pulls that may wait for a slot.
const WAITING_MAX: usize = 65_536;

/// Counters of pulls over verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbsCounters {
    /// Pulls that succeeded.
    pub pulls: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pulls that the server refused over verbs, and the stream carried.
    pub refused: u64,
}

/// A pull that has not ended.
pub(super) struct PendingPull<M> {
    pub(super) operation: BatchEntry<M>,
    pub(super) pull: Pull,
    block: Lease,
    /// It was canceled; its memory is kept until the device can no longer write there.
    is_over: bool,
}

/// How a pull ended over verbs.
pub(super) enum Completed<M> {
    Done(BatchEntry<M>),
    /// The stream has to carry it.
    Refused(BatchEntry<M>, Pull),
}

pub(super) struct VerbsPulls<M> {
    /// Dropped first: it fences the device, so the memory of the fields below may be freed.
    endpoint: Box<dyn RequesterEndpoint>,
    /// Readable when completions are available; a duplicate, so that a sleeping thread keeps it open.
    completed: Socket,
    lifeline: Socket,
    waiting: VecDeque<PendingPull<M>>,
    under_way: Slots<PendingPull<M>>,
    /// Bytes of the pulls under way.
    bytes: u64,
    completions: Vec<Completion>,
    elsewhere: HashSet<Key>,
    liveness: Duration,
    /// When the last completion came, or the first pull was issued.
    moved: Instant,
    counters: VerbsCounters,
    /// Whether the link is broken without verbs.
    pub(super) is_needed: bool,
}

/// The verbs connection of a link, while there is one.
pub(super) struct VerbsState<M> {
    pulls: Option<VerbsPulls<M>>,
    /// Whether `pulls` is set, for callers that must not wait for the link's lock.
    is_present: Arc<AtomicBool>,
    /// Why the connection was lost.
    lost: Option<String>,
    /// The pulls that ended in a turn; kept for its capacity.
    ended: Vec<Completed<M>>,
}

impl<M> VerbsState<M> {
    pub(super) fn new() -> Self {
        Self {
            pulls: None,
            is_present: Arc::default(),
            lost: None,
            ended: Vec::new(),
        }
    }

    pub(super) fn attach(&mut self, pulls: VerbsPulls<M>) {
        self.pulls = Some(pulls);
        self.is_present.store(true, Ordering::Release);
    }

    pub(super) fn detach(&mut self) -> Option<VerbsPulls<M>> {
        let pulls = self.pulls.take()?;
        self.is_present.store(false, Ordering::Release);
        Some(pulls)
    }

    pub(super) fn pulls(&self) -> Option<&VerbsPulls<M>> {
        self.pulls.as_ref()
    }

    pub(super) fn pulls_mut(&mut self) -> Option<&mut VerbsPulls<M>> {
        self.pulls.as_mut()
    }

    /// Whether there is a connection, to be read without the link's lock.
    pub(super) fn presence(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_present)
    }

    pub(super) fn note_loss(&mut self, error: &Error) {
        self.lost = Some(error.to_string());
    }

    /// The counters; the reason once it was lost; `None` if there was none.
    pub(super) fn report(&self) -> Option<Result<VerbsCounters, String>> {
        match (&self.pulls, &self.lost) {
            (Some(pulls), _) => Some(Ok(pulls.counters())),
            (None, Some(why)) => Some(Err(why.clone())),
            (None, None) => None,
        }
    }

    /// A turn of the pulls; returns those that ended, in a list that [`Self::keep_ended`] takes back.
    pub(super) fn turn(&mut self, now: Instant) -> (Vec<Completed<M>>, Result<(), Error>) {
        let mut ended = std::mem::take(&mut self.ended);
        let turned = match &mut self.pulls {
            Some(pulls) => pulls.turn(now, &mut ended),
            None => Ok(()),
        };
        (ended, turned)
    }

    pub(super) fn keep_ended(&mut self, ended: Vec<Completed<M>>) {
        self.ended = ended;
    }
}

impl<M> VerbsPulls<M> {
    pub(super) fn new(
        endpoint: Box<dyn RequesterEndpoint>,
        lifeline: Socket,
        liveness: Duration,
        is_needed: bool,
    ) -> Result<Self, Errno> {
        let completed = rustix::io::fcntl_dupfd_cloexec(&endpoint, 0)?;
        Ok(Self {
            endpoint,
            completed: Arc::new(completed),
            lifeline,
            waiting: VecDeque::new(),
            under_way: Slots::new(),
            bytes: 0,
            completions: Vec::new(),
            elsewhere: HashSet::new(),
            liveness,
            moved: Instant::now(),
            counters: VerbsCounters::default(),
            is_needed,
        })
    }

    /// The descriptors to sleep on: one is readable when completions are available, the other hangs up when the
    /// server's side is gone.
    pub(super) fn sockets(&self) -> [&Socket; 2] {
        [&self.completed, &self.lifeline]
    }

    pub(super) fn counters(&self) -> VerbsCounters {
        self.counters
    }

    /// How many pulls are in flight, and how many wait.
    pub(super) fn pending(&self) -> (usize, usize) {
        (self.under_way.len(), self.waiting.len())
    }

    /// Queue a pull, unless only the stream can carry it.
    pub(super) fn submit(
        &mut self,
        operation: BatchEntry<M>,
        pull: Pull,
        block: Lease,
    ) -> Result<(), BatchEntry<M>> {
        if !self.can(&pull, &block) {
            return Err(operation);
        }
        self.waiting.push_back(PendingPull {
            operation,
            pull,
            block,
            is_over: false,
        });
        Ok(())
    }

    fn can(&self, pull: &Pull, block: &Lease) -> bool {
        let Rows::Slice { count, .. } = pull.rows else {
            return false;
        };
        let bytes = count.checked_mul(pull.row_bytes);
        let start = block.as_ptr().as_ptr() as usize;
        let skipped = (pull.out.address().as_ptr() as usize).checked_sub(start);
        let end = skipped.and_then(|skipped| skipped.checked_add(pull.out.bytes()));
        pull.places.is_none()
            && pull.out.bytes() > 0
            && bytes == Some(pull.out.bytes() as u64)
            && end.is_some_and(|end| end <= block.len())
            && self.waiting.len() < WAITING_MAX
            && !self.elsewhere.contains(&pull.tensor)
            && self.endpoint.reaches(block, pull.out.bytes())
    }

    /// Issue waiting pulls while slots are free.
    pub(super) fn issue(&mut self, now: Instant) -> Result<(), Error> {
        while !self.waiting.is_empty() && self.endpoint.has_free_slot() {
            let Some(pending) = self.waiting.pop_front() else {
                break;
            };
            let Rows::Slice { first, count } = pending.pull.rows else {
                continue; // `can` accepts slices only
            };
            let start = pending.block.as_ptr().as_ptr() as usize;
            let (out, into) = (pending.pull.out, pending.block.clone());
            let tensor = pending.pull.tensor;
            if self.under_way.is_empty() {
                self.moved = now;
            }
            self.bytes += out.bytes() as u64;
            let token = self.under_way.insert(pending).to_bits();
            self.endpoint.pull(FabricPull {
                token,
                tensor,
                first,
                rows: count,
                into,
                at: out.address().as_ptr() as usize - start,
                bytes: out.bytes(),
            })?;
        }
        Ok(())
    }

    /// Take completions, append the ended pulls to `ended`, and issue waiting pulls.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        ended: &mut Vec<Completed<M>>,
    ) -> Result<(), Error> {
        let mut completions = std::mem::take(&mut self.completions);
        let turned = self.endpoint.turn(&mut completions);
        let came = !completions.is_empty();
        for completion in completions.drain(..) {
            ended.extend(self.end(completion));
        }
        self.completions = completions; // keep its capacity
        turned?;
        if came {
            self.moved = now;
        } else if self.has_hung_up() {
            return Err(Error::Broken {
                why: "the server closed the verbs connection".to_owned(),
            });
        }
        self.issue(now)
    }

    fn end(&mut self, completion: Completion) -> Option<Completed<M>> {
        let pending = self
            .under_way
            .remove(slots::Key::from_bits(completion.token))?;
        let bytes = pending.pull.out.bytes() as u64;
        self.bytes -= bytes;
        if pending.is_over {
            return None;
        }
        match completion.result {
            Ok(()) => {
                self.counters.pulls += 1;
                self.counters.bytes += bytes;
                Some(Completed::Done(pending.operation))
            }
            Err(why) => {
                self.counters.refused += 1;
                if matches!(why, Error::NotInBlock) {
                    if self.elsewhere.len() >= ELSEWHERE_MAX {
                        self.elsewhere.clear();
                    }
                    self.elsewhere.insert(pending.pull.tensor);
                }
                Some(Completed::Refused(pending.operation, pending.pull))
            }
        }
    }

    /// Whether the server closed the lifeline.
    fn has_hung_up(&self) -> bool {
        !readiness(&self.lifeline, PollFlags::RDHUP).is_empty()
    }

    /// Check that the server is not silent; returns when to check again.
    pub(super) fn expire(&self, now: Instant) -> Result<Option<Instant>, Error> {
        if self.under_way.is_empty() {
            return Ok(None);
        }
        let limit = self.liveness + Duration::from_millis(self.bytes * 1000 / SLOWEST_BYTES);
        let silent = now.saturating_duration_since(self.moved);
        if silent < limit {
            return Ok(Some(self.moved + limit));
        }
        Err(Error::Silent { silent, limit })
    }

    /// Cancel the unfinished pulls of a batch; returns their indices. Pulls under way keep their memory.
    pub(super) fn give_up(&mut self, batch: &Arc<Batch<M>>) -> Vec<u32> {
        let mut given = Vec::new();
        let of_it = |pending: &PendingPull<M>| {
            Arc::ptr_eq(&pending.operation.batch, batch) && !pending.is_over
        };
        self.waiting.retain(|pending| {
            let is_of_it = of_it(pending);
            if is_of_it {
                given.push(pending.operation.index);
            }
            !is_of_it
        });
        let Self {
            under_way,
            endpoint,
            ..
        } = self;
        for (key, pending) in under_way.iter_mut() {
            if of_it(pending) {
                pending.is_over = true;
                endpoint.cancel(key.to_bits());
                given.push(pending.operation.index);
            }
        }
        given
    }

    /// Release the blocks that the endpoint keeps for the next pull; waits for the device, which takes microseconds.
    pub(super) fn release_blocks(&mut self) -> Result<(), Error> {
        self.endpoint.release_blocks()
    }

    /// Fence the server; returns the unfinished pulls.
    pub(super) fn break_off(mut self, error: Error) -> Vec<(BatchEntry<M>, Pull)> {
        self.endpoint.break_off(error);
        Wire::Socket(Arc::clone(&self.lifeline)).hang_up();
        let keys: Vec<slots::Key> = self.under_way.iter().map(|(key, _)| key).collect();
        let under_way = keys
            .into_iter()
            .filter_map(|key| self.under_way.remove(key));
        let under_way: Vec<_> = under_way.filter(|pending| !pending.is_over).collect();
        let all = under_way.into_iter().chain(self.waiting.drain(..));
        all.map(|pending| (pending.operation, pending.pull))
            .collect()
    }
}
