//! What the message connections of a process hold together, and how many there are.
//!
//! A connection reports what it holds in steps of [`BUDGET_STEP`], so that a message below that costs a comparison and
//! no atomic. No connection is woken when there is room again, and none has to be:
//!
//! - Above the limit a connection stops reading while it has a step or more of finished messages. Taking them makes it
//!   read again, limit or not, so that every receiver can finish the message that it has begun.
//! - Above the limit a sender waits above the low mark of its outbox, rather than above the high one, until the kernel
//!   has taken it down to there. That, too, depends only on its own peer.
//!
//! So no connection waits for another one. If every `send` is awaited, a process holds at most the limit plus, for each
//! connection, one message, a step, one receive and the low mark.

use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use forebay_base::host::Host;
use rustix::process::{Resource, getrlimit};

use crate::limit::{BUDGET_MEMORY_SHARE, BUDGET_STEP, DESCRIPTORS_KEPT};

/// The limits of a process, and what counts against them.
#[derive(Debug)]
pub struct Budget {
    bytes_max: AtomicUsize,
    connections_max: AtomicUsize,
    held: AtomicUsize,
    connections: AtomicUsize,
    held_back: AtomicU64,
    turned_back: AtomicU64,
}

/// What a budget has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetCounters {
    /// In steps: what a connection holds below one does not count.
    pub held_bytes: usize,
    pub bytes_max: usize,
    pub connections: usize,
    pub connections_max: usize,
    /// How often a connection stopped reading because the process held too much.
    pub held_back: u64,
    /// How often a listener stopped accepting because there were too many connections.
    pub turned_back: u64,
}

static PROCESS: Budget = Budget::new(usize::MAX, usize::MAX);
static FOUND: Once = Once::new();

impl Budget {
    pub const fn new(bytes_max: usize, connections_max: usize) -> Self {
        Self {
            bytes_max: AtomicUsize::new(bytes_max),
            connections_max: AtomicUsize::new(connections_max),
            held: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            held_back: AtomicU64::new(0),
            turned_back: AtomicU64::new(0),
        }
    }

    /// The budget of this process, with [`default_limits`] from its first use.
    pub fn of_process() -> &'static Self {
        FOUND.call_once(|| {
            let (bytes_max, connections_max) = default_limits();
            PROCESS.limit(Some(bytes_max), Some(connections_max));
        });
        &PROCESS
    }

    /// Change limits; those that are `None` stay.
    pub fn limit(&self, bytes_max: Option<usize>, connections_max: Option<usize>) {
        if let Some(bytes_max) = bytes_max {
            self.bytes_max.store(bytes_max, Ordering::Relaxed);
        }
        if let Some(connections_max) = connections_max {
            self.connections_max
                .store(connections_max, Ordering::Relaxed);
        }
    }

    /// Whether more is held than is allowed.
    pub fn is_over(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.bytes_max.load(Ordering::Relaxed)
    }

    /// Whether one more connection is allowed; a listener that is refused stops accepting for a while.
    pub fn has_room(&self) -> bool {
        let open = self.connections.load(Ordering::Relaxed);
        let room = open < self.connections_max.load(Ordering::Relaxed);
        if !room {
            self.turned_back.fetch_add(1, Ordering::Relaxed);
        }
        room
    }

    /// What was counted.
    pub fn counters(&self) -> BudgetCounters {
        BudgetCounters {
            held_bytes: self.held.load(Ordering::Relaxed),
            bytes_max: self.bytes_max.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            connections_max: self.connections_max.load(Ordering::Relaxed),
            held_back: self.held_back.load(Ordering::Relaxed),
            turned_back: self.turned_back.load(Ordering::Relaxed),
        }
    }
}

/// What one connection has reported to its budget.
#[derive(Debug)]
pub struct BudgetUse {
    budget: &'static Budget,
    steps: usize,
    counted: bool,
    held_back: bool,
}

impl BudgetUse {
    /// One connection more.
    pub fn new(budget: &'static Budget) -> Self {
        budget.connections.fetch_add(1, Ordering::Relaxed);
        Self {
            budget,
            steps: 0,
            counted: true,
            held_back: false,
        }
    }

    /// The connection holds this many bytes now.
    pub fn hold(&mut self, bytes: usize) {
        let steps = bytes / BUDGET_STEP;
        if steps != self.steps {
            self.publish(steps);
        }
    }

