//! What a peer may still read: pure bookkeeping, over anything that keeps a block alive.
//!
//! A loan has a slot, below [`LENT_FRAMES_MAX`], and a generation that is used once. The peer gives it back by a word at
//! that slot of its own memory (`return_table`): no index travels, no slot is contended, and a wrong word gives
//! nothing back but what that peer was lent.

use crate::limit::LENT_FRAMES_MAX;

/// The name of a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub slot: u32,
    pub generation: u64,
}

/// What is lent out.
#[derive(Debug)]
pub struct Ledger<L> {
    /// By slot.
    loans: Vec<Option<(u64, L)>>,
    /// Slots that are lent, in no order; and those that were used and are free.
    lent: Vec<u32>,
    free: Vec<u32>,
    generation: u64,
}

impl<L> Default for Ledger<L> {
    fn default() -> Self {
        Self {
            loans: Vec::new(),
            lent: Vec::new(),
            free: Vec::new(),
            generation: 0,
        }
    }
}

impl<L> Ledger<L> {
    /// Keep `loan` until its ticket comes back; returns it as an error at the limit.
    pub fn lend(&mut self, loan: L) -> Result<Ticket, L> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.loans.len() == LENT_FRAMES_MAX => return Err(loan),
            None => {
                self.loans.push(None);
                u32::try_from(self.loans.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.generation += 1;
        self.loans[slot as usize] = Some((self.generation, loan));
        self.lent.push(slot);
        Ok(Ticket {
            slot,
            generation: self.generation,
        })
    }

    /// Take out the loans for which `is_back` is true, each by `take`.
    pub fn settle(&mut self, is_back: impl Fn(Ticket, &L) -> bool, mut take: impl FnMut(L)) {
        let Self {
            loans, lent, free, ..
        } = self;
        lent.retain(|&slot| {
            let back = loans[slot as usize].take_if(|(generation, loan)| {
                let generation = *generation;
                is_back(Ticket { slot, generation }, loan)
            });
            let Some((_, loan)) = back else { return true };
            take(loan);
            free.push(slot);
            false
        });
    }

    /// What is lent.
    pub fn loans(&self) -> impl Iterator<Item = &L> {
        self.loans.iter().flatten().map(|(_, loan)| loan)
    }

    /// How many are lent.
    pub fn len(&self) -> usize {
        self.lent.len()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_ticket_from_before_gives_nothing_back() {
        let mut ledger = Ledger::default();
        let first = ledger.lend("first").expect("room");
        ledger.settle(|ticket, _| ticket == first, drop);
        let second = ledger.lend("second").expect("room");
        assert_eq!(first.slot, second.slot);
        ledger.settle(|ticket, _| ticket == first, drop);
        assert_eq!(ledger.len(), 1);
        ledger.settle(|ticket, _| ticket == second, drop);
        assert_eq!(ledger.len(), 0);
    }

    #[test]
    fn the_limit_gives_the_loan_back() {
        let mut ledger = Ledger::default();
        for number in 0..LENT_FRAMES_MAX {
            ledger.lend(number).expect("room");
        }
        assert_eq!(ledger.lend(7), Err(7));
    }

    proptest! {
        /// Whatever the peer writes, a loan is kept until its own generation stands at its own slot.
        #[test]
        fn loans_end_by_their_own_ticket_alone(steps in proptest::collection::vec((0_u8..4, any::<u64>()), 1..200)) {
            let mut ledger = Ledger::default();
            let mut table: HashMap<u32, u64> = HashMap::new();
            let mut open: Vec<(Ticket, Rc<()>)> = Vec::new();
            for (what, value) in steps {
                match what {
                    0 | 1 => {
                        let kept = Rc::new(());
                        let ticket = ledger.lend(Rc::clone(&kept)).expect("room");
                        prop_assert!(table.get(&ticket.slot) != Some(&ticket.generation));
                        open.push((ticket, kept));
                    }
                    2 if !open.is_empty() => {
                        let ticket = open[usize::try_from(value).unwrap_or(0) % open.len()].0;
                        table.insert(ticket.slot, ticket.generation);
                    }
                    _ => {
                        // Nonsense, but above every generation there is.
                        table.insert(u32::try_from(value % 8).unwrap_or(0), value | 1 << 63);
                    }
                }
                ledger.settle(|ticket, _| table.get(&ticket.slot) == Some(&ticket.generation), drop);
                open.retain(|(ticket, kept)| {
                    let back = table.get(&ticket.slot) == Some(&ticket.generation);
                    assert_eq!(Rc::strong_count(kept), if back { 1 } else { 2 });
                    !back
                });
                prop_assert_eq!(ledger.len(), open.len());
            }
        }
    }
}
