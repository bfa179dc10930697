//! The queues: where each request waits until it may run, and whose turn is next.
//!
//! Each waiting state of a request has one list, which this module owns: a request's own time (Until), its key (Keyed),
//! its name (Named), its lane (Ready). A request in After is in no list; its predecessors know it. `Queues` moves a
//! request between these states and lists in one step, so that the state says in which list the request is.
//!
//! It gives no request to a worker and ends none: the runs take what is ready and fits.

mod ages;
mod keys;
mod queue;
mod timers;
mod waits;

use std::collections::HashSet;
use std::sync::Arc;

use crate::id::RequestId;
use crate::machine::entry::{Entry, State};
use crate::machine::policy::LANES;
use crate::machine::register::{Key, Register};
use crate::request::{Lane, Millis, Options};
use ages::Ages;
use keys::{Keys, Name, Names};
use queue::{FairQueue, Rank};
use timers::Timers;
pub use waits::Waits;

/// Submitters whose first request is tried if the earlier ones do not fit.
pub(super) const LOOKAHEAD: usize = 8;
/// What a dispatch costs a lane of weight 1. Stride scheduling: C. Waldspurger, W. Weihl, "Stride Scheduling" (1995).
const STRIDE: u64 = 1 << 16;

/// One lane's queue, with its share of the workers so far.
#[derive(Debug, Default)]
struct LaneQueue {
    ready: FairQueue,
    /// Since when they are ready.
    ages: Ages,
    /// Stride scheduling: grows by the inverse of the lane's weight with each dispatched request; the smallest is next.
    pass: u64,
    /// Its first request if that does not fit, and since when.
    blocked: Option<(RequestId, Millis)>,
}

/// Where requests wait until they run.
#[derive(Debug, Default)]
pub(super) struct Queues {
    lanes: [LaneQueue; 3],
    /// The pass of the lane that was served last.
    pass: u64,
    names: Names,
    keys: Keys,
    timers: Timers,
    /// Requests with a `not_before` that was written before this boot: only the wall clock connects that clock with
    /// this one.
    by_wall: HashSet<RequestId>,
    /// How many are in After, Until, Keyed and Named.
    waits: Waits,
}

/// Names.
impl Queues {
    /// The index of a name, which is new or known.
    pub(super) fn index_of(&mut self, name: &Arc<str>) -> u32 {
        self.names.index(name)
    }

    pub(super) fn name(&self, index: u32) -> &Name {
        self.names.get(index)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = (u32, &Name)> {
        self.names.all()
    }

    /// Lifts the limits of all names: a name that a new code does not limit loses the old limit.
    pub(super) fn lift_limits(&mut self) {
        self.names.lift_limits();
    }

    /// Sets the most that run at once of a name.
    pub(super) fn limit(&mut self, name: &Arc<str>, most: Option<u32>) {
        let index = self.names.index(name);
        self.names.limit(index, most);
    }

    /// Limits have changed: requests that wait for their name are queued again.
    pub(super) fn reopen_names(&mut self, register: &mut Register, now: Millis) {
        let all: Vec<u32> = self.names.all().map(|(index, _)| index).collect();
        for index in all {
            // Dispatch turns them back if the limit is still reached.
            while let Some(key) = self.names.take(index) {
                self.make_ready(register, now, key);
            }
        }
    }
}

/// The way of a request from state to state.
impl Queues {
    /// Moves a request that is in no list, and is not cancelled, into the first state that it has to wait in.
    pub(super) fn advance(&mut self, register: &mut Register, now: Millis, key: Key) {
        let Some(entry) = register.get_mut(key) else {
            return;
        };
        debug_assert!(
            !entry.is_cancelled(),
            "{} waits and is cancelled",
            entry.id()
        );
        self.waits.leave(entry.state());
        // The key comes last, so that a request does not hold it while it waits for something else.
        if entry.waits_for() > 0 {
            entry.wait_for_others();
            self.waits.enter(entry.state());
            return;
        }
        if let Some(at) = entry.not_before().filter(|at| *at > now) {
            entry.wait_for_time();
            self.waits.enter(entry.state());
            self.set_due(key, entry, Some(at));
            return;
        }
        self.leave_wall(entry.id());
        if self.take_key(register, key) {
            self.enqueue(register, now, key);
        } else if let Some(entry) = register.get_mut(key) {
            entry.wait_for_key();
            self.waits.enter(entry.state());
        }
    }

