//! Pulls that a link has over a fabric beside its socket, such as RDMA verbs.
//!
//! The socket stays what says whether the server lives, and what carries all that the fabric cannot: whatever is refused
//! there is asked for again over the stream, which has the words for it. Where the fabric's connection is lost and the
//! stream is not, the stream takes over what was pending: rows that are pulled twice are the same rows.
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::readiness;
use forebay_memory::Lease;
use forebay_transport::Wire;
use forebay_transport::stream::socket::Socket;
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::error::Error;
use crate::fabric::{Completion, FabricPull, RequesterEndpoint};
use crate::requester::{Pull, Rows};
use crate::slab::Slab;
use crate::stream::batch::{Batch, BatchEntry};
use crate::table::Key;

/// What a fabric moves in a second at least, for how long a server may be silent while it sends much.
const SLOWEST_BYTES: u64 = 64 << 20;
/// Tensors that are remembered not to lie where the fabric reaches them.
const ELSEWHERE_MAX: usize = 4096;
/// Pulls that may wait for a slot.
const WAITING_MAX: usize = 65_536;

/// What a link has counted of its fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbsCounters {
    /// Pulls that ended well.
    pub pulls: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pulls that the server refused, and that the stream carried.
    pub refused: u64,
}

/// A pull, and where it goes to.
pub(super) struct PendingPull<M> {
    pub(super) operation: BatchEntry<M>,
    pub(super) pull: Pull,
    block: Lease,
    /// Nobody waits for it any more; its memory is kept until nothing can land there.
    is_over: bool,
}

/// What is to be done with a pull.
pub(super) enum Completed<M> {
    Done(BatchEntry<M>),
    /// The stream is to carry it.
    Refused(BatchEntry<M>, Pull),
}

pub(super) struct VerbsPulls<M> {
    /// Goes first: nothing lands from then on, and the memory below may go.
    endpoint: Box<dyn RequesterEndpoint>,
    /// Readable when something has come; a further handle, so that who sleeps on it keeps it open.
    completed: Socket,
    lifeline: Socket,
    waiting: VecDeque<PendingPull<M>>,
    under_way: Slab<PendingPull<M>>,
    /// Bytes of those under way.
    bytes: u64,
    completions: Vec<Completion>,
    elsewhere: HashSet<Key>,
    liveness: Duration,
    /// When something came last, or was asked for first.
    moved: Instant,
    counters: VerbsCounters,
    /// Whether the link is of no use without it.
    pub(super) is_needed: bool,
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
            under_way: Slab::new(),
            bytes: 0,
            completions: Vec::new(),
            elsewhere: HashSet::new(),
            liveness,
            moved: Instant::now(),
            counters: VerbsCounters::default(),
            is_needed,
        })
    }

    /// What is slept on: readable when something has come, and at its end when the server's side is gone.
    pub(super) fn sockets(&self) -> [&Socket; 2] {
        [&self.completed, &self.lifeline]
    }

    pub(super) fn counters(&self) -> VerbsCounters {
        self.counters
    }

    /// How many are with the server, and how many wait.
    pub(super) fn pending(&self) -> (usize, usize) {
        (self.under_way.len(), self.waiting.len())
    }

    /// Take a pull over, unless it is one for the stream.
    pub(super) fn ask(
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

    /// Send what there are slots for.
    pub(super) fn issue(&mut self, now: Instant) -> Result<(), Error> {
        while !self.waiting.is_empty() && self.endpoint.has_free_slot() {
            let Some(pending) = self.waiting.pop_front() else {
                break;
            };
            let Rows::Slice { first, count } = pending.pull.rows else {
                continue; // none was taken over
            };
            let start = pending.block.as_ptr().as_ptr() as usize;
            let (out, into) = (pending.pull.out, pending.block.clone());
            let tensor = pending.pull.tensor;
            if self.under_way.is_empty() {
                self.moved = now;
            }
            self.bytes += out.bytes() as u64;
            let token = u64::from(self.under_way.insert(pending).index);
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

    /// Take what has come; `ended` hears of each end. Then send what there are slots for.
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
        self.completions = completions; // its room is used again
        turned?;
        if came {
            self.moved = now;
        } else if self.has_hung_up() {
            return Err(Error::Broken {
                why: "the server has ended the connection over verbs".to_owned(),
            });
        }
        self.issue(now)
    }

    fn end(&mut self, completion: Completion) -> Option<Completed<M>> {
        let pending = u32::try_from(completion.token).ok();
        let pending = pending.and_then(|index| self.under_way.remove(index))?;
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

    /// Whether the server's side of the lifeline is closed.
    fn has_hung_up(&self) -> bool {
        !readiness(&self.lifeline, PollFlags::RDHUP).is_empty()
    }

    /// Look after the server's silence; by when to look again.
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

    /// Let go of what of the batch has not ended; the numbers of those. What is under way keeps its memory.
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
        for (token, pending) in under_way.iter_mut() {
            if of_it(pending) {
                pending.is_over = true;
                endpoint.cancel(u64::from(token));
                given.push(pending.operation.index);
            }
        }
        given
    }

    /// Have no block be kept for the next pull into it; waits for the device, which takes microseconds.
    pub(super) fn release_blocks(&mut self) -> Result<(), Error> {
        self.endpoint.release_blocks()
    }

    /// Fence the server; what had not ended.
    pub(super) fn break_off(mut self, error: Error) -> Vec<(BatchEntry<M>, Pull)> {
        self.endpoint.break_off(error);
        Wire::Socket(Arc::clone(&self.lifeline)).hang_up();
        let tokens: Vec<u32> = self.under_way.iter().map(|(token, _)| token).collect();
        let under_way = tokens
            .into_iter()
            .filter_map(|token| self.under_way.remove(token));
        let under_way: Vec<_> = under_way.filter(|pending| !pending.is_over).collect();
        let all = under_way.into_iter().chain(self.waiting.drain(..));
        all.map(|pending| (pending.operation, pending.pull))
            .collect()
    }
}
