//! The client's side of the pool: the machine, the link to the keeper, and the wake-ups of callers.
//!
//! There is no thread here. A caller that waits also *drives*: it polls one epoll set (the keeper's socket and the sockets
//! of settling services) beside its own queue, and wakes the callers concerned by what it finds. A blocking caller
//! polls; an asyncio loop watches the set's descriptor while it has waiters. While no caller waits none drives, and
//! nothing is lost by it: an idle service's death is seen by the poll at the next borrow, a reset's answer is read
//! by the next holder, and the keeper holds the deadlines.
//!
//! Lock order: `state` before `ready`; under them are only non-blocking system calls, and nothing
//! is started.

mod ask;
mod drive;
mod entry;
mod hand_out;
mod journal;
mod lease;
mod link;
mod start;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_base::{Queue, process};
use rustix::event::epoll;

use crate::clock::now_ms;
use crate::error::{Error, Result};
use crate::limit::{CLOSE_MS_MIN, SERVICES_MAX};
use crate::machine::{Key, Machine, Ticket};
use crate::wire::Handle;
use crate::word::{Stamp, State as Word};
use drive::notify;
use entry::Entry;
pub use hand_out::HandedOut;
pub use journal::{Note, Transition};
pub use link::Handover;
use link::Link;
pub use watch::Written;

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
    /// The epoll set; gone once the pool is closed.
    ready: Mutex<Option<Arc<OwnedFd>>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    machine: Machine,
    link: Link,
    entries: Vec<Entry>,
    wakers: BTreeMap<Ticket, Arc<Queue<Wake>>>,
    watchers: Vec<Arc<Queue<Wake>>>,
    start_ms: BTreeMap<Key, u64>,
    deaths: BTreeMap<&'static str, u64>,
    /// Services that ended, or were given up, while they were idle.
    dead_idle: Vec<Handle>,
    next_ticket: Ticket,
    closed: bool,
    stats: Stats,
    policy: Policy,
    /// How many idle services of a key stay; sent to each keeper.
    keep: BTreeMap<Key, u32>,
    /// Whether services of some key may have several leases.
    shares: bool,
    /// What happened and was not taken yet, if notes are kept.
    journal: Option<VecDeque<Note>>,
}

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
        let ready =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("epoll_create1"))?;
        let state = State {
            machine: Machine::new(max_size, policy.max_running),
            link: Link::new()?,
            entries: Vec::new(),
            wakers: BTreeMap::new(),
            watchers: Vec::new(),
            start_ms: BTreeMap::new(),
            deaths: BTreeMap::new(),
            dead_idle: Vec::new(),
            next_ticket: WATCH + 1,
            closed: false,
            stats: Stats::default(),
            policy,
            keep: BTreeMap::new(),
            shares: false,
            journal: None,
        };
        Ok(Self {
            owner: process::epoch(),
            ready: Mutex::new(Some(Arc::new(ready))),
            state: Mutex::new(state),
        })
    }

    /// A descriptor of the caller's own that is readable when `drive` has something to do. It stays valid when the
    /// pool is closed, so that a loop can still stop watching it.
    pub fn watch(&self) -> Result<OwnedFd> {
        self.ready()?.try_clone().map_err(|source| Error::System {
            what: "dup of the epoll set".into(),
            source,
        })
    }

    /// The epoll set, which stays open as long as it is used.
    fn ready(&self) -> Result<Arc<OwnedFd>> {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.as_ref().map(Arc::clone).ok_or(Error::Closed)
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Result<Stats> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)?;
        let (live, idle) = (state.machine.live(), state.machine.idle());
        let (settling, waiters) = (state.machine.settling(), state.machine.waiters());
        let in_state = |wanted| {
            let lent = |slot: &u32| state.entries.get(*slot as usize).is_some_and(|e| e.lent);
            let of = |slot: &u32| Stamp::load(&state.link.cell(*slot).word).state == wanted;
            state.machine.occupied().filter(lent).filter(of).count()
        };
        Ok(Stats {
            live,
            idle,
            settling,
            waiters,
            leased: in_state(Word::Leased),
            starting: in_state(Word::Starting),
            ..state.stats
        })
    }

    /// Deaths so far by cause.
    pub fn deaths(&self) -> Result<Vec<(&'static str, u64)>> {
        Ok(self
            .enter()?
            .deaths
            .iter()
            .map(|(&cause, &count)| (cause, count))
            .collect())
    }

    /// Processes and leases, for messages.
    pub fn services(&self) -> Result<Vec<ServiceInfo>> {
        let state = self.enter()?;
        let occupied = state
            .machine
            .occupied()
            .filter_map(|slot| state.entries.get(slot as usize).zip(Some(slot)));
        let now = now_ms();
        let seen = occupied.map(|(entry, slot)| ServiceInfo {
            handle: entry.handle(slot),
            key: state.machine.key_of(slot),
            pid: entry.pid,
            lent: entry.lent,
            held_ms: now.saturating_sub(entry.leased_ms),
        });
        Ok(seen.collect())
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
            if state.closed {
                return Ok(());
            }
            state.closed = true;
            *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = None;
            for (ticket, queue) in std::mem::take(&mut state.wakers) {
                notify(&queue, ticket);
            }
            state.notify_watchers();
            state.link.detach()
        };
        let ended = keeper.is_none_or(|keeper| link::join(&keeper, limit_ms.max(CLOSE_MS_MIN)));
        let entries = std::mem::take(&mut self.lock().entries);
        if !ended {
            // Killed, it could not kill the groups itself.
            for entry in entries.iter().filter(|entry| entry.death.is_none()) {
                entry.kill();
            }
        }
        Ok(())
    }

    /// In a forked child: let go of what belongs to the parent, as far as it can be done without waiting.
    pub fn forked(&self) {
        if let Ok(mut state) = self.state.try_lock() {
            state.closed = true;
            state.link.forget();
            state.entries.clear();
        }
    }

    fn enter(&self) -> Result<MutexGuard<'_, State>> {
        let here = process::epoch();
        if here != self.owner {
            return Err(Error::Forked {
                owner: process::number(self.owner),
                here: process::number(here),
            });
        }
        let state = self.lock();
        if state.closed {
            Err(Error::Closed)
        } else {
            Ok(state)
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No foreign code runs under the lock, so a panic there is a fault of ours; the state is used as it is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
