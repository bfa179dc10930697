//! Which program holds, waits for and knows which service; without a socket or a clock.
//!
//! Invariants:
//! - a slot is in at most one program's `leases`;
//! - a ticket of a program is in exactly one state: asked of the pool, parked, granted, or done;
//! - a program holds and asks for at most `leases_max` at once, and what is more waits parked, in its own order;
//! - what a program has *seen* of a slot is the process that runs there now: a slot's process is forgotten by all when
//!   it ends, so that descriptors travel once for each program and process.

use std::collections::{BTreeMap, VecDeque};

use super::BorrowerId;
use super::kinds::Kinds;
use crate::machine;
use crate::wire::Handle;
use crate::wire::shared::{QuestionId, Row, ServiceState};

/// A service that runs, or starts.
#[derive(Debug)]
struct ServiceRecord {
    /// Its kind.
    key: machine::Key,
    /// Its process; 0 until the keeper has reported it.
    pid: i32,
    /// The call whose answer has not been read; 0 for none.
    unanswered: u64,
    /// Its preface was read.
    preface_read: bool,
    /// The program that held it last.
    holder: Option<BorrowerId>,
    /// Leases so far.
    uses: u32,
    /// It is ended when it is given back.
    retiring: bool,
    /// Monotonic milliseconds of its last change of hands.
    since_ms: u64,
}

/// What the next program has to know of a service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lendable {
    /// Its process; 0 until the keeper has reported it.
    pub pid: i32,
    /// The call whose answer has not been read; 0 for none.
    pub unanswered: u64,
    /// Its preface was read.
    pub preface_read: bool,
    /// The program has the descriptors of its process.
    pub seen: bool,
    /// Another program held it last.
    pub changes_hands: bool,
    /// Leases so far.
    pub uses: u32,
}

/// What a program holds in a slot.
#[derive(Clone, Copy, Debug)]
struct Lease {
    /// Of the slot.
    generation: u64,
    /// The question that it answered.
    ticket: QuestionId,
    /// The program makes it: it is not ready yet.
    starting: bool,
    /// It is a copy, which ends with its lease.
    is_copy: bool,
    /// Its service has ended, though the program keeps the lease.
    is_over: bool,
}

impl Lease {
    /// Whether it counts against what its program may hold.
    const fn counts(&self) -> bool {
        !self.is_copy && !self.is_over
    }
}

/// A program and what it has.
#[derive(Debug, Default)]
struct Session {
    /// Its process.
    pid: i32,
    /// Slots whose process it has the descriptors of.
    seen: Vec<u32>,
    /// What it holds, by slot.
    leases: BTreeMap<u32, Lease>,
    /// What it asked of the pool, by its own ticket.
    asked: BTreeMap<QuestionId, machine::Ticket>,
    /// What it asks for once it holds less, or can share.
    parked: VecDeque<Question>,
}

impl Session {
    /// Services that it holds, without copies and those that have ended.
    fn held(&self) -> usize {
        let held = self.leases.values().filter(|lease| lease.counts());
        held.count()
    }

    /// Copies of what it holds.
    fn copies(&self) -> usize {
        let copies = self.leases.values().filter(|lease| lease.is_copy);
        copies.count()
    }

    /// What it holds, or asked of the pool.
    fn charged(&self) -> usize {
        self.held() + self.asked.len()
    }

    /// Tickets without an answer.
    fn waiting(&self) -> usize {
        self.asked.len() + self.parked.len()
    }

    fn is_open(&self, ticket: QuestionId) -> bool {
        let mut parked = self.parked.iter();
        self.asked.contains_key(&ticket) || parked.any(|question| question.ticket == ticket)
    }

    fn forget(&mut self, slot: u32) {
        self.seen.retain(|&seen| seen != slot);
    }
}

/// A program's question for a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub program: BorrowerId,
    pub ticket: QuestionId,
    pub key: machine::Key,
    /// Its callers that may share a service, as the program numbers them.
    pub group: u32,
}

impl Question {
    pub const fn new(
        program: BorrowerId,
        ticket: QuestionId,
        key: machine::Key,
        group: u32,
    ) -> Self {
        Self {
            program,
            ticket,
            key,
            group,
        }
    }

