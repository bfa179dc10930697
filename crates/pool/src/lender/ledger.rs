//! Which program holds, waits for and knows which service; without a socket or a clock.
//!
//! Invariants:
//! - a slot is in at most one program's `leases`;
//! - a ticket of a program is in exactly one state: asked of the pool, parked, granted, or done;
//! - a program holds and asks for at most `leases_max` at once, and what is more waits parked, in its own order;
//! - what a program has *seen* of a slot is the process that runs there now: a slot's process is forgotten by all when
//!   it ends, so that descriptors travel once for each program and process.

use std::collections::{BTreeMap, VecDeque};

use crate::machine;
use crate::wire::Handle;
use crate::wire::shared::{Kind, QuestionId, Row, ServiceState};

/// A program that borrows.
pub type BorrowerId = u32;

/// A service that runs, or starts.
#[derive(Debug)]
pub struct ServiceRecord {
    /// Its kind.
    pub key: machine::Key,
    /// Its process; 0 until the keeper has reported it.
    pub pid: i32,
    /// The call whose answer has not been read; 0 for none.
    pub unanswered: u64,
    /// Its preface was read.
    pub preface_read: bool,
    /// It is ended when it is given back.
    pub retiring: bool,
    /// Monotonic milliseconds of its last change of hands.
    pub since_ms: u64,
}

/// What a program holds in a slot.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// Of the slot.
    pub generation: u64,
    /// The question that it answered.
    pub ticket: QuestionId,
    /// The program makes it: it is not ready yet.
    pub starting: bool,
}

/// A program and what it has.
#[derive(Debug, Default)]
pub struct Session {
    /// Its process.
    pub pid: i32,
    /// Slots whose process it has the descriptors of.
    pub seen: Vec<u32>,
    /// What it holds, by slot.
    pub leases: BTreeMap<u32, Lease>,
    /// What it asked of the pool, by its own ticket.
    pub asked: BTreeMap<QuestionId, machine::Ticket>,
    /// What it asks for once it holds less.
    pub parked: VecDeque<(QuestionId, machine::Key)>,
}

impl Session {
    /// Tickets without an answer.
    pub fn waiting(&self) -> usize {
        self.asked.len() + self.parked.len()
    }
}

/// A question that waits in the pool.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub program: BorrowerId,
    pub ticket: QuestionId,
    pub key: machine::Key,
    /// When it stops waiting for a reset and has a service started, in monotonic milliseconds.
    pub hurry_ms: Option<u64>,
}

/// The bookkeeping of one lender.
#[derive(Debug, Default)]
pub struct Ledger {
    pub sessions: BTreeMap<BorrowerId, Session>,
    pub kinds: Vec<Kind>,
    /// Numbers of kinds, by their digest.
    pub keys: BTreeMap<Vec<u8>, machine::Key>,
    /// Numbers of templates, by their digest.
    pub templates: BTreeMap<Vec<u8>, u32>,
    pub services: BTreeMap<u32, ServiceRecord>,
    pub asked: BTreeMap<machine::Ticket, Asked>,
}

impl Ledger {
    /// The number of a kind, new or known.
    pub fn intern(&mut self, kind: Kind) -> machine::Key {
        if let Some(&key) = self.keys.get(&kind.digest) {
            return key;
        }
        // Bounded by `KINDS_MAX`.
        let key = u32::try_from(self.kinds.len()).unwrap_or(u32::MAX);
        if !kind.template.is_empty() {
            let number = u32::try_from(self.templates.len()).unwrap_or(u32::MAX);
            self.templates
                .entry(kind.template.clone())
                .or_insert(number);
        }
        self.keys.insert(kind.digest.clone(), key);
        self.kinds.push(kind);
        key
    }

