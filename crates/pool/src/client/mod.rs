//! The client's side of the pool: the machine, the link to the keeper, and the wake-ups of callers.
//!
//! There is no thread here. A caller that waits also *drives*: it polls one epoll set (the keeper's socket and the sockets
//! of settling services) beside its own queue, and wakes the callers concerned by what it finds. A blocking caller
//! polls; an asyncio loop watches the set's descriptor while it has waiters. While no caller waits none drives, and
//! nothing is lost by it: an idle service's death is seen by the poll at the next borrow, a reset's answer is read
//! by the next holder, and the keeper holds the deadlines.
//!
//! [`Client`] is the lock: each of its methods takes it once and does its work in `state`, whose parts are the machine,
//! the entries of services (`entry`), the link to the keeper (`link`), the epoll set (`ready_set`), the callers that
//! wait (`waiters`), the journal and the times that starts take (`start_times`).
//!
//! Lock order: `state` before the epoll set's; under them are only non-blocking system calls, and nothing
//! is started.

mod entry;
mod journal;
mod link;
mod ready_set;
mod start_times;
mod state;
mod waiters;

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_base::signals;
use forebay_base::{Queue, process};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::death::{Cause, Death};
use crate::error::{Error, Result};
use crate::limit::{CLOSE_MS_MIN, SERVICES_MAX};
use crate::machine::{CallerGroup, Key, Ticket};
use crate::wire::{Deadlines, Handle, KeeperRequest, Launch};
pub use entry::{HandedOut, Written};
pub use journal::Note;
pub use link::Handover;
use ready_set::ReadySet;
use state::ClientState;

/// How a caller's question was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A service is lent. Where it is not settled, its answer is read before it is used.
    Lent {
        /// The lease.
        handle: Handle,
        /// Nothing is left to read.
        settled: bool,
        /// It has been idle for so long that it should be asked whether it still answers.
        quiet: bool,
    },
    /// A further lease of a service that the caller's group shares.
    Joined {
        /// The lease that it shares.
        handle: Handle,
    },
    /// The caller starts one: `fork` or `launch`, then `lend`.
    Start {
        /// The lease to be.
        handle: Handle,
    },
    /// The caller waits for a wake-up of its ticket.
    Wait {
        /// Its ticket.
        ticket: Ticket,
        /// After so many milliseconds it pays to start a service rather than to wait for a reset; 0: no use.
        grace_ms: u64,
    },
}

/// An item of a wake-up queue: a ticket, or that something happened (`WATCH`).
pub type Wake = u64;
/// For callers that watch for a death or an output.
pub const WATCH: Wake = 0;

/// Counters and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Services that live.
    pub live: u32,
    /// Idle ones.
    pub idle: usize,
    /// Ones whose answer to a start or a reset is still to come.
    pub settling: usize,
    /// Callers that wait.
    pub waiters: usize,
    /// Services started since the pool was made.
    pub starts: u64,
    /// Leases since then.
    pub leases: u64,
    /// Services that a caller holds.
    pub leased: usize,
    /// Services that a caller starts.
    pub starting: usize,
    /// Callers that had to wait, since the pool was made.
    pub waits: u64,
    /// Resets since then.
    pub resets: u64,
}

/// A service, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceInfo {
    /// Its slot, and its latest lease.
    pub handle: Handle,
    /// What it is interchangeable with.
    pub key: Key,
    /// Its process; 0 until the keeper reports it.
    pub pid: i32,
    /// A caller holds it or starts it.
    pub lent: bool,
    /// For how long the lease that is out has been so, in milliseconds.
    pub held_ms: u64,
}

/// The limits that a pool keeps.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Services at once.
    pub max_size: u32,
    /// Leases at once.
    pub max_running: u32,
    /// Leases that one service serves; 0: any number.
    pub max_uses: u32,
    /// How long a service lives, in milliseconds, a tenth more or less; 0: for ever.
    pub lifetime_ms: u64,
    /// After so long idle a service is asked whether it answers, before it is lent; 0: never.
    pub ping_after_ms: u64,
}

/// A pool's client side.
#[derive(Debug)]
pub struct Client {
    owner: u64,
    ready: Arc<ReadySet>,
    state: Mutex<ClientState>,
}

