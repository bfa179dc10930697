//! Runs whose workers have not heard of them yet, worker by worker, in the order of their dispatch.
//!
//! A run may have to wait for room in the journal, or until its arguments are read. One that was handed to the same
//! worker behind it must not be heard of first: the machine takes the first one without an answer for the one that
//! runs.

use std::collections::VecDeque;

use crate::dispatcher::hash::ByNumber;
use crate::dispatcher::keeping::Held;
use crate::request::{Blob, Slot};

/// A run, and whether it may be sent; with arguments that had to be read.
type Waiting = (Held, Option<Option<Blob>>);

/// All of them. Empty, but for moments.
#[derive(Default)]
pub struct Unsent(ByNumber<Slot, VecDeque<Waiting>>);

impl Unsent {
    /// Whether a run for this worker has to wait behind others.
    pub fn is_before(&self, slot: Slot) -> bool {
        !self.0.is_empty() && self.0.contains_key(&slot)
    }

    /// A run waits; `ready`: for those before it alone.
    pub fn wait(&mut self, run: Held, ready: bool) {
        let ready = ready.then_some(None);
        self.0.entry(run.slot).or_default().push_back((run, ready));
    }

    /// A run may be sent: what is to be sent now, itself among it unless others come first.
    pub fn ready(&mut self, run: Held, arguments: Option<Blob>) -> Vec<(Held, Option<Blob>)> {
        let Some(line) = self.0.get_mut(&run.slot) else {
            return vec![(run, arguments)];
        };
        match line.iter_mut().find(|(one, _)| *one == run) {
            Some((_, ready)) => *ready = Some(arguments),
            None => return Vec::new(), // its worker is gone, and this is another one's line
        }
        let mut sent = Vec::new();
        while let Some((run, Some(arguments))) = line.front_mut() {
            sent.push((*run, arguments.take()));
            line.pop_front();
        }
        if line.is_empty() {
            self.0.remove(&run.slot);
        }
        sent
    }

    /// A worker is gone.
    pub fn forget(&mut self, slot: Slot) {
        self.0.remove(&slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RequestId;

    fn run(id: u64) -> Held {
        Held {
            slot: 3,
            id: RequestId(id),
            attempt: 1,
        }
    }

    #[test]
    fn nobody_is_sent_before_those_that_were_dispatched_first() {
        let mut unsent = Unsent::default();
        assert!(!unsent.is_before(3));
        unsent.wait(run(1), false);
        unsent.wait(run(2), true);
        unsent.wait(run(3), false);
        assert!(unsent.is_before(3) && !unsent.is_before(4));
        assert_eq!(unsent.ready(run(3), None), []);
        let read: Blob = b"read".as_slice().into();
        let all = unsent.ready(run(1), Some(Blob::clone(&read)));
        assert_eq!(all, [(run(1), Some(read)), (run(2), None), (run(3), None)]);
        assert!(!unsent.is_before(3));
    }

    #[test]
    fn what_was_for_a_worker_that_is_gone_is_in_nobodys_way() {
        let mut unsent = Unsent::default();
        unsent.wait(run(1), false);
        unsent.forget(3);
        assert_eq!(unsent.ready(run(1), None), [(run(1), None)]);
        unsent.wait(run(2), false);
        assert_eq!(unsent.ready(run(1), None), []);
        assert_eq!(unsent.ready(run(2), None), [(run(2), None)]);
    }
}