    /// A request that was restored is in After until it advances or ends.
    pub(super) fn restored(&mut self, entry: &Entry) {
        self.waits.enter(entry.state());
    }

    /// How many requests wait for something else than a worker.
    pub(super) fn waits(&self) -> Waits {
        self.waits
    }

    /// Puts a request that has waited for its name into its lane's queue.
    pub(super) fn make_ready(&mut self, register: &mut Register, now: Millis, key: Key) {
        if let Some(entry) = register.get(key) {
            self.waits.leave(entry.state());
        }
        self.enqueue(register, now, key);
    }

    fn enqueue(&mut self, register: &mut Register, now: Millis, key: Key) {
        let Some(entry) = register.get_mut(key) else {
            return;
        };
        entry.wait_for_worker(now);
        let queue = &mut self.lanes[entry.lane() as usize];
        queue.ages.add(now);
        if queue.ready.is_empty() {
            // An idle lane does not accumulate credit for the time in which it wanted nothing.
            queue.pass = queue.pass.max(self.pass);
        }
        let rank = Rank::of(entry.request(), key);
        queue.ready.push(&entry.submission().submitter, rank);
    }

    /// Takes a waiting request out of the list of its state.
    pub(super) fn leave_list(&mut self, register: &mut Register, now: Millis, key: Key) {
        let Some(entry) = register.get_mut(key) else {
            return;
        };
        self.set_due(key, entry, None);
        let rank = Rank::of(entry.request(), key);
        let submission = entry.submission();
        self.waits.leave(entry.state());
        match entry.state() {
            State::After | State::Until => self.leave_wall(entry.id()),
            State::Keyed => self.keys.leave(submission, rank),
            State::Named => self.names.leave(entry.name(), &submission.submitter, rank),
            State::Ready => {
                let queue = &mut self.lanes[submission.options.lane as usize];
                queue.ready.remove(&submission.submitter, rank);
                queue.ages.remove(entry.ready_at());
                // It may have been the request that was made ready for a free slot of its name: the next one takes
                // that.
                if let Some(next) = self.names.next(entry.name()) {
                    self.make_ready(register, now, next);
                }
            }
            _ => {}
        }
    }

    /// Takes a request's key for it, or lets it wait for the key. `true`: it holds its key, or has none.
    pub(super) fn take_key(&mut self, register: &mut Register, key: Key) -> bool {
        let Some(entry) = register.get_mut(key) else {
            return false;
        };
        if !entry.holds_key() {
            let rank = Rank::of(entry.request(), key);
            let holds = self.keys.take(entry.submission(), rank);
            entry.set_holds_key(holds);
        }
        entry.holds_key()
    }

    /// Stops waiting for its key.
    pub(super) fn leave_key(&mut self, register: &Register, key: Key) {
        if let Some(entry) = register.get(key) {
            self.keys
                .leave(entry.submission(), Rank::of(entry.request(), key));
        }
    }

    /// Releases its key; the next request that waits for it advances.
    pub(super) fn give_key(&mut self, register: &mut Register, now: Millis, key: Key) {
        let Some(entry) = register.get_mut(key) else {
            return;
        };
        if entry.set_holds_key(false)
            && let Some(next) = self.keys.give(entry.options())
        {
            self.advance(register, now, next);
        }
    }

    /// How many requests hold the key that these options name.
    pub(super) fn key_holders(&self, options: &Options) -> u32 {
        self.keys.holders(options)
    }