/// The life of a pool.
impl Client {
    /// A pool; nothing is started.
    pub fn new(policy: Policy) -> Result<Self> {
        let max_size = policy.max_size;
        if max_size == 0 || max_size > SERVICES_MAX / 2 {
            // Half of the words: the other half is for services that are dying while their successors start.
            let maximum = u64::from(SERVICES_MAX / 2);
            let next = "give a number between 1 and the limit";
            return Err(Error::Limit {
                limit: "max_size",
                maximum,
                value: u64::from(max_size),
                next,
            });
        }
        let ready = Arc::new(ReadySet::new()?);
        let state = ClientState::new(policy, Arc::clone(&ready))?;
        Ok(Self {
            owner: process::epoch(),
            ready,
            state: Mutex::new(state),
        })
    }

    /// What a new keeper process is to be started with; None where one is running.
    pub fn handover(&self) -> Result<Option<Handover>> {
        self.enter()?.handover()
    }

    /// A keeper was started with the last handover. Returns its number: each keeper is sent all templates anew.
    pub fn attach(&self, keeper: OwnedFd) -> Result<u64> {
        self.enter()?.attach(keeper)
    }

    /// Number of the running keeper; 0 without one.
    pub fn epoch(&self) -> Result<u64> {
        Ok(self.enter()?.epoch())
    }

    /// Describe a template to the keeper, which keeps so many processes forked ahead.
    pub fn describe(
        &self,
        template: u32,
        launch: Launch,
        setup: Vec<u8>,
        spares: u32,
    ) -> Result<()> {
        self.enter()?.describe(template, launch, setup, spares)
    }

    /// End every service and the keeper, and wait for it; waiters are woken and find the pool closed. Idempotent.
    ///
    /// A keeper that needs longer than `limit_ms`, or `CLOSE_MS_MIN` where that is more, is killed, and so is the
    /// group of every service that it owned.
    pub fn close(&self, limit_ms: u64) -> Result<()> {
        if process::epoch() != self.owner {
            return Ok(()); // before the lock, which a thread of the parent may have held when it forked
        }
        let keeper = {
            let mut state = self.lock();
            if state.is_closed() {
                return Ok(());
            }
            state.close()
        };
        let ended = keeper.is_none_or(|keeper| link::join(&keeper, limit_ms.max(CLOSE_MS_MIN)));
        let entries = self.lock().take_entries();
        if !ended {
            entries.kill_living(); // killed, it could not kill the groups itself
        }
        Ok(())
    }

    /// In a forked child: let go of what belongs to the parent, as far as it can be done without waiting.
    pub fn forked(&self) {
        if let Ok(mut state) = self.state.try_lock() {
            state.forked();
        }
    }

    fn enter(&self) -> Result<MutexGuard<'_, ClientState>> {
        let here = process::epoch();
        if here != self.owner {
            return Err(Error::Forked {
                owner: process::number(self.owner),
                here: process::number(here),
            });
        }
        let state = self.lock();
        if state.is_closed() {
            Err(Error::Closed)
        } else {
            Ok(state)
        }
    }

    fn lock(&self) -> MutexGuard<'_, ClientState> {
        // No foreign code runs under the lock, so a panic there is a fault of ours; the state is used as it is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Driving, and looking at the pool.
impl Client {
    /// A descriptor of the caller's own that is readable when `drive` has something to do. It stays valid when the
    /// pool is closed, so that a loop can still stop watching it.
    pub fn watch(&self) -> Result<OwnedFd> {
        let ready = self.ready.descriptor()?;
        ready.try_clone().map_err(|source| Error::System {
            what: "dup of the epoll set".into(),
            source,
        })
    }

    /// Handle whatever has happened; never waits.
    pub fn drive(&self) -> Result<()> {
        self.enter()?.drive()
    }