    /// The callers of all programs that may share a service: those of one program alone, which have its connection.
    pub const fn caller_group(&self) -> machine::CallerGroup {
        ((self.program as machine::CallerGroup) << 32) | self.group as machine::CallerGroup
    }
}

/// A question that waits in the pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub question: Question,
    /// When it stops waiting for a reset and has a service started, in monotonic milliseconds.
    pub hurry_ms: Option<u64>,
}

/// What becomes of a new question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is to be asked of the pool.
    Ask,
    /// It waits until its program holds less.
    Parked,
    /// Too many questions of its program wait.
    Refused,
}

/// How a service came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenBack {
    /// The lease had ended before.
    Stale,
    /// The next program can have it.
    Lendable,
    /// It was drained while it was lent.
    Retiring,
}

/// The bookkeeping of one lender.
#[derive(Debug)]
pub(super) struct Ledger {
    /// Services that one program may hold at once, and its questions that may wait at once.
    leases_max: usize,
    waiters_max: usize,
    sessions: BTreeMap<BorrowerId, Session>,
    services: BTreeMap<u32, ServiceRecord>,
    asked: BTreeMap<machine::Ticket, Asked>,
}

impl Ledger {
    /// A ledger in which a program may hold `leases_max` services, and `waiters_max` questions of it may wait.
    pub fn new(leases_max: usize, waiters_max: usize) -> Self {
        Self {
            leases_max,
            waiters_max,
            sessions: BTreeMap::new(),
            services: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// A program comes.
    pub fn admit(&mut self, program: BorrowerId, pid: i32) {
        let session = Session {
            pid,
            ..Session::default()
        };
        self.sessions.insert(program, session);
    }

    /// Whether a program is here.
    pub fn knows(&self, program: BorrowerId) -> bool {
        self.sessions.contains_key(&program)
    }

    /// Whether a question of a program waits in the pool, or parked.
    pub fn is_open(&self, program: BorrowerId, ticket: QuestionId) -> bool {
        self.sessions
            .get(&program)
            .is_some_and(|session| session.is_open(ticket))
    }

    /// A program is gone: its questions that wait in the pool, and the services that it held.
    pub fn remove(&mut self, program: BorrowerId) -> (Vec<machine::Ticket>, Vec<Handle>) {
        let session = self.sessions.remove(&program).unwrap_or_default();
        let asked: Vec<machine::Ticket> = session.asked.into_values().collect();
        for ticket in &asked {
            self.asked.remove(ticket);
        }
        let held = session.leases.into_iter().map(|(slot, lease)| Handle {
            slot,
            generation: lease.generation,
        });
        (asked, held.collect())
    }

    /// A program asks for a service.
    pub fn admit_question(&mut self, question: Question) -> Admission {
        let Some(session) = self.sessions.get_mut(&question.program) else {
            return Admission::Refused;
        };
        if session.charged() < self.leases_max {
            return Admission::Ask;
        }
        if session.waiting() >= self.waiters_max {
            return Admission::Refused;
        }
        session.parked.push_back(question);
        Admission::Parked
    }

    /// The next parked question of a program, if its limit allows one; it is to be asked of the pool.
    pub fn next_parked(&mut self, program: BorrowerId) -> Option<Question> {
        let session = self.sessions.get_mut(&program)?;
        if session.charged() >= self.leases_max {
            return None;
        }
        session.parked.pop_front()
    }

    /// Whether questions of a program are parked; later ones come after them.
    pub fn has_parked(&self, program: BorrowerId) -> bool {
        let session = self.sessions.get(&program);
        session.is_some_and(|session| !session.parked.is_empty())
    }

    /// The parked questions that `join` finds a service for, with what it found; they wait no longer. In each program they
    /// are looked at in their order, up to the first that has to go on waiting.
    pub fn unpark_joined<J>(
        &mut self,
        mut join: impl FnMut(Question) -> Option<J>,
    ) -> Vec<(Question, J)> {
        let mut joined = Vec::new();
        for session in self.sessions.values_mut() {
            while let Some(&question) = session.parked.front()
                && let Some(found) = join(question)
            {
                session.parked.pop_front();
                joined.push((question, found));
            }
        }
        joined
    }

    /// A question waits in the pool; false where too many of its program wait.
    pub fn wait(&mut self, ticket: machine::Ticket, asked: Asked) -> bool {
        let Question {
            program,
            ticket: own,
            ..
        } = asked.question;
        let session = self.sessions.get_mut(&program);
        let Some(session) = session.filter(|session| session.waiting() < self.waiters_max) else {
            return false;
        };
        session.asked.insert(own, ticket);
        self.asked.insert(ticket, asked);
        true
    }

    /// The question that waits in the pool with a ticket, unless it was given up.
    pub fn question(&self, ticket: machine::Ticket) -> Option<Asked> {
        self.asked.get(&ticket).copied()
    }

    /// A question of a program left the queue of the pool.
    pub fn answered(&mut self, ticket: machine::Ticket) {
        if let Some(found) = self.asked.remove(&ticket)
            && let Some(session) = self.sessions.get_mut(&found.question.program)
        {
            session.asked.remove(&found.question.ticket);
        }
    }

    /// Whether a question waits in the pool.
    pub fn has_questions(&self) -> bool {
        !self.asked.is_empty()
    }

    /// When the first question stops waiting for a reset.
    pub fn first_hurry_ms(&self) -> Option<u64> {
        self.asked.values().filter_map(|asked| asked.hurry_ms).min()
    }

    /// The questions that have waited long enough for a reset; each comes once.
    pub fn take_hurried(&mut self, now_ms: u64) -> Vec<machine::Ticket> {
        let due = |asked: &Asked| asked.hurry_ms.is_some_and(|at| at <= now_ms);
        let due = self.asked.iter_mut().filter(|(_, asked)| due(asked));
        due.map(|(&ticket, asked)| {
            asked.hurry_ms = None;
            ticket
        })
        .collect()
    }

    /// A program gives up a question; returns its ticket in the pool, if it waits there.
    pub fn leave(&mut self, program: BorrowerId, ticket: QuestionId) -> Option<machine::Ticket> {
        let session = self.sessions.get_mut(&program)?;
        session.parked.retain(|parked| parked.ticket != ticket);
        let asked = *session.asked.get(&ticket)?;
        self.answered(asked);
        Some(asked)
    }

    /// The service that a question was answered with. Its program throws the answer away, so it knows no process there.
    pub fn take_back(&mut self, program: BorrowerId, ticket: QuestionId) -> Option<Handle> {
        let session = self.sessions.get_mut(&program)?;
        let mut leases = session.leases.iter();
        let (&slot, lease) = leases.find(|(_, lease)| lease.ticket == ticket)?;
        let generation = lease.generation;
        session.forget(slot);
        Some(Handle { slot, generation })
    }

    /// A service is being started in a slot.
    pub fn begin(&mut self, slot: u32, key: machine::Key, now_ms: u64) {
        self.forget(slot);
        let service = ServiceRecord {
            key,
            pid: 0,
            unanswered: 0,
            preface_read: false,
            holder: None,
            uses: 0,
            retiring: false,
            since_ms: now_ms,
        };
        self.services.insert(slot, service);
    }

    /// The kind of the service in a slot.
    pub fn key_of(&self, slot: u32) -> Option<machine::Key> {
        Some(self.services.get(&slot)?.key)
    }

    /// Whether a service of a kind lives.
    pub fn has_services(&self, key: machine::Key) -> bool {
        self.services.values().any(|service| service.key == key)
    }

    /// The service in a slot, for a program; `None` where there is none, or where it is to be ended.
    pub fn lendable(&self, program: BorrowerId, slot: u32) -> Option<Lendable> {
        let service = self.services.get(&slot)?;
        let session = self.sessions.get(&program);
        (!service.retiring).then(|| Lendable {
            pid: service.pid,
            unanswered: service.unanswered,
            preface_read: service.preface_read,
            seen: session.is_some_and(|session| session.seen.contains(&slot)),
            changes_hands: service.holder != Some(program),
            uses: service.uses,
        })
    }

    /// A lease begins.
    pub fn hold(
        &mut self,
        program: BorrowerId,
        handle: Handle,
        ticket: QuestionId,
        starting: bool,
        now_ms: u64,
    ) {
        let Handle { slot, generation } = handle;
        if let Some(service) = self.services.get_mut(&slot) {
            service.since_ms = now_ms;
            service.holder = Some(program);
            service.uses = service.uses.saturating_add(1);
        }
        if let Some(session) = self.sessions.get_mut(&program) {
            let lease = Lease {
                generation,
                ticket,
                starting,
                is_copy: false,
                is_over: false,
            };
            session.leases.insert(slot, lease);
        }
    }

    /// A program has a copy made of a service that it holds; the copy is never lent again.
    pub fn hold_copy(
        &mut self,
        program: BorrowerId,
        handle: Handle,
        ticket: QuestionId,
        now_ms: u64,
    ) {
        self.hold(program, handle, ticket, true, now_ms);
        if let Some(session) = self.sessions.get_mut(&program)
            && let Some(lease) = session.leases.get_mut(&handle.slot)
        {
            lease.is_copy = true;
        }
        if let Some(service) = self.services.get_mut(&handle.slot) {
            service.retiring = true;
        }
    }

    /// A program has the descriptors of a service now.
    pub fn note_process(&mut self, program: BorrowerId, slot: u32, pid: i32) {
        if let Some(service) = self.services.get_mut(&slot) {
            service.pid = pid;
            service.unanswered = 0; // the program reads that answer before anything else
            service.preface_read = true;
        }
        if let Some(session) = self.sessions.get_mut(&program)
            && !session.seen.contains(&slot)
        {
            session.seen.push(slot);
        }
    }

    /// What the programs hold that have a parked question, which is asked once they hold less.
    pub fn held_by_waiting(&self) -> Vec<(BorrowerId, Handle)> {
        let waiting = self
            .sessions
            .iter()
            .filter(|(_, session)| !session.parked.is_empty());
        let held = waiting.flat_map(|(&program, session)| {
            let counted = session.leases.iter().filter(|(_, lease)| lease.counts());
            counted.map(move |(&slot, lease)| {
                let generation = lease.generation;
                (program, Handle { slot, generation })
            })
        });
        held.collect()
    }

    /// The service of a lease has ended, though its holder keeps the lease.
    pub fn ended(&mut self, program: BorrowerId, handle: Handle) {
        if self.holds(program, handle)
            && let Some(session) = self.sessions.get_mut(&program)
            && let Some(lease) = session.leases.get_mut(&handle.slot)
        {
            lease.is_over = true;
        }
    }

    /// Whether a program holds a lease, which has not ended.
    pub fn holds(&self, program: BorrowerId, handle: Handle) -> bool {
        self.lease(program, handle).is_some()
    }

    /// Whether the service of a lease is not ready yet; `None` where the lease has ended.
    pub fn is_starting(&self, program: BorrowerId, handle: Handle) -> Option<bool> {
        Some(self.lease(program, handle)?.starting)
    }

    /// The service of a lease is ready.
    pub fn started(&mut self, program: BorrowerId, handle: Handle) {
        if self.holds(program, handle)
            && let Some(session) = self.sessions.get_mut(&program)
            && let Some(lease) = session.leases.get_mut(&handle.slot)
        {
            lease.starting = false;
        }
    }

    /// A lease ends; false where it had ended before.
    pub fn give_up(&mut self, program: BorrowerId, handle: Handle, now_ms: u64) -> bool {
        if !self.holds(program, handle) {
            return false;
        }
        if let Some(session) = self.sessions.get_mut(&program) {
            session.leases.remove(&handle.slot);
        }
        if let Some(service) = self.services.get_mut(&handle.slot) {
            service.since_ms = now_ms;
        }
        true
    }

    /// A program gives a service back, with the call whose answer the next one reads.
    pub fn give_back(
        &mut self,
        program: BorrowerId,
        handle: Handle,
        unanswered: u64,
        now_ms: u64,
    ) -> GivenBack {
        if !self.give_up(program, handle, now_ms) {
            return GivenBack::Stale;
        }
        match self.services.get_mut(&handle.slot) {
            Some(service) if !service.retiring => {
                service.unanswered = unanswered;
                GivenBack::Lendable
            }
            _ => GivenBack::Retiring,
        }
    }

    /// A program leaves a start to the next caller; false where its lease had ended before.
    pub fn abandon(
        &mut self,
        program: BorrowerId,
        handle: Handle,
        unanswered: u64,
        preface_read: bool,
        now_ms: u64,
    ) -> bool {
        if !self.give_up(program, handle, now_ms) {
            return false;
        }
        if let Some(session) = self.sessions.get_mut(&program) {
            session.forget(handle.slot);
        }
        if let Some(service) = self.services.get_mut(&handle.slot) {
            (service.unanswered, service.preface_read) = (unanswered, preface_read);
        }
        true
    }

    /// The process of a slot is gone, or will be: no program knows it from now on.
    pub fn forget(&mut self, slot: u32) {
        self.services.remove(&slot);
        for session in self.sessions.values_mut() {
            session.forget(slot);
        }
    }

    /// Have the services of some kinds ended when they are given back; returns how many.
    pub fn retire(&mut self, concerns: impl Fn(machine::Key) -> bool) -> u32 {
        let mut marked = 0;
        for service in self.services.values_mut() {
            if concerns(service.key) {
                service.retiring = true;
                marked += 1;
            }
        }
        marked
    }

    /// Whether the service in a slot is to be ended.
    pub fn is_retiring(&self, slot: u32) -> bool {
        let service = self.services.get(&slot);
        service.is_none_or(|service| service.retiring)
    }

    /// How many programs there are.
    pub fn programs(&self) -> usize {
        self.sessions.len()
    }

    /// How many questions are parked.
    pub fn parked(&self) -> usize {
        let parked = self.sessions.values().map(|session| session.parked.len());
        parked.sum()
    }

    /// Whether a program may hold one more.
    pub fn may_hold_more(&self, program: BorrowerId) -> bool {
        let session = self.sessions.get(&program);
        session.is_some_and(|session| session.charged() < self.leases_max)
    }

    /// How many services a program holds.
    pub fn held_by(&self, program: BorrowerId) -> usize {
        let session = self.sessions.get(&program);
        session.map_or(0, Session::held)
    }

    /// How many copies of its leases a program has.
    pub fn copies_of(&self, program: BorrowerId) -> usize {
        let session = self.sessions.get(&program);
        session.map_or(0, Session::copies)
    }

    /// At most `count` services from a slot on, for people; and where to go on.
    pub fn rows(&self, kinds: &Kinds, from: u32, count: usize, now_ms: u64) -> (Vec<Row>, u32) {
        let mut left = self.services.range(from..);
        let rows = left.by_ref().take(count);
        let rows = rows.map(|(&slot, service)| {
            let holder = self.holder(slot);
            let state = match holder {
                Some((_, lease)) if lease.starting => ServiceState::Starting,
                Some(_) => ServiceState::Leased,
                None if service.unanswered != 0 => ServiceState::Settling,
                None => ServiceState::Idle,
            };
            Row {
                slot,
                pid: service.pid,
                name: kinds.get(service.key).name.clone(),
                state,
                holder: holder.map_or(0, |(session, _)| session.pid),
                age_ms: now_ms.saturating_sub(service.since_ms),
            }
        });
        let rows = rows.collect();
        (rows, left.next().map_or(0, |(&slot, _)| slot))
    }

    /// The lease of a handle, unless it has ended.
    fn lease(&self, program: BorrowerId, handle: Handle) -> Option<&Lease> {
        let lease = self.sessions.get(&program)?.leases.get(&handle.slot);
        lease.filter(|lease| lease.generation == handle.generation)
    }

    /// The program that holds a slot.
    fn holder(&self, slot: u32) -> Option<(&Session, Lease)> {
        self.sessions
            .values()
            .find_map(|session| Some((session, *session.leases.get(&slot)?)))
    }
}

#[cfg(test)]
mod tests;
