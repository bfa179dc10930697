//! A ring with what is in flight on it: fills, enters, reaps. It belongs to one thread; its users decide who waits.
//!
//! # Order
//!
//! A batch was checked as a whole before it comes here.
//! [`Driver::pump`] writes entries behind the published tail, publishes it once, enters, and reaps what is there.
//! If the enter fails for good, the entries that the kernel did not take are taken back and exactly their operations fail;
//! what it did take goes on, and the next batch finds a clean ring.
//!
//! # When to wait for how many
//!
//! While more can be issued a turn waits for nothing if there is room, and for a batch's worth of completions if there is none,
//! so that each system call carries a full batch; at the end it waits for all that is left.
//! A ring that also waits for orders does so for [`PATIENCE`] at most.
use std::io;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::io_uring::io_uring_sqe;

use crate::batch::Batch;
use crate::engines::ring::entry;
use crate::engines::ring::registry::Registry;
use crate::engines::ring::table::FileTable;
use crate::error::Error;
use crate::file::FileHolder;
use crate::flight::{Detached, Done, Flight, Keeper};
use crate::quarantine::Quarantine;
use crate::sys::ring::Ring;

/// Names of entries of our own; operations are named by their slots, which are less.
const NAMES_OWN: u64 = 1 << 32;
/// The entry that watches for what is handed over.
pub(crate) const NAME_WATCH: u64 = NAMES_OWN;
const NAME_CANCEL: u64 = u64::MAX;
/// Completions of our own that a ring has room for, beside those of operations.
const COMPLETIONS_OWN: u32 = 8;
/// How often a submit that the kernel has no memory for is tried again, a millisecond apart, while nothing is in flight.
const REFUSALS_MAX: u32 = 1000;
/// How long a full ring that also waits for orders waits for a whole batch, before any completion will do.
/// A disk completes a batch sooner; what never completes, as reads of pipes, must not hold up an order to cancel them.
const PATIENCE: Duration = Duration::from_micros(500);
/// How long a thread sleeps before it looks for signals again: one that came between its last look and its sleep woke nothing.
const UNLOOKED: Duration = Duration::from_secs(1);
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// How a turn ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// At once.
    Not,
    /// When something is worth doing: there is room for a batch, or what is left has ended.
    /// At once if a batch has ended without the kernel.
    Some,
    /// When anything has completed, entries of our own included; at once if a batch has ended without the kernel.
    /// A full ring first waits for a whole batch, for [`PATIENCE`] at most.
    Any,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Go on.
    Went,
    /// A signal came while it waited, or might have come before.
    Interrupted,
}

/// A completion of an entry of our own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) name: u64,
    /// The entry is still there, and completes again.
    pub(crate) more: bool,
}

/// What a ring has done since this was last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// System calls that entered it.
    pub(crate) enters: u64,
    /// Operations that completed.
    pub(crate) operations: u64,
}

impl Counts {
    /// Operations that no ring was entered for.
    pub(crate) fn of(operations: u64) -> Self {
        Self {
            enters: 0,
            operations,
        }
    }
}

pub(crate) struct Driver {
    ring: Ring,
    files: FileTable,
    flight: Flight,
    registry: Option<Arc<Registry>>,
    quarantine: Arc<Quarantine>,
    /// What the registry's table was when this ring took it over.
    registered: u64,
    batch_limit: u32,
    concurrency_limit: u32,
    refusals: u32,
    /// The last patient wait was in vain.
    hasty: bool,
    /// Completions of entries of our own since they were last looked at.
    own: Vec<Own>,
    counts: Counts,
}

impl Driver {
    pub(crate) fn new(
        (batch_limit, concurrency_limit): (u32, u32),
        registry: Option<Arc<Registry>>,
        quarantine: Arc<Quarantine>,
        holder: Arc<dyn FileHolder>,
    ) -> io::Result<Self> {
        let mut ring = Ring::new(batch_limit, concurrency_limit + COMPLETIONS_OWN)?;
        let files = FileTable::new(&mut ring, holder);
        Ok(Self {
            ring,
            files,
            flight: Flight::new(concurrency_limit, batch_limit),
            registry,
            quarantine,
            registered: 0,
            batch_limit,
            concurrency_limit,
            refusals: 0,
            hasty: false,
            own: Vec::new(),
            counts: Counts::default(),
        })
    }

    /// Have an eventfd signalled when completions come.
    pub(crate) fn signal(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        self.ring.register_eventfd(eventfd)
    }