    /// The lease of a handle, unless it has ended.
    pub fn lease(&mut self, program: BorrowerId, handle: Handle) -> Option<&mut Lease> {
        let lease = self
            .sessions
            .get_mut(&program)?
            .leases
            .get_mut(&handle.slot);
        lease.filter(|lease| lease.generation == handle.generation)
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
        }
        if let Some(session) = self.sessions.get_mut(&program) {
            let lease = Lease {
                generation,
                ticket,
                starting,
            };
            session.leases.insert(slot, lease);
        }
    }

    /// A lease ends; false where it had ended before.
    pub fn give_up(&mut self, program: BorrowerId, handle: Handle, now_ms: u64) -> bool {
        if self.lease(program, handle).is_none() {
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

    /// The process of a slot is gone, or will be: no program knows it from now on.
    pub fn forget(&mut self, slot: u32) {
        self.services.remove(&slot);
        for session in self.sessions.values_mut() {
            session.seen.retain(|&seen| seen != slot);
        }
    }

    /// A question of a program left the queue of the pool.
    pub fn answered(&mut self, asked: machine::Ticket) -> Option<Asked> {
        let found = self.asked.remove(&asked)?;
        if let Some(session) = self.sessions.get_mut(&found.program) {
            session.asked.remove(&found.ticket);
        }
        Some(found)
    }

    /// The program that holds a slot.
    fn holder(&self, slot: u32) -> Option<(&Session, Lease)> {
        self.sessions
            .values()
            .find_map(|session| Some((session, *session.leases.get(&slot)?)))
    }

    /// At most `count` services from a slot on, for people; and where to go on.
    pub fn rows(&self, from: u32, count: usize, now_ms: u64) -> (Vec<Row>, u32) {
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
                name: self.kinds[service.key as usize].name.clone(),
                state,
                holder: holder.map_or(0, |(session, _)| session.pid),
                age_ms: now_ms.saturating_sub(service.since_ms),
            }
        });
        let rows = rows.collect();
        (rows, left.next().map_or(0, |(&slot, _)| slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Handle = Handle {
        slot: 3,
        generation: 7,
    };

    fn sample() -> Ledger {
        let mut ledger = Ledger::default();
        for program in [1, 2] {
            let session = Session {
                pid: 100 + i32::try_from(program).expect("small"),
                ..Session::default()
            };
            ledger.sessions.insert(program, session);
        }
        let kind = Kind {
            digest: vec![1],
            name: b"Digits".to_vec(),
            template: vec![9],
            ..Kind::default()
        };
        let key = ledger.intern(kind);
        let service = ServiceRecord {
            key,
            pid: 50,
            unanswered: 0,
            preface_read: true,
            retiring: false,
            since_ms: 0,
        };
        ledger.services.insert(FIRST.slot, service);
        ledger
    }

    #[test]
    fn equal_digests_are_one_kind_and_equal_templates_one_template() {
        let mut ledger = sample();
        let known = ledger.kinds[0].clone();
        assert_eq!(ledger.intern(known.clone()), 0);
        let other = Kind {
            digest: vec![2],
            ..known
        };
        assert_eq!(ledger.intern(other), 1);
        assert_eq!(ledger.templates.len(), 1);
    }

    #[test]
    fn a_lease_ends_once_and_only_for_who_holds_it() {
        let mut ledger = sample();
        ledger.hold(1, FIRST, 11, false, 1_000);
        let later = Handle {
            generation: 8,
            ..FIRST
        };
        assert!(!ledger.give_up(2, FIRST, 0), "another program's");
        assert!(!ledger.give_up(1, later, 0), "another lease of the slot");
        assert!(ledger.give_up(1, FIRST, 2_000));
        assert!(!ledger.give_up(1, FIRST, 0), "twice");
    }

    #[test]
    fn a_process_that_is_gone_is_known_to_nobody() {
        let mut ledger = sample();
        for session in ledger.sessions.values_mut() {
            session.seen.extend([FIRST.slot, 4]);
        }
        ledger.forget(FIRST.slot);
        assert!(ledger.services.is_empty());
        assert!(ledger.sessions.values().all(|session| session.seen == [4]));
    }

    #[test]
    fn rows_say_who_holds_what_since_when_and_where_to_go_on() {
        let mut ledger = sample();
        let idle = ServiceRecord {
            key: 0,
            pid: 51,
            unanswered: 5,
            preface_read: true,
            retiring: false,
            since_ms: 0,
        };
        ledger.services.insert(9, idle);
        ledger.hold(2, FIRST, 11, false, 1_000);

        let (rows, next) = ledger.rows(0, 1, 3_500);
        assert_eq!((rows.len(), next), (1, 9));
        assert_eq!((rows[0].state, rows[0].holder), (ServiceState::Leased, 102));
        assert_eq!((rows[0].pid, rows[0].age_ms), (50, 2_500));
        let (rows, next) = ledger.rows(next, 1, 3_500);
        assert_eq!(
            (rows[0].state, rows[0].holder, next),
            (ServiceState::Settling, 0, 0)
        );
    }
}
