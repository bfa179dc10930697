//! What an event loop uses: a descriptor to watch, and turns that do what can be done without waiting.
//!
//! Short batches go to a ring of the loop's thread; its completions make the descriptor readable, one wake-up for all of them.
//! Batches longer than the queue's `batch_limit`, and all where there is no such ring, are handed over:
//! the loop would have to wake for every few of their operations, and be free to. Their ends come to the same descriptor.
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::process;

use crate::batch::Batch;
use crate::completion::{Completions, Finished};
use crate::engines::ring::loop_ring::LoopRing;
use crate::error::Error;
use crate::flight::Keeper;
use crate::queue::BlockQueue;
use crate::totals;

/// Batches of one event loop that may have ended without its having looked.
const FINISHED_MAX: usize = 1 << 20;

impl BlockQueue {
    /// What an event loop uses: a ring of the calling thread, or with `hand_over` the I/O thread.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`]; [`Error::System`] if the kernel gives no ring or no eventfd.
    pub fn port(&self, hand_over: bool) -> Result<Port, Error> {
        self.check_open()?;
        if hand_over || !self.availability().ring {
            Port::handed(self.clone())
        } else {
            Port::ring(self.clone())
        }
    }
}

/// One event loop's way to a queue. Not for forked children, which are refused, nor for other threads, which are refused
/// where it has a ring.
pub struct Port {
    queue: BlockQueue,
    completions: Arc<Completions>,
    /// Batches that were handed over, and whose ends have not come.
    handed: u64,
    ring: Option<Box<LoopRing>>,
    /// Batches of the ring that ended while another one was submitted.
    unseen: Vec<Finished>,
    epoch: u64,
}

impl Port {
    /// A port with a ring of the calling thread.
    fn ring(queue: BlockQueue) -> Result<Self, Error> {
        let mut port = Self::handed(queue)?;
        let ring = LoopRing::new(port.queue.shared(), &port.completions)?;
        port.ring = Some(Box::new(ring));
        Ok(port)
    }

    /// A port that hands everything over.
    fn handed(queue: BlockQueue) -> Result<Self, Error> {
        Ok(Self {
            queue,
            completions: Arc::new(Completions::new(FINISHED_MAX)?),
            handed: 0,
            ring: None,
            unseen: Vec::new(),
            epoch: process::epoch(),
        })
    }

    /// The descriptor that is readable when [`Port::turn`] is due. The port owns it.
    pub fn fileno(&self) -> RawFd {
        self.completions.fileno()
    }

    /// Submit a batch. `Some` gives `keeper` back: it is done already, as reads from the page cache are.
    ///
    /// A ticket is one batch's among all that are in flight on the queue, those of other ports included.
    ///
    /// # Errors
    ///
    /// As [`BlockQueue::submit`]; [`Error::Thread`] for another thread than the one that made the port,
    /// [`Error::Forked`] for a forked child.
    pub fn submit(
        &mut self,
        batch: Batch,
        keeper: Keeper,
        ticket: u64,
    ) -> Result<Option<Keeper>, Error> {
        self.queue.check_open()?;
        self.check()?;
        match &mut self.ring {
            Some(ring) if batch.count() <= self.queue.shared().config.batch_limit as usize => {
                totals::note(batch.kinds, true);
                ring.admit(batch, keeper, ticket)?;
                self.go(ticket)
            }
            _ => {
                self.queue
                    .submit(batch, keeper, ticket, &self.completions)?;
                self.handed += 1;
                Ok(None)
            }
        }
    }

    /// Have the ring go on; returns the keeper of the batch `ticket` if it has ended.
    fn go(&mut self, ticket: u64) -> Result<Option<Keeper>, Error> {
        let Some(ring) = &mut self.ring else {
            return Ok(None);
        };
        let more = ring.go(&mut self.unseen);
        let at = self.unseen.iter().position(|one| one.ticket == ticket);
        let ours = at.and_then(|at| self.unseen.swap_remove(at).keeper);
        if !self.unseen.is_empty() || matches!(more, Ok(true)) {
            self.completions.wake();
        }
        more.map(|_| ours)
    }

    /// Do what can be done without waiting, and append the batches that have ended.
    ///
    /// # Errors
    ///
    /// [`Error::Thread`], [`Error::Forked`]; [`Error::System`] when completions cannot be collected any more.
    pub fn turn(&mut self, finished: &mut Vec<Finished>) -> Result<(), Error> {
        self.check()?;
        // Clears the descriptor, so it comes before the ring is looked at.
        self.handed -= self.completions.drain(finished)? as u64;
        finished.append(&mut self.unseen);
        if let Some(ring) = &mut self.ring {
            ring.sweep();
            if ring.go(finished)? {
                self.completions.wake();
            }
        }
        Ok(())
    }

    /// Stop waiting for the batch; its end comes when the kernel has let go of its memory.
    pub fn detach(&mut self, ticket: u64) {
        if self.owner_if_forked().is_some() {
            return;
        }
        if let Some(ring) = &mut self.ring {
            ring.detach(ticket);
            self.completions.wake(); // it may have nothing in flight, and then its end is there now
        }
        if self.handed > 0 {
            self.queue.detach(ticket);
        }
    }

    /// Cancel what is on the ring, and wait for all that is in flight, at most `timeout`.
    ///
    /// Returns what is left then: operations of the ring, which are given up for good with the port, and batches handed over.
    /// All that ended is appended to `finished`.
    pub fn drain(&mut self, timeout: Duration, finished: &mut Vec<Finished>) -> u64 {
        if self.owner_if_forked().is_some() {
            return 0;
        }
        let deadline = Instant::now() + timeout;
        finished.append(&mut self.unseen);
        let ring = &mut self.ring;
        let flying = ring
            .as_mut()
            .map_or(0, |ring| ring.drain(deadline, finished));
        while self.handed > 0 {
            // A signal ends a wait early, and the time is looked at again.
            if Instant::now() >= deadline
                || matches!(self.completions.wait(Some(deadline)), Ok(false))
            {
                break;
            }
            self.handed -= self
                .completions
                .drain(finished)
                .map_or(0, |count| count as u64);
        }
        flying + self.handed
    }

    /// Refuse forked children, and other threads where there is a ring.
    fn check(&self) -> Result<(), Error> {
        if let Some(owner) = self.owner_if_forked() {
            return Err(Error::Forked {
                what: "port of an event loop",
                owner: process::number(owner),
                child: process::id(),
            });
        }
        self.ring.as_ref().map_or(Ok(()), |ring| ring.check())
    }

    /// The epoch of the process that made it, where this is a forked child of that one.
    fn owner_if_forked(&self) -> Option<u64> {
        (self.epoch != process::epoch()).then_some(self.epoch)
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.completions.as_fd()
    }
}