    /// Wait until `queue` has an item or there is something to drive, at most so long.
    ///
    /// # Errors
    /// `Interrupted` where a signal arrived; the caller runs its handlers and waits again.
    pub fn wait(&self, queue: &Queue<Wake>, timeout: Option<Duration>) -> Result<()> {
        let ready = self.ready.descriptor()?;
        let mut set = [
            PollFd::new(&*ready, PollFlags::IN),
            PollFd::new(queue, PollFlags::IN),
        ];
        match signals::poll(&mut set, timeout) {
            Ok(_) => self.drive(),
            Err(Errno::INTR) => Err(Error::Interrupted),
            Err(errno) => Err(Error::system("poll")(errno)),
        }
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Result<Stats> {
        self.enter()?.stats()
    }

    /// Deaths so far by cause.
    pub fn deaths(&self) -> Result<Vec<(&'static str, u64)>> {
        Ok(self.enter()?.deaths())
    }

    /// Processes and leases, for messages.
    pub fn services(&self) -> Result<Vec<ServiceInfo>> {
        Ok(self.enter()?.services())
    }

    /// How many services have more private memory than the pool keeps, and go when they come back.
    pub fn heavy(&self) -> Result<usize> {
        self.enter()?.heavy()
    }

    /// Last leases of services that ended while they were idle, each returned once: what was kept
    /// for them can go.
    pub fn dead_idle(&self) -> Result<Vec<Handle>> {
        Ok(self.enter()?.take_dead_idle())
    }

    /// Keep notes from now on, or no longer.
    pub fn keep_notes(&self, wanted: bool) -> Result<()> {
        self.enter()?.keep_notes(wanted);
        Ok(())
    }

    /// Take the notes. Where there are none, `WATCH` is pushed to `queue` when there may be.
    pub fn take_notes(&self, queue: Option<&Arc<Queue<Wake>>>) -> Result<Vec<Note>> {
        self.enter()?.take_notes(queue)
    }
}

/// Getting a service.
impl Client {
    /// An idle service of a key that is settled, where there is one: nothing to wait for.
    /// `group`: the callers that may share it.
    pub fn take(&self, key: Key, group: CallerGroup) -> Result<Option<Handle>> {
        Ok(self.enter()?.take(key, group))
    }

    /// A further lease of a service that a group shares, where one has room and nobody waits.
    pub fn join(&self, key: Key, group: CallerGroup) -> Result<Option<Handle>> {
        Ok(self.enter()?.join(key, group))
    }

    /// Ask for a service of a key, or for a further lease of one that the caller's group shares.
    pub fn ask(&self, key: Key, group: CallerGroup) -> Result<Answer> {
        self.enter()?.ask(key, group)
    }

    /// Set the queue that a waiting ticket is pushed to; it is pushed at once if it has been granted already.
    pub fn await_on(&self, ticket: Ticket, queue: &Arc<Queue<Wake>>) -> Result<()> {
        self.enter()?.await_on(ticket, queue);
        Ok(())
    }

    /// What a ticket got, or None where it still waits.
    pub fn collect(&self, ticket: Ticket) -> Result<Option<Answer>> {
        Ok(self.enter()?.collect(ticket))
    }

    /// A waiting ticket would rather have a service started than wait for a reset.
    pub fn hurry(&self, ticket: Ticket) -> Result<()> {
        self.enter()?.hurry(ticket);
        Ok(())
    }

    /// A ticket gives up; what it was granted meanwhile goes to the next.
    pub fn leave(&self, ticket: Ticket) -> Result<()> {
        self.enter()?.leave(ticket);
        Ok(())
    }

    /// One service of a key may have so many leases at once.
    pub fn share(&self, key: Key, leases: u32) -> Result<()> {
        self.enter()?.share(key, leases);
        Ok(())
    }

    /// Keep so many idle services of a key.
    pub fn keep(&self, key: Key, min_idle: u32) -> Result<()> {
        self.enter()?.keep(key, min_idle)
    }

    /// Room for one more idle service of a key, which the caller starts and leaves to settle.
    pub fn refill(&self, key: Key) -> Result<Option<Handle>> {
        self.enter()?.refill(key)
    }

    /// The wanted services of those that are lent take no further leases, and end with their last one.
    pub fn close_lent(&self, wanted: impl Fn(u32) -> bool) -> Result<()> {
        self.enter()?.close_lent(wanted);
        Ok(())
    }

    /// End the wanted services of those that are not lent, settled or not; their slots.
    pub fn end_unlent(&self, wanted: impl Fn(u32) -> bool) -> Result<Vec<u32>> {
        Ok(self.enter()?.end_unlent(wanted))
    }

    /// Start a service from a template. Returns the caller's end of its socket.
    pub fn fork(&self, handle: Handle, template: u32, deadlines: Deadlines) -> Result<OwnedFd> {
        let request = |deadlines| KeeperRequest::Fork {
            handle,
            template,
            deadlines,
        };
        self.enter()?.start(handle, deadlines, None, request)
    }

    /// Start a copy of a lent service, for the same holder. Returns its lease to be, and the caller's end of its
    /// socket. The holder itself sends the service the call to fork.
    pub fn branch(
        &self,
        parent: Handle,
        key: Key,
        deadlines: Deadlines,
    ) -> Result<(Handle, OwnedFd)> {
        self.enter()?.branch(parent, key, deadlines)
    }