    /// Let go of files that were closed.
    pub(crate) fn sweep(&mut self) {
        self.files.sweep(&mut self.ring);
    }

    /// Take a batch in; it goes out with the next turns.
    pub(crate) fn admit(&mut self, batch: Batch, ticket: u64, keeper: Option<Keeper>) {
        self.sweep();
        let buffer = self.buffer_index(&batch);
        self.flight.admit(batch, buffer, ticket, keeper);
    }

    /// Where the batch's memory is registered with this ring; it stays there, because the batch keeps the memory.
    fn buffer_index(&mut self, batch: &Batch) -> Option<u16> {
        let registry = self.registry.as_ref()?;
        registry.follow(&mut self.ring, &mut self.registered);
        if self.registered == 0 {
            return None;
        }
        registry.buffer_index(
            self.registered,
            batch.memory.address(),
            batch.memory_bytes(),
        )
    }

    /// As [`Flight::detach`]; the memory is in quarantine until the batch is taken as done.
    pub(crate) fn detach(&mut self, ticket: u64, keeper: Option<Keeper>) -> u32 {
        let Some(Detached { left, bytes }) = self.flight.detach(ticket, keeper) else {
            return 0;
        };
        self.quarantine.enter(bytes);
        left
    }

    /// A batch that is done, oldest first.
    pub(crate) fn take_done(&mut self) -> Option<Done> {
        let done = self.flight.take_done()?;
        if done.detached {
            self.quarantine.leave(done.bytes);
        }
        Some(done)
    }

    /// Whether a turn would submit something.
    pub(crate) fn can_issue(&self) -> bool {
        self.flight.can_issue()
    }

    /// Whether the kernel did not take all that the last turn submitted; the next turn tries again, and no completion calls for it.
    pub(crate) fn is_put_off(&self) -> bool {
        self.ring.prepared() > 0
    }

