//! Dispatched runs that their workers have not received, in the order of dispatch per worker.
//!
//! A run may wait for room in the journal, or until its arguments are read. A later run of the same worker must not
//! overtake it: at a worker's death the machine takes the first run without a reply for the one that was running.
//!
//! A run that was recalled, or whose worker died before it received the run, may be dispatched again with the same
//! attempt to a worker of the same slot, while the answer for the first dispatch is still on its way. So each dispatch
//! has its own number, and an answer for a withdrawn dispatch begins nothing.

use std::collections::VecDeque;

use crate::dispatcher::commits::purpose::PendingRun;
use crate::dispatcher::workers::RunId;
use crate::hash::ByNumber;
use crate::id::RequestId;
use crate::request::{Blob, Slot};

/// What a run waits for.
#[derive(Debug)]
enum State {
    /// Room in the journal, or its arguments.
    Blocked,
    /// Only the runs before it; with its arguments if they had to be read.
    Ready(Option<Blob>),
}

/// A run that its worker has not received.
#[derive(Debug)]
struct QueuedRun {
    run: PendingRun,
    state: State,
    /// Its worker will not receive it: it only keeps the order of those behind it.
    withdrawn: bool,
}

/// All queued runs. Empty most of the time.
#[derive(Debug, Default)]
pub struct DispatchQueue {
    /// Each in the order of the dispatch numbers.
    queues: ByNumber<Slot, VecDeque<QueuedRun>>,
    /// Dispatches so far.
    dispatches: u64,
}

impl DispatchQueue {
    /// Give a dispatched run the next number.
    pub fn next_dispatch(&mut self, slot: Slot, id: RequestId, attempt: u32) -> PendingRun {
        self.dispatches += 1;
        PendingRun {
            slot,
            id,
            attempt,
            dispatch: self.dispatches,
        }
    }

    /// Whether further runs of this worker must queue.
    pub fn has_runs(&self, slot: Slot) -> bool {
        !self.queues.is_empty() && self.queues.contains_key(&slot)
    }

    /// How many runs no worker has received.
    pub fn len(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    /// Queue a run; `ready` if it waits only for the runs before it.
    pub fn push(&mut self, run: PendingRun, ready: bool) {
        let state = if ready {
            State::Ready(None)
        } else {
            State::Blocked
        };
        let queued = self.queues.entry(run.slot).or_default();
        queued.push_back(QueuedRun {
            run,
            state,
            withdrawn: false,
        });
    }

    /// Whether this dispatch is queued and not withdrawn.
    pub fn contains(&self, run: PendingRun) -> bool {
        let queued = self.queues.get(&run.slot);
        queued
            .and_then(|queued| queued.get(position(queued, run)?))
            .is_some_and(|one| !one.withdrawn)
    }

    /// A run need not wait any more: the runs to send now, in order. It is among them unless earlier runs still wait,
    /// or it was withdrawn.
    pub fn ready(
        &mut self,
        run: PendingRun,
        arguments: Option<Blob>,
    ) -> Vec<(PendingRun, Option<Blob>)> {
        let Some(queued) = self.queues.get_mut(&run.slot) else {
            return Vec::new(); // its worker is gone
        };
        let Some(position) = position(queued, run) else {
            return Vec::new(); // its worker is gone, and this is another one's line
        };
        queued[position].state = State::Ready(arguments);
        let mut sent = Vec::new();
        while let Some(QueuedRun {
            state: State::Ready(arguments),
            run,
            withdrawn,
        }) = queued.front_mut()
        {
            if !*withdrawn {
                sent.push((*run, arguments.take()));
            }
            queued.pop_front();
        }
        if queued.is_empty() {
            self.queues.remove(&run.slot);
        }
        sent
    }

    /// Withdraw a run. False if its worker has received it or is gone.
    pub fn withdraw(&mut self, slot: Slot, run: RunId) -> bool {
        if self.queues.is_empty() {
            return false;
        }
        let mut queued = self.queues.get_mut(&slot).into_iter().flatten();
        let found = queued.find(|one| (one.run.id, one.run.attempt) == run && !one.withdrawn);
        found.map(|one| one.withdrawn = true).is_some()
    }

    /// Drop the runs of a worker that is gone.
    pub fn forget(&mut self, slot: Slot) {
        self.queues.remove(&slot);
    }
}

fn position(queued: &VecDeque<QueuedRun>, run: PendingRun) -> Option<usize> {
    let found = queued.binary_search_by_key(&run.dispatch, |one| one.run.dispatch);
    found.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Slot = 3;

    fn run(queue: &mut DispatchQueue, id: u64, ready: bool) -> PendingRun {
        let run = queue.next_dispatch(SLOT, RequestId(id), 1);
        queue.push(run, ready);
        run
    }

    fn read() -> Blob {
        b"read".as_slice().into()
    }

    #[test]
    fn runs_are_sent_in_the_order_of_their_dispatch() {
        let mut queue = DispatchQueue::default();
        assert!(!queue.has_runs(SLOT));
        let first = run(&mut queue, 1, false);
        let second = run(&mut queue, 2, true);
        let third = run(&mut queue, 3, false);
        assert!(queue.has_runs(SLOT) && !queue.has_runs(SLOT + 1));
        assert_eq!(queue.ready(third, None), []);
        let all = queue.ready(first, Some(read()));
        assert_eq!(all, [(first, Some(read())), (second, None), (third, None)]);
        assert!(!queue.has_runs(SLOT));
    }

    #[test]
    fn a_run_of_a_dead_worker_blocks_no_other() {
        let mut queue = DispatchQueue::default();
        let first = run(&mut queue, 1, false);
        queue.forget(SLOT);
        assert!(!queue.contains(first));
        assert_eq!(queue.ready(first, None), []);
        let second = run(&mut queue, 2, false);
        assert_eq!(queue.ready(first, None), []);
        assert_eq!(queue.ready(second, None), [(second, None)]);
    }

    #[test]
    fn a_run_that_is_dispatched_again_as_the_same_attempt_is_sent_once() {
        for gone in [false, true] {
            let mut queue = DispatchQueue::default();
            let first = run(&mut queue, 1, false);
            if gone {
                queue.forget(SLOT);
            } else {
                assert!(queue.withdraw(SLOT, (first.id, first.attempt)));
            }
            let again = run(&mut queue, 1, false);
            assert!(queue.contains(again) && !queue.contains(first));
            assert_eq!(queue.ready(first, Some(read())), [], "gone: {gone}");
            assert_eq!(queue.ready(again, Some(read())), [(again, Some(read()))]);
            assert_eq!(queue.ready(first, Some(read())), []);
        }
    }

    #[test]
    fn a_withdrawn_run_is_not_sent_and_those_behind_it_are_in_their_order() {
        let mut queue = DispatchQueue::default();
        let first = run(&mut queue, 1, false);
        let second = run(&mut queue, 2, true);
        let third = run(&mut queue, 3, true);
        for one in [first, third] {
            assert!(queue.withdraw(SLOT, (one.id, one.attempt)));
            assert!(!queue.withdraw(SLOT, (one.id, one.attempt)), "twice");
        }
        assert!(!queue.withdraw(SLOT + 1, (second.id, second.attempt)));
        assert_eq!(queue.ready(first, Some(read())), [(second, None)]);
        assert!(!queue.has_runs(SLOT));
        assert!(!queue.withdraw(SLOT, (second.id, second.attempt)));
    }
}
