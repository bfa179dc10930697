//! Runs whose workers have not heard of them yet, worker by worker, in the order of their dispatch.
//!
//! A run may have to wait for room in the journal, or until its arguments are read. One that was handed to the same
//! worker behind it must not be heard of first: the machine takes the first one without an answer for the one that
//! runs.
//!
//! A run that was recalled, or whose worker died before it heard of it, may be dispatched again with the same attempt,
//! to a worker of the same slot, while what the first dispatch waits for has not come. So each dispatch has a number of
//! its own, and what came for one that waits no more begins nothing.

use std::collections::VecDeque;

use crate::dispatcher::commits::keeping::Held;
use crate::dispatcher::hash::ByNumber;
use crate::dispatcher::workers::Run;
use crate::id::RequestId;
use crate::request::{Blob, Slot};

/// What one run waits for.
#[derive(Debug)]
enum State {
    /// Room in the journal, or its arguments.
    Waits,
    /// Those before it alone; with arguments that had to be read.
    Ready(Option<Blob>),
}

/// A run of which its worker has not heard.
#[derive(Debug)]
struct Waiting {
    run: Held,
    state: State,
    /// Its worker will not hear of it: it only keeps those behind it in their order.
    withdrawn: bool,
}

/// All of them. Empty, but for moments.
#[derive(Debug, Default)]
pub struct Unsent {
    /// Each in the order of the dispatches' numbers.
    lines: ByNumber<Slot, VecDeque<Waiting>>,
    /// Dispatches so far.
    dispatches: u64,
}

impl Unsent {
    /// A run is dispatched: it gets the next number.
    pub fn number(&mut self, slot: Slot, id: RequestId, attempt: u32) -> Held {
        self.dispatches += 1;
        Held {
            slot,
            id,
            attempt,
            dispatch: self.dispatches,
        }
    }

    /// Whether a run for this worker has to wait behind others.
    pub fn is_before(&self, slot: Slot) -> bool {
        !self.lines.is_empty() && self.lines.contains_key(&slot)
    }

    /// A run waits; `ready`: for those before it alone.
    pub fn wait(&mut self, run: Held, ready: bool) {
        let state = if ready {
            State::Ready(None)
        } else {
            State::Waits
        };
        let line = self.lines.entry(run.slot).or_default();
        line.push_back(Waiting {
            run,
            state,
            withdrawn: false,
        });
    }

    /// Whether this dispatch still waits, and its worker is to hear of it.
    pub fn has(&self, run: Held) -> bool {
        let line = self.lines.get(&run.slot);
        line.and_then(|line| line.get(place(line, run)?))
            .is_some_and(|one| !one.withdrawn)
    }

    /// A run may be sent: what is to be sent now, itself among it unless others come first or it waits no more.
    pub fn ready(&mut self, run: Held, arguments: Option<Blob>) -> Vec<(Held, Option<Blob>)> {
        let Some(line) = self.lines.get_mut(&run.slot) else {
            return Vec::new(); // its worker is gone
        };
        let Some(place) = place(line, run) else {
            return Vec::new(); // its worker is gone, and this is another one's line
        };
        line[place].state = State::Ready(arguments);
        let mut sent = Vec::new();
        while let Some(Waiting {
            state: State::Ready(arguments),
            run,
            withdrawn,
        }) = line.front_mut()
        {
            if !*withdrawn {
                sent.push((*run, arguments.take()));
            }
            line.pop_front();
        }
        if line.is_empty() {
            self.lines.remove(&run.slot);
        }
        sent
    }

    /// A run is not to begin. False: its worker has heard of it, or is gone.
    pub fn withdraw(&mut self, slot: Slot, run: Run) -> bool {
        if self.lines.is_empty() {
            return false;
        }
        let mut line = self.lines.get_mut(&slot).into_iter().flatten();
        let found = line.find(|one| (one.run.id, one.run.attempt) == run && !one.withdrawn);
        found.map(|one| one.withdrawn = true).is_some()
    }

    /// A worker is gone.
    pub fn forget(&mut self, slot: Slot) {
        self.lines.remove(&slot);
    }
}

fn place(line: &VecDeque<Waiting>, run: Held) -> Option<usize> {
    let found = line.binary_search_by_key(&run.dispatch, |one| one.run.dispatch);
    found.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Slot = 3;

    fn run(unsent: &mut Unsent, id: u64, ready: bool) -> Held {
        let run = unsent.number(SLOT, RequestId(id), 1);
        unsent.wait(run, ready);
        run
    }

    fn read() -> Blob {
        b"read".as_slice().into()
    }

    #[test]
    fn nobody_is_sent_before_those_that_were_dispatched_first() {
        let mut unsent = Unsent::default();
        assert!(!unsent.is_before(SLOT));
        let first = run(&mut unsent, 1, false);
        let second = run(&mut unsent, 2, true);
        let third = run(&mut unsent, 3, false);
        assert!(unsent.is_before(SLOT) && !unsent.is_before(SLOT + 1));
        assert_eq!(unsent.ready(third, None), []);
        let all = unsent.ready(first, Some(read()));
        assert_eq!(all, [(first, Some(read())), (second, None), (third, None)]);
        assert!(!unsent.is_before(SLOT));
    }

    #[test]
    fn what_was_for_a_worker_that_is_gone_is_in_nobodys_way() {
        let mut unsent = Unsent::default();
        let first = run(&mut unsent, 1, false);
        unsent.forget(SLOT);
        assert!(!unsent.has(first));
        assert_eq!(unsent.ready(first, None), []);
        let second = run(&mut unsent, 2, false);
        assert_eq!(unsent.ready(first, None), []);
        assert_eq!(unsent.ready(second, None), [(second, None)]);
    }

    #[test]
    fn a_run_that_is_dispatched_again_as_the_same_attempt_is_sent_once() {
        for gone in [false, true] {
            let mut unsent = Unsent::default();
            let first = run(&mut unsent, 1, false);
            if gone {
                unsent.forget(SLOT);
            } else {
                assert!(unsent.withdraw(SLOT, (first.id, first.attempt)));
            }
            let again = run(&mut unsent, 1, false);
            assert!(unsent.has(again) && !unsent.has(first));
            assert_eq!(unsent.ready(first, Some(read())), [], "gone: {gone}");
            assert_eq!(unsent.ready(again, Some(read())), [(again, Some(read()))]);
            assert_eq!(unsent.ready(first, Some(read())), []);
        }
    }

    #[test]
    fn a_withdrawn_run_is_not_sent_and_those_behind_it_are_in_their_order() {
        let mut unsent = Unsent::default();
        let first = run(&mut unsent, 1, false);
        let second = run(&mut unsent, 2, true);
        let third = run(&mut unsent, 3, true);
        for one in [first, third] {
            assert!(unsent.withdraw(SLOT, (one.id, one.attempt)));
            assert!(!unsent.withdraw(SLOT, (one.id, one.attempt)), "twice");
        }
        assert!(!unsent.withdraw(SLOT + 1, (second.id, second.attempt)));
        assert_eq!(unsent.ready(first, Some(read())), [(second, None)]);
        assert!(!unsent.is_before(SLOT));
        assert!(!unsent.withdraw(SLOT, (second.id, second.attempt)));
    }
}