    /// Start a program as a service, with a socket of its own where one is given.
    /// Returns the caller's end of the service's socket.
    pub fn launch(
        &self,
        handle: Handle,
        launch: Launch,
        deadlines: Deadlines,
        own: Option<BorrowedFd<'_>>,
    ) -> Result<OwnedFd> {
        let request = |deadlines| KeeperRequest::Start {
            handle,
            launch,
            deadlines,
        };
        self.enter()?.start(handle, deadlines, own, request)
    }
}

/// A lease from its beginning to its end, and what its holder may ask.
impl Client {
    /// A service that the caller started is ready: it is lent. Its process id, or None where the keeper has not
    /// reported it yet, or has ended it.
    pub fn lend(&self, handle: Handle, key: Key) -> Result<Option<i32>> {
        self.enter()?.lend(handle, key)
    }

    /// A lent service has settled, and its holder lets others of its group join it, where its key is shared.
    pub fn open(&self, handle: Handle) -> Result<()> {
        self.enter()?.open(handle)
    }

    /// Give a service back: at once, or, with a deadline, once it has answered the reset that the caller sent.
    pub fn release(&self, handle: Handle, reset_ms: Option<u64>) -> Result<()> {
        self.enter()?.release(handle, reset_ms)
    }

    /// One of several leases of a service ends; false where it is the last, which is to be released or discarded.
    /// With `closed` the service takes no further leases, and ends with its last one.
    pub fn release_shared(&self, handle: Handle, closed: bool) -> Result<bool> {
        self.enter()?.release_shared(handle, closed)
    }

    /// Leave a start to the next caller; the service settles by itself.
    ///
    /// `answered`: the caller has read that it is ready, so that nothing will come to its socket.
    pub fn abandon(&self, handle: Handle, answered: bool) -> Result<()> {
        self.enter()?.abandon(handle, answered)
    }

    /// End a lent service; its successor may start at once.
    pub fn discard(&self, handle: Handle, cause: Cause) -> Result<()> {
        self.enter()?.discard(handle, cause)
    }

    /// Have a lent service ended while its holder keeps the lease: its calls end with its death.
    pub fn end(&self, handle: Handle, cause: Cause) -> Result<()> {
        self.enter()?.end(handle, cause)
    }

    /// How a lent service ended, if it has; otherwise `WATCH` is pushed to `queue` when that may have changed.
    pub fn death(&self, handle: Handle, queue: Option<&Arc<Queue<Wake>>>) -> Result<Option<Death>> {
        self.enter()?.death(handle, queue)
    }

    /// The process of a lent service, and its pidfd for a caller that waits for an answer from it.
    pub fn process(&self, handle: Handle) -> Result<Option<(i32, RawFd)>> {
        self.enter()?.process(handle)
    }

    /// What another process needs to use a lent service.
    pub fn hand_out(&self, handle: Handle) -> Result<HandedOut> {
        self.enter()?.hand_out(handle)
    }

    /// The directory of a lent service; empty until the keeper has reported it.
    pub fn directory(&self, handle: Handle) -> Result<Vec<u8>> {
        self.enter()?.directory(handle)
    }

    /// Ask the keeper for what a lent service wrote; the answer comes to `output`.
    pub fn ask_output(&self, handle: Handle) -> Result<()> {
        self.enter()?.ask_output(handle)
    }

    /// What a lent service wrote, once the keeper has answered.
    pub fn output(
        &self,
        handle: Handle,
        queue: Option<&Arc<Queue<Wake>>>,
    ) -> Result<Option<Vec<u8>>> {
        self.enter()?.output(handle, queue)
    }

    /// Ask the keeper for what a lent service writes beyond so many bytes; the answer comes to `written`.
    pub fn follow(&self, handle: Handle, beyond: u64) -> Result<()> {
        self.enter()?.follow(handle, beyond)
    }

    /// What a lent service has written, once it is more than so many bytes in all; it stays there for others who
    /// follow the same service. Until then `WATCH` is pushed to `queue` when there may be more.
    pub fn written(
        &self,
        handle: Handle,
        beyond: u64,
        queue: Option<&Arc<Queue<Wake>>>,
    ) -> Result<Option<Written>> {
        self.enter()?.written(handle, beyond, queue)
    }
}