    /// Whether no batch is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.flight.is_empty()
    }

    /// Operations that completed since the counts were last taken.
    pub(crate) fn completed(&self) -> u64 {
        self.counts.operations
    }

    /// What was done since they were last taken, for statistics.
    pub(crate) fn take_counts(&mut self) -> Counts {
        mem::take(&mut self.counts)
    }

    /// Operations that the kernel has.
    pub(crate) fn flying(&self) -> u32 {
        self.flight.flying()
    }

    /// Submit an entry of our own with the next turn; `false` if there is no room before that.
    pub(crate) fn prepare_own(&mut self, entry: io_uring_sqe) -> bool {
        let has_room = self.ring.room() > 0;
        if has_room {
            self.ring.prepare(entry);
        }
        has_room
    }

    /// Completions of entries of our own since the last look. One that the kernel did not take is over as well.
    pub(crate) fn take_own(&mut self) -> impl Iterator<Item = Own> + '_ {
        self.own.drain(..)
    }

    /// One turn: submit what there is room for, wait as `wait` says, and take in what has completed.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when completions cannot be waited for any more; what is in flight is then the kernel's for good.
    pub(crate) fn pump(&mut self, wait: Wait) -> Result<Turn, Error> {
        self.fill();
        let patient = wait == Wait::Any && self.is_full() && !self.hasty && !self.flight.has_done();
        let count = self.wait_count(if patient { Wait::Some } else { wait });
        self.counts.enters += 1;
        let outcome = if patient {
            self.ring.enter_within(count, PATIENCE)
        } else if count > 0 && wait == Wait::Some {
            self.ring.enter_within(count, UNLOOKED)
        } else {
            self.ring.enter(count, true)
        };
        let completed = self.reap();
        self.hasty = patient && completed == 0;
        match outcome {
            Ok(_) | Err(Errno::TIME) if patient => {
                self.refusals = 0;
                Ok(Turn::Went)
            }
            Ok(_) => {
                self.refusals = 0;
                // A signal or the time, after entries were taken: the call reports these, and not the signal.
                let waited = completed >= count;
                Ok(if waited {
                    Turn::Went
                } else {
                    Turn::Interrupted
                })
            }
            Err(Errno::INTR | Errno::TIME) => Ok(Turn::Interrupted),
            Err(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => self.refused(),
            Err(errno) => self.failed(errno),
        }
    }

    /// Write entries for as many operations as a submit may carry.
    fn fill(&mut self) {
        let Self {
            ring,
            files,
            flight,
            ..
        } = self;
        let mut room = ring
            .room()
            .min(self.batch_limit.saturating_sub(ring.prepared()));
        while room > 0 {
            let Some(issue) = flight.next() else { return };
            let target = files.target(ring, issue.file);
            ring.prepare(entry::transfer(&issue, target));
            room -= 1;
        }
    }

    /// Whether nothing can be issued before something completes.
    fn is_full(&self) -> bool {
        self.flight.flying() >= self.concurrency_limit
    }

    fn wait_count(&self, wait: Wait) -> u32 {
        let flying = self.flight.flying();
        let awaited = self.flight.awaited().max(1).min(flying);
        match wait {
            Wait::Any => u32::from(!self.flight.has_done()),
            // It ended without the kernel, which may have nothing but what was detached.
            Wait::Some if self.flight.has_done() => 0,
            // A full ring waits for room for a batch; one that has issued everything waits for the rest.
            Wait::Some if self.is_full() => self.batch_limit.min(awaited),
            Wait::Some if self.ring.prepared() < self.batch_limit => awaited,
            Wait::Some | Wait::Not => 0,
        }
    }

    /// Take in what has completed; returns how many entries that were.
    fn reap(&mut self) -> u32 {
        let Self {
            ring, flight, own, ..
        } = self;
        let mut operations = 0;
        let completed = ring.reap(|name, result, more| {
            if name >= NAMES_OWN {
                own.push(Own { name, more });
                return;
            }
            operations += 1;
            flight.complete(u32::try_from(name).expect("less than 2^32"), result);
        });
        self.counts.operations += operations;
        completed
    }

    /// The kernel has no memory, or too many completions wait to be taken: try again when some have ended.
    fn refused(&mut self) -> Result<Turn, Error> {
        self.refusals += 1;
        let submitted = self.flight.flying() - self.ring.prepared().min(self.flight.flying());
        if submitted == 0 {
            if self.refusals > REFUSALS_MAX {
                return self.failed(Errno::AGAIN);
            }
            // The wait is for nothing but time: nothing is in flight.
            _ = self.ring.wait(1, REFUSED_PAUSE);
        }
        Ok(Turn::Went)
    }

    /// The kernel refuses for good: fail exactly what it did not take.
    fn failed(&mut self, errno: Errno) -> Result<Turn, Error> {
        let mut untaken = 0;
        let Self { flight, own, .. } = self;
        self.ring.rewind(|name| {
            if name < NAMES_OWN {
                untaken += 1;
                flight.retract(u32::try_from(name).expect("less than 2^32"));
            } else {
                own.push(Own { name, more: false });
            }
        });
        flight.fail_retracted(errno);
        self.refusals = 0;
        if untaken == 0 {
            // No operation was to be submitted: the wait itself fails, or an entry of our own without which no wait works.
            return Err(Error::system("io_uring_enter", errno));
        }
        Ok(Turn::Went)
    }

    /// Detach every batch and wait until the kernel has let go of all memory, or `deadline` has passed.
    ///
    /// Returns the operations that are still the kernel's.
    pub(crate) fn drain(&mut self, deadline: Instant) -> u32 {
        let tickets: Vec<_> = self.flight.tickets().collect();
        for ticket in tickets {
            self.detach(ticket, None);
        }
        if self.flight.flying() > 0 && self.ring.room() > 0 {
            self.ring.prepare(entry::cancel_all(NAME_CANCEL));
            _ = self.ring.enter(0, true);
            self.reap();
        }
        while self.flight.flying() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.ring.wait(1, left);
            self.reap();
            if !matches!(waited, Ok(_) | Err(Errno::INTR | Errno::TIME)) {
                break;
            }
        }
        self.flight.flying()
    }

    /// As [`Flight::fail_all`], when nothing can be waited for any more.
    pub(crate) fn fail_all(&mut self, errno: Errno) -> u32 {
        self.flight.fail_all(errno)
    }

    /// Forget in a forked child what is in flight, which is the parent's.
    pub(crate) fn abandon(self) {
        mem::forget(self.flight);
    }

    /// Give up the ring with operations in flight: their memory is leaked, because the kernel may still write it.
    ///
    /// It is no longer in quarantine, which only holds what will be let go.
    pub(crate) fn leak(mut self) {
        while self.take_done().is_some() {}
        for bytes in self.flight.detached() {
            self.quarantine.leave(bytes);
        }
        mem::forget(self.flight);
    }
}
