//! Kinds that programs keep ready: who starts the next idle service that is missing.
//!
//! Invariants: as many idle services of a kind are kept as the program wants that wants most, from its first question on
//! until it says that it stops, or leaves; a program has one question about a kind at a time, the newest; it is granted no
//! start above what it may hold.

use std::collections::{BTreeMap, BTreeSet};

use super::BorrowerId;
use super::ledger::Ledger;
use crate::client::Client;
use crate::error::Result;
use crate::machine;
use crate::wire::Handle;
use crate::wire::shared::QuestionId;

/// A program that keeps idle services of a kind ready, and the question that it is told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refill {
    pub program: BorrowerId,
    pub ticket: QuestionId,
    pub key: machine::Key,
}

/// Those who keep kinds ready.
#[derive(Debug, Default)]
pub(super) struct Refills {
    /// Idle services that each program wants of a kind.
    wanted: BTreeMap<(machine::Key, BorrowerId), u32>,
    waiting: Vec<Refill>,
    /// Kinds of which one may be missing.
    due: BTreeSet<machine::Key>,
}

impl Refills {
    /// A program keeps so many idle services of a kind ready, and starts the next one that is missing.
    pub fn ask(&mut self, pool: &Client, refill: Refill, min_idle: u32) -> Result<()> {
        let Refill { program, key, .. } = refill;
        self.waiting
            .retain(|other| (other.program, other.key) != (program, key));
        self.waiting.push(refill);
        self.due.insert(key);
        if self.wanted.insert((key, program), min_idle) == Some(min_idle) {
            return Ok(());
        }
        pool.keep(key, self.most_wanted(key))
    }

    /// A program keeps a kind ready no longer.
    pub fn stop(&mut self, pool: &Client, program: BorrowerId, key: machine::Key) -> Result<()> {
        self.waiting
            .retain(|refill| (refill.program, refill.key) != (program, key));
        match self.wanted.remove(&(key, program)) {
            Some(_) => pool.keep(key, self.most_wanted(key)),
            None => Ok(()),
        }
    }

    /// A question was given up; its program goes on to want what it wants.
    pub fn leave(&mut self, program: BorrowerId, ticket: QuestionId) {
        self.waiting
            .retain(|refill| (refill.program, refill.ticket) != (program, ticket));
    }

    /// A program has left.
    pub fn end(&mut self, pool: &Client, program: BorrowerId) {
        let of_program = self.wanted.keys().filter(|&&(_, wants)| wants == program);
        let keys: Vec<machine::Key> = of_program.map(|&(key, _)| key).collect();
        for key in keys {
            let _ = self.stop(pool, program, key); // it fails where the pool is closed, and then nothing is kept
        }
    }

    /// An idle service of a kind may be missing.
    pub fn look_at(&mut self, key: machine::Key) {
        if !self.waiting.is_empty() {
            self.due.insert(key);
        }
    }

    /// There may be room for any kind.
    pub fn look_at_all(&mut self) {
        self.due
            .extend(self.waiting.iter().map(|refill| refill.key));
    }

    /// The next start to be granted, where an idle service is missing.
    pub fn next(&mut self, pool: &Client, ledger: &Ledger) -> Result<Option<(Refill, Handle)>> {
        while let Some(&key) = self.due.first() {
            let may = |refill: &Refill| refill.key == key && ledger.may_hold_more(refill.program);
            if let Some(at) = self.waiting.iter().position(may)
                && let Some(handle) = pool.refill(key)?
            {
                return Ok(Some((self.waiting.remove(at), handle)));
            }
            self.due.remove(&key);
        }
        Ok(None)
    }

    fn most_wanted(&self, key: machine::Key) -> u32 {
        let of_kind = self.wanted.range((key, 0)..=(key, BorrowerId::MAX));
        of_kind.map(|(_, &min_idle)| min_idle).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Policy;

    const KEY: machine::Key = 3;

    fn pool() -> Client {
        let policy = Policy {
            max_size: 4,
            max_running: 4,
            max_uses: 0,
            lifetime_ms: 0,
            ping_after_ms: 0,
        };
        Client::new(policy).expect("a pool")
    }

    fn refill(program: BorrowerId, ticket: QuestionId) -> Refill {
        Refill {
            program,
            ticket,
            key: KEY,
        }
    }

    #[test]
    fn as_many_are_kept_as_the_program_wants_that_wants_most_until_it_leaves() {
        let (pool, mut refills) = (pool(), Refills::default());
        refills.ask(&pool, refill(1, 10), 1).expect("kept");
        refills.ask(&pool, refill(2, 10), 3).expect("kept");
        assert_eq!(refills.most_wanted(KEY), 3);
        refills.end(&pool, 2);
        assert_eq!(refills.most_wanted(KEY), 1);
        refills.leave(1, 10);
        assert_eq!(refills.most_wanted(KEY), 1, "it asks again later");
        refills.stop(&pool, 1, KEY).expect("stopped");
        assert_eq!(refills.most_wanted(KEY), 0);
        assert!(refills.wanted.is_empty() && refills.waiting.is_empty());
    }

    #[test]
    fn a_program_has_one_question_about_a_kind_and_no_start_above_what_it_may_hold() {
        let (pool, mut refills, mut ledger) = (pool(), Refills::default(), Ledger::new(1, 1));
        ledger.admit(1, 101);
        refills.ask(&pool, refill(1, 10), 2).expect("kept");
        refills.ask(&pool, refill(1, 11), 2).expect("kept");
        let (granted, handle) = refills.next(&pool, &ledger).expect("asked").expect("room");
        assert_eq!(granted, refill(1, 11));
        ledger.begin(handle.slot, KEY, 0);
        ledger.hold(1, handle, 11, true, 0);
        refills.ask(&pool, refill(1, 12), 2).expect("kept");
        assert_eq!(refills.next(&pool, &ledger).expect("asked"), None);
        assert!(ledger.give_up(1, handle, 0));
        refills.look_at(KEY);
        let next = refills.next(&pool, &ledger).expect("asked");
        assert!(next.is_some(), "it holds less");
    }
}