    /// A request of this name has a worker.
    pub(super) fn occupy_name(&mut self, name: u32) {
        self.names.occupy(name);
    }

    /// A request of this name has left its worker. The next one that waits for the name is given: make it ready.
    pub(super) fn release_name(&mut self, name: u32) -> Option<Key> {
        self.names.release(name)
    }
}

/// Times.
impl Queues {
    /// Sets when a request is looked at again, or that it is not.
    pub(super) fn set_due(&mut self, key: Key, entry: &mut Entry, due: Option<Millis>) {
        let before = entry.set_due(due);
        self.timers.set(key, before, due);
    }

    /// Takes a request whose time has come.
    pub(super) fn pop_due(&mut self, register: &mut Register, now: Millis) -> Option<Key> {
        let key = self.timers.pop(now)?;
        if let Some(entry) = register.get_mut(key) {
            entry.set_due(None);
        }
        Some(key)
    }

    pub(super) fn first_due(&self) -> Option<Millis> {
        self.timers.first()
    }

    /// How many requests have a time.
    pub(super) fn timed(&self) -> usize {
        self.timers.len()
    }

    /// A request's `not_before` is a time of the wall clock, whatever that is set to.
    pub(super) fn follow_wall(&mut self, id: RequestId) {
        self.by_wall.insert(id);
    }

    /// Its wait is over; what it waits for later is by this boot's clock.
    fn leave_wall(&mut self, id: RequestId) {
        if !self.by_wall.is_empty() {
            self.by_wall.remove(&id);
        }
    }

    /// The wall clock was set ahead by `step`: corrects the times of requests that follow it.
    pub(super) fn move_waits(&mut self, register: &mut Register, now: Millis, step: i64) {
        let mut waits = std::mem::take(&mut self.by_wall);
        waits.retain(|id| self.move_wait(register, now, *id, step));
        self.by_wall = waits;
    }

    /// Corrects the time of a request that was restored while the wall clock was wrong. False: it waits no more.
    fn move_wait(
        &mut self,
        register: &mut Register,
        now: Millis,
        id: RequestId,
        step: i64,
    ) -> bool {
        let Some(key) = register.key(id) else {
            return false;
        };
        let Some(entry) = register.get_mut(key) else {
            return false;
        };
        let (true, Some(at)) = (
            matches!(entry.state(), State::Until | State::After),
            entry.not_before(),
        ) else {
            return false;
        };
        // The wall clock went ahead by `step`, so the same wall time is that much earlier by the machine's.
        entry.postpone(Some(at.saturating_add_signed(-step)));
        if matches!(entry.state(), State::Until) {
            self.set_due(key, entry, None);
            self.advance(register, now, key);
        }
        true
    }
}

/// The lanes.
impl Queues {
    /// How many requests of a lane wait for a worker.
    pub(super) fn ready(&self, lane: Lane) -> usize {
        self.lanes[lane as usize].ready.len()
    }

    pub(super) fn is_empty(&self, lane: Lane) -> bool {
        self.lanes[lane as usize].ready.is_empty()
    }

    pub(super) fn lanes_with_ready(&self) -> [bool; 3] {
        LANES.map(|lane| !self.is_empty(lane))
    }

    /// Of the `open` lanes, the one that was served least by its weight.
    pub(super) fn next_lane(&self, open: [bool; 3]) -> Option<Lane> {
        let competing = LANES.into_iter().filter(|lane| open[*lane as usize]);
        competing.min_by_key(|lane| self.lanes[*lane as usize].pass)
    }

    /// Charges a lane for a dispatch.
    pub(super) fn charge(&mut self, lane: Lane, weight: u32) {
        let queue = &mut self.lanes[lane as usize];
        // The lanes' virtual time, at which an idle lane rejoins.
        self.pass = queue.pass;
        queue.pass += STRIDE / u64::from(weight.max(1));
    }

    /// How many turns of a lane are tried.
    pub(super) fn turns(&self, lane: Lane) -> usize {
        self.lanes[lane as usize].ready.submitters().min(LOOKAHEAD)
    }

