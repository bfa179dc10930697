//! The client's side of the pool: the machine, the link to the keeper, and who is woken when.
//!
//! There is no thread here. Whoever waits also *drives*: it polls one epoll set (the keeper's socket and the sockets
//! of settling services) beside its own queue, and hands on what it finds to everybody concerned. A blocking caller
//! polls; an asyncio loop watches the set's descriptor while it has waiters. When nobody waits nobody drives, and
//! nothing is lost by it: an idle service's death is seen by the poll at the next borrow, a reset's answer is read
//! by the next holder, and the keeper holds the deadlines.
//!
//! Lock order: `state` is the only lock; under it are only non-blocking system calls, and nothing is started.

mod entry;
mod link;

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_wake::Queue;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::io::Errno;

use crate::clock::{now_ms, wait_of};
use crate::death::{Cause, Death};
use crate::error::{Error, Result};
use crate::limit::SERVICES_MAX;
use crate::machine::{Action, Grant, Key, Machine, Ticket};
use crate::wire::{Deadlines, Event, Handle, Launch, Request};
use crate::word::State as Word;
use entry::Entry;
pub use link::Handover;
use link::Link;

/// How a caller's question was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A service is lent. Where it is not settled, its answer is read before it is used.
    Lent {
        /// The lease.
        handle: Handle,
        /// Nothing is left to read.
        settled: bool,
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

/// What is told to a queue: a ticket, or that something happened (`WATCH`).
pub type Wake = u64;
/// Told to those who watch for a death or an output.
pub const WATCH: Wake = 0;

/// The epoll data of the keeper's socket; slots use their own number.
const CONTROL: u64 = u64::MAX;

/// Counters and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Services that live.
    pub live: u32,
    /// Idle ones.
    pub idle: usize,
    /// Ones that owe an answer.
    pub settling: usize,
    /// Callers that wait.
    pub waiters: usize,
    /// Services started since the pool was made.
    pub starts: u64,
    /// Leases since then.
    pub leases: u64,
}

/// A pool's client side.
#[derive(Debug)]
pub struct Client {
    owner: u32,
    ready: OwnedFd,
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
    /// Services that ended, or were given up, while nobody held them.
    forsaken: Vec<Handle>,
    next_ticket: Ticket,
    closed: bool,
    stats: Stats,
}