    #[cold]
    fn publish(&mut self, steps: usize) {
        let held = &self.budget.held;
        if steps > self.steps {
            held.fetch_add((steps - self.steps) * BUDGET_STEP, Ordering::Relaxed);
        } else {
            held.fetch_sub((self.steps - steps) * BUDGET_STEP, Ordering::Relaxed);
        }
        self.steps = steps;
    }

    /// Whether to stop reading, with this many bytes of finished messages.
    pub fn holds_back(&mut self, finished: usize) -> bool {
        let holds_back = finished >= BUDGET_STEP && self.budget.is_over();
        if holds_back && !self.held_back {
            self.budget.held_back.fetch_add(1, Ordering::Relaxed);
        }
        self.held_back = holds_back;
        holds_back
    }

    /// Whether the process holds more than it may.
    pub fn is_over_limit(&self) -> bool {
        self.budget.is_over()
    }

    /// The connection has closed; what it holds counts until this is dropped.
    pub fn close(&mut self) {
        if std::mem::take(&mut self.counted) {
            self.budget.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for BudgetUse {
    fn drop(&mut self) {
        self.hold(0);
        self.close();
    }
}

/// A quarter of the memory that this process may use, and all but a few of its descriptors.
fn default_limits() -> (usize, usize) {
    let memory = Host::default()
        .memory_limit_bytes()
        .and_then(|bytes| usize::try_from(bytes).ok())
        .unwrap_or(usize::MAX);
    let descriptors = getrlimit(Resource::Nofile)
        .current
        .and_then(|most| usize::try_from(most).ok());
    let connections = descriptors.map_or(usize::MAX, |most| {
        most.saturating_sub(DESCRIPTORS_KEPT).max(most / 2)
    });
    (memory / BUDGET_MEMORY_SHARE, connections)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn budget(bytes_max: usize, connections_max: usize) -> &'static Budget {
        Box::leak(Box::new(Budget::new(bytes_max, connections_max)))
    }

    #[test]
    fn less_than_a_step_touches_nothing() {
        let budget = budget(0, 1);
        let mut usage = BudgetUse::new(budget);
        usage.hold(BUDGET_STEP - 1);
        assert_eq!(budget.counters().held_bytes, 0);
        assert!(!usage.holds_back(BUDGET_STEP - 1));
    }

    #[test]
    fn a_connection_that_holds_nothing_finished_reads_above_the_limit() {
        let budget = budget(BUDGET_STEP, 2);
        let (mut full, mut empty) = (BudgetUse::new(budget), BudgetUse::new(budget));
        full.hold(10 * BUDGET_STEP);
        assert!(full.holds_back(10 * BUDGET_STEP) && !empty.holds_back(0));
        assert!(!full.holds_back(0), "it has been emptied");
        full.hold(0);
        assert!(
            !full.holds_back(BUDGET_STEP),
            "the budget is not exceeded any more"
        );
        assert_eq!(budget.counters().held_back, 1);
    }

    #[test]
    fn a_closed_connection_makes_room_and_counts_what_it_holds() {
        let budget = budget(BUDGET_STEP, 1);
        let mut usage = BudgetUse::new(budget);
        usage.hold(2 * BUDGET_STEP);
        assert!(!budget.has_room());
        usage.close();
        assert!(budget.has_room() && budget.is_over());
        drop(usage);
        assert!(!budget.is_over());
        assert_eq!(budget.counters().connections, 0);
        assert_eq!(budget.counters().turned_back, 1);
    }

    #[test]
    fn the_defaults_are_found() {
        let (bytes_max, connections_max) = default_limits();
        assert!(bytes_max > 1 << 20, "{bytes_max}");
        assert!(connections_max >= 16, "{connections_max}");
    }

    proptest! {
        /// Whatever connections hold, one after the other, the budget has the sum of their steps.
        #[test]
        fn the_sum_is_that_of_the_steps(held in proptest::collection::vec((0_usize..4, 0_usize..1 << 20), 1..60)) {
            let budget = budget(usize::MAX, usize::MAX);
            let mut uses: Vec<BudgetUse> = (0..4).map(|_| BudgetUse::new(budget)).collect();
            let mut model = [0; 4];
            for (index, bytes) in held {
                uses[index].hold(bytes);
                model[index] = bytes / BUDGET_STEP * BUDGET_STEP;
                prop_assert_eq!(budget.counters().held_bytes, model.iter().sum::<usize>());
            }
            drop(uses);
            prop_assert_eq!(budget.counters().held_bytes, 0);
        }
    }
}