    /// The first request of the submitter with this turn.
    pub(super) fn head(&self, lane: Lane, turn: usize) -> Option<Key> {
        self.lanes[lane as usize].ready.head(turn)
    }

    /// The first requests of a lane that are tried and whose name is not full.
    pub(super) fn candidates<'a>(
        &'a self,
        register: &'a Register,
        lane: Lane,
    ) -> impl Iterator<Item = Key> + 'a {
        let heads = (0..self.turns(lane)).filter_map(move |turn| self.head(lane, turn));
        heads.filter(|key| {
            let entry = register.get(*key);
            entry.is_some_and(|entry| !self.names.get(entry.name()).is_full())
        })
    }

    /// Takes what `head` gave; its submitter's next turn comes after all others.
    pub(super) fn take(&mut self, register: &Register, lane: Lane, turn: usize) {
        let queue = &mut self.lanes[lane as usize];
        let taken = queue.ready.take(turn);
        if let Some(entry) = taken.and_then(|key| register.get(key)) {
            queue.ages.remove(entry.ready_at());
        }
    }

    /// Since when the request that has been ready for longest is.
    pub(super) fn ready_since(&self, lane: Lane) -> Option<Millis> {
        self.lanes[lane as usize].ages.oldest()
    }

    /// Makes a request whose name is full wait for its name, not in front of the others.
    pub(super) fn turn_back(
        &mut self,
        register: &mut Register,
        lane: Lane,
        turn: usize,
        key: Key,
    ) -> bool {
        let name = register.get(key).map(Entry::name);
        if !name.is_some_and(|name| self.names.get(name).is_full()) {
            return false;
        }
        self.take(register, lane, turn);
        let Some(entry) = register.get_mut(key) else {
            return false;
        };
        entry.wait_for_name();
        self.waits.enter(entry.state());
        let rank = Rank::of(entry.request(), key);
        self.names
            .wait(entry.name(), &entry.submission().submitter, rank);
        true
    }

    /// The first request of a lane does not fit. `true`: that is new.
    pub(super) fn block(&mut self, now: Millis, lane: Lane, id: RequestId) -> bool {
        let blocked = &mut self.lanes[lane as usize].blocked;
        let is_new = blocked.is_none_or(|(before, _)| before != id);
        if is_new {
            *blocked = Some((id, now));
        }
        is_new
    }

    /// The request that a lane waits for, since it has not fitted for `overtaken_ms_max`.
    pub(super) fn comes_first(
        &self,
        register: &Register,
        now: Millis,
        lane: Lane,
        overtaken_ms_max: u64,
    ) -> Option<RequestId> {
        let queue = &self.lanes[lane as usize];
        let (id, since) = queue.blocked?;
        let first = queue.ready.head(0).and_then(|key| register.get(key))?;
        let long = now.saturating_sub(since) >= overtaken_ms_max;
        (first.id() == id && long).then_some(id)
    }

    /// How many requests of its submitter come before a ready one; looks at no more than `most`.
    pub(super) fn before(&self, entry: &Entry, key: Key, most: usize) -> usize {
        let rank = Rank::of(entry.request(), key);
        let queue = &self.lanes[entry.lane() as usize].ready;
        queue.before(&entry.submission().submitter, rank, most)
    }

    /// The first ready request of a submitter.
    pub(super) fn first_of(&self, lane: Lane, submitter: &Arc<str>) -> Option<Key> {
        self.lanes[lane as usize].ready.first_of(submitter)
    }

    /// Submitters with ready requests.
    pub(super) fn submitters(&self, lane: Lane) -> usize {
        self.lanes[lane as usize].ready.submitters()
    }

    /// How many submitters' turns come before this one's.
    pub(super) fn turn_of(&self, lane: Lane, submitter: &Arc<str>) -> Option<usize> {
        self.lanes[lane as usize].ready.turn_of(submitter)
    }
}