impl Client {
    /// A pool of at most `max_size` services; nothing is started.
    pub fn new(max_size: u32) -> Result<Self> {
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
            machine: Machine::new(max_size),
            link: Link::new()?,
            entries: Vec::new(),
            wakers: BTreeMap::new(),
            watchers: Vec::new(),
            start_ms: BTreeMap::new(),
            deaths: BTreeMap::new(),
            forsaken: Vec::new(),
            next_ticket: WATCH + 1,
            closed: false,
            stats: Stats::default(),
        };
        Ok(Self {
            owner: std::process::id(),
            ready,
            state: Mutex::new(state),
        })
    }

    /// The descriptor that is readable when `drive` has something to do.
    pub fn fileno(&self) -> RawFd {
        self.ready.as_raw_fd()
    }

    /// What a new keeper process is to be started with; None where one is running.
    pub fn handover(&self) -> Result<Option<Handover>> {
        let mut state = self.enter()?;
        state.link.handover()
    }

    /// A keeper was started with the last handover. Returns its number: descriptions of templates are told anew.
    pub fn attach(&self, keeper: OwnedFd) -> Result<u64> {
        let mut state = self.enter()?;
        let epoch = state.link.attach(keeper);
        if let Some(control) = state.link.control() {
            let data = epoll::EventData::new_u64(CONTROL);
            epoll::add(&self.ready, control, data, epoll::EventFlags::IN)
                .map_err(Error::system("epoll_ctl"))?;
        }
        Ok(epoch)
    }

    /// Number of the keeper that is running; 0 where none is.
    pub fn epoch(&self) -> Result<u64> {
        Ok(self.enter()?.link.epoch())
    }

    /// Describe a template to the keeper.
    pub fn describe(&self, template: u32, launch: Launch, setup: Vec<u8>) -> Result<()> {
        self.enter()?.link.send(
            &Request::Template {
                template,
                launch,
                setup,
            },
            &[],
        )
    }

    /// An idle service of a key that owes nothing, where there is one: nothing to wait for.
    pub fn take(&self, key: Key) -> Result<Option<Handle>> {
        let mut state = self.enter()?;
        while let Some(slot) = state.machine.take(key) {
            if let Some(handle) = state.claim(slot, true) {
                return Ok(Some(handle));
            }
            self.drop_service(&mut state, slot, Cause::Discarded);
        }
        Ok(None)
    }

    /// Ask for a service of a key.
    pub fn ask(&self, key: Key) -> Result<Answer> {
        let mut state = self.enter()?;
        if !state.machine.has_idle(key) {
            self.drive_with(&mut state)?;
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let mut actions = Vec::new();
        let mut grant = state.machine.ask(ticket, key, &mut actions);
        self.act(&mut state, &mut actions);
        loop {
            match grant {
                None => {
                    // Where no start has ended yet, what settles was started earlier than anything that
                    // could be started now: no grace ends the wait for it.
                    let known = state.start_ms.get(&key).map_or(0, |&known| known.max(1));
                    let settling = state.machine.settling_of(key) > 0;
                    return Ok(Answer::Wait {
                        ticket,
                        grace_ms: if settling { known } else { 0 },
                    });
                }
                Some(Grant::Start { slot }) => return Ok(state.begin(slot, key)),
                Some(Grant::Take { slot, settled }) => {
                    if let Some(handle) = state.claim(slot, settled) {
                        self.unwatch(&state, slot);
                        return Ok(Answer::Lent { handle, settled });
                    }
                    self.drop_service(&mut state, slot, Cause::Discarded);
                    grant = state.machine.ask(ticket, key, &mut actions);
                    self.act(&mut state, &mut actions);
                }
            }
        }
    }

    /// Say where a waiting ticket is to be told; told at once where it has been granted already.
    pub fn await_on(&self, ticket: Ticket, queue: &Arc<Queue<Wake>>) -> Result<()> {
        let mut state = self.enter()?;
        if state.machine.granted(ticket).is_some() {
            tell(queue, ticket);
        } else {
            state.wakers.insert(ticket, Arc::clone(queue));
        }
        Ok(())
    }

    /// What a ticket got, or None where it still waits.
    pub fn collect(&self, ticket: Ticket, key: Key) -> Result<Option<Answer>> {
        let mut state = self.enter()?;
        while let Some(grant) = state.machine.granted(ticket) {
            match grant {
                Grant::Start { slot } => {
                    state.machine.collect(ticket);
                    return Ok(Some(state.begin(slot, key)));
                }
                Grant::Take { slot, settled } => {
                    if let Some(handle) = state.claim(slot, settled) {
                        state.machine.collect(ticket);
                        self.unwatch(&state, slot);
                        return Ok(Some(Answer::Lent { handle, settled }));
                    }
                    // The ticket goes back to the head of the queue, and may be granted again at once.
                    self.drop_service(&mut state, slot, Cause::Discarded);
                }
            }
        }
        Ok(None)
    }

    /// A waiting ticket would rather have a service started than wait for a reset.
    pub fn hurry(&self, ticket: Ticket) -> Result<()> {
        let mut state = self.enter()?;
        let mut actions = Vec::new();
        state.machine.hurry(ticket, &mut actions);
        self.act(&mut state, &mut actions);
        Ok(())
    }

    /// A ticket gives up; what it was granted meanwhile goes to the next.
    pub fn leave(&self, ticket: Ticket) -> Result<()> {
        let mut state = self.enter()?;
        state.wakers.remove(&ticket);
        let mut actions = Vec::new();
        state.machine.leave(ticket, &mut actions);
        self.act(&mut state, &mut actions);
        Ok(())
    }

    /// Start a service from a template. `theirs` goes to it; `ours` is a duplicate of the caller's end.
    pub fn fork(
        &self,
        handle: Handle,
        template: u32,
        deadlines: Deadlines,
        ours: OwnedFd,
        theirs: BorrowedFd<'_>,
    ) -> Result<()> {
        let mut state = self.enter()?;
        state.expect_keeper_of(handle)?;
        state.link.send(
            &Request::Fork {
                handle,
                template,
                deadlines,
            },
            &[theirs],
        )?;
        state.entry_of(handle.slot).socket = Some(ours);
        Ok(())
    }

    /// Start a program as a service.
    pub fn launch(
        &self,
        handle: Handle,
        launch: Launch,
        deadlines: Deadlines,
        ours: OwnedFd,
        theirs: BorrowedFd<'_>,
    ) -> Result<()> {
        let mut state = self.enter()?;
        state.expect_keeper_of(handle)?;
        state.link.send(
            &Request::Start {
                handle,
                launch,
                deadlines,
            },
            &[theirs],
        )?;
        state.entry_of(handle.slot).socket = Some(ours);
        Ok(())
    }

    /// A service that the caller started is ready: it is lent. Its process id, or None where the keeper has not
    /// told it yet, or ended it.
    pub fn lend(&self, handle: Handle, key: Key) -> Result<Option<i32>> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)?;
        state.lend(handle, key)
    }

    /// The process of a lent service, and its pidfd for whoever waits for an answer from it.
    pub fn process(&self, handle: Handle) -> Result<Option<(i32, RawFd)>> {
        let mut state = self.enter()?;
        Ok(state.entry(handle)?.process())
    }

    /// Give a service back: at once, or, with a deadline, once it has answered the reset that the caller sent.
    pub fn release(&self, handle: Handle, reset_ms: Option<u64>) -> Result<()> {
        let mut state = self.enter()?;
        let settled = reset_ms.is_none();
        state.entry(handle)?; // stale handles end here
        state.entry_of(handle.slot).lent = false;
        let cell = state.link.cell(handle.slot);
        cell.since_ms
            .store(now_ms(), std::sync::atomic::Ordering::Release);
        let to = if settled { Word::Idle } else { Word::Resetting };
        if state.entry_of(handle.slot).death.is_some() || !state.shift(handle, Word::Leased, to) {
            self.drop_service(&mut state, handle.slot, Cause::Discarded);
            return Ok(());
        }
        if let Some(deadline_ms) = reset_ms {
            state.link.send(
                &Request::Reset {
                    handle,
                    deadline_ms,
                },
                &[],
            )?;
            self.watch_socket(&state, handle.slot)?;
        }
        let mut actions = Vec::new();
        state.machine.release(handle.slot, settled, &mut actions);
        self.act(&mut state, &mut actions);
        Ok(())
    }

    /// Leave a start to whoever comes next; the service settles by itself.
    ///
    /// `answered`: the caller has read that it is ready, so that nothing will come to its socket any more.
    pub fn abandon(&self, handle: Handle, answered: bool) -> Result<()> {
        let mut state = self.enter()?;
        state.entry(handle)?;
        state.entry_of(handle.slot).lent = false;
        if state.entry_of(handle.slot).death.is_some() {
            self.drop_service(&mut state, handle.slot, Cause::Discarded);
            return Ok(());
        }
        let mut actions = Vec::new();
        state.machine.release(handle.slot, false, &mut actions);
        if answered {
            state.machine.readable(handle.slot, &mut actions);
        } else {
            self.watch_socket(&state, handle.slot)?;
        }
        self.act(&mut state, &mut actions);
        Ok(())
    }

    /// End a lent service; its successor may start at once.
    pub fn discard(&self, handle: Handle, cause: Cause) -> Result<()> {
        let mut state = self.enter()?;
        state.entry(handle)?;
        state.entry_of(handle.slot).lent = false;
        self.drop_service(&mut state, handle.slot, cause);
        Ok(())
    }

    /// How a lent service ended, where it has. `queue` is told `WATCH` when there may be news.
    pub fn death(&self, handle: Handle, queue: Option<&Arc<Queue<Wake>>>) -> Result<Option<Death>> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)?;
        let death = state.entry(handle)?.death.clone();
        if death.is_none() {
            state.watchers.extend(queue.cloned());
        }
        Ok(death)
    }

    /// Ask the keeper for what a lent service wrote; the answer comes to `output`.
    pub fn ask_output(&self, handle: Handle) -> Result<()> {
        let mut state = self.enter()?;
        state.entry(handle)?.output = None;
        state.link.send(&Request::Output { handle }, &[])
    }

    /// What a lent service wrote, once the keeper has answered.
    pub fn output(
        &self,
        handle: Handle,
        queue: Option<&Arc<Queue<Wake>>>,
    ) -> Result<Option<Vec<u8>>> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)?;
        let output = state.entry(handle)?.output.take();
        if output.is_none() {
            state.watchers.extend(queue.cloned());
        }
        Ok(output)
    }

    /// Last leases of services that ended while nobody held them, each told once: what was kept for them can go.
    pub fn forsaken(&self) -> Result<Vec<Handle>> {
        Ok(std::mem::take(&mut self.enter()?.forsaken))
    }

    /// Handle whatever has happened; never waits.
    pub fn drive(&self) -> Result<()> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)
    }

    /// Wait until `queue` is told something or there is something to drive, at most so many milliseconds.
    ///
    /// # Errors
    /// `Interrupted` where a signal arrived; the caller runs its handlers and waits again.
    pub fn wait(&self, queue: &Queue<Wake>, limit_ms: Option<u64>) -> Result<()> {
        let limit = limit_ms.map(wait_of);
        let mut set = [
            PollFd::new(&self.ready, PollFlags::IN),
            PollFd::new(queue, PollFlags::IN),
        ];
        match poll(&mut set, limit.as_ref()) {
            Ok(_) => self.drive(),
            Err(Errno::INTR) => Err(Error::Interrupted),
            Err(errno) => Err(Error::system("poll")(errno)),
        }
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Result<Stats> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)?;
        let (live, idle) = (state.machine.live(), state.machine.idle());
        let (settling, waiters) = (state.machine.settling(), state.machine.waiters());
        Ok(Stats {
            live,
            idle,
            settling,
            waiters,
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

    /// Processes and leases, for messages: slot, process id, lent.
    pub fn services(&self) -> Result<Vec<(Handle, i32, bool)>> {
        let state = self.enter()?;
        let occupied = state
            .machine
            .occupied()
            .filter_map(|slot| state.entries.get(slot as usize).zip(Some(slot)));
        Ok(occupied
            .map(|(entry, slot)| (entry.handle(slot), entry.pid, entry.lent))
            .collect())
    }

    /// End every service and the keeper, and wait for it; waiters are woken and find the pool closed. Idempotent.
    pub fn close(&self, limit_ms: u64) -> Result<()> {
        if std::process::id() != self.owner {
            return Ok(()); // before the lock, which a thread of the parent may have held when it forked
        }
        let keeper = {
            let mut state = self.lock();
            if state.closed {
                return Ok(());
            }
            state.closed = true;
            for (ticket, queue) in std::mem::take(&mut state.wakers) {
                tell(&queue, ticket);
            }
            state.tell_watchers();
            state.link.detach()
        };
        if let Some(keeper) = keeper {
            link::join(&keeper, limit_ms);
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
        let here = std::process::id();
        if here != self.owner {
            return Err(Error::Forked {
                owner: self.owner,
                here,
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

    fn drive_with(&self, state: &mut State) -> Result<()> {
        loop {
            let mut events = Vec::with_capacity(32);
            let now = wait_of(0);
            match epoll::wait(&self.ready, spare_capacity(&mut events), Some(&now)) {
                Ok(0) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::system("epoll_wait")(errno)),
            }
            for event in events {
                match u32::try_from(event.data.u64()) {
                    Ok(slot) => {
                        self.unwatch(state, slot);
                        let mut actions = Vec::new();
                        state.machine.readable(slot, &mut actions);
                        self.act(state, &mut actions);
                    }
                    Err(_) => self.take_events(state)?,
                }
            }
        }
    }

    fn take_events(&self, state: &mut State) -> Result<()> {
        while let Some((event, descriptor)) = state.link.receive()? {
            match event {
                Some(Event::Started { handle, pid }) => state.started(handle, pid, descriptor),
                Some(Event::Died { slot, death }) => self.died(state, slot, death),
                Some(Event::Output { handle, text }) => {
                    if let Ok(entry) = state.entry(handle) {
                        entry.output = Some(text);
                    }
                }
                None => {
                    self.keeper_lost(state);
                    break;
                }
            }
        }
        state.tell_watchers();
        Ok(())
    }

    fn died(&self, state: &mut State, slot: u32, death: Death) {
        *state.deaths.entry(death.cause.name()).or_default() += 1;
        let mut actions = Vec::new();
        self.unwatch(state, slot);
        state.machine.lose(slot, &mut actions);
        state.entry_of(slot).death = Some(death);
        state.forsake(slot);
        state.bury(slot);
        self.act(state, &mut actions);
    }

    /// The keeper is gone: kill every group it owned, and count their services as dead.
    fn keeper_lost(&self, state: &mut State) {
        if let Some(control) = state.link.control() {
            let _ = epoll::delete(&self.ready, control);
        }
        state.link.lose();
        let occupied: Vec<u32> = state.machine.occupied().collect();
        for slot in occupied {
            let entry = state.entry_of(slot);
            entry.kill();
            let (pid, text) = (entry.pid, b"the keeper of the pool was killed".to_vec());
            self.died(
                state,
                slot,
                Death {
                    cause: Cause::KeeperLost,
                    pid,
                    code: 0,
                    text,
                },
            );
        }
    }

    /// Retire a service and have it ended.
    fn drop_service(&self, state: &mut State, slot: u32, cause: Cause) {
        self.unwatch(state, slot);
        let mut actions = Vec::new();
        state.machine.lose(slot, &mut actions);
        state.retire(slot);
        let handle = state.entry_of(slot).handle(slot);
        if state.entry_of(slot).socket.is_none() {
            // The keeper never heard of it, so it will tell of no death.
            let text = b"it was never asked for".to_vec();
            state.entry_of(slot).death.get_or_insert(Death {
                cause: Cause::NotStarted,
                pid: 0,
                code: 0,
                text,
            });
        }
        if state.entry_of(slot).death.is_none() {
            // Where the keeper is gone, its loss is handled by the next drive.
            let _ = state.link.send(&Request::Kill { handle, cause }, &[]);
        }
        state.forsake(slot);
        state.bury(slot);
        self.act(state, &mut actions);
    }

    fn act(&self, state: &mut State, actions: &mut Vec<Action>) {
        while let Some(action) = actions.pop() {
            match action {
                Action::Wake(ticket, _) => {
                    if let Some(queue) = state.wakers.remove(&ticket) {
                        tell(&queue, ticket);
                    }
                }
                Action::Evict(slot) => self.drop_service(state, slot, Cause::Discarded),
            }
        }
    }

    fn watch_socket(&self, state: &State, slot: u32) -> Result<()> {
        let Some(socket) = state
            .entries
            .get(slot as usize)
            .and_then(|entry| entry.socket.as_ref())
        else {
            return Ok(());
        };
        let data = epoll::EventData::new_u64(u64::from(slot));
        epoll::add(&self.ready, socket, data, epoll::EventFlags::IN)
            .map_err(Error::system("epoll_ctl"))
    }

    fn unwatch(&self, state: &State, slot: u32) {
        if let Some(socket) = state
            .entries
            .get(slot as usize)
            .and_then(|entry| entry.socket.as_ref())
        {
            let _ = epoll::delete(&self.ready, socket); // not watched is as good
        }
    }
}

/// A queue that is full is being drained, and one that is closed has nobody left.
fn tell(queue: &Queue<Wake>, wake: Wake) {
    let _ = queue.push(wake);
}
