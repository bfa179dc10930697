//! Whom a look before a sleep leaves the core to.

use std::thread::available_parallelism;

/// Whether the other end can run while this one looks.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    one_core: bool,
}

impl Look {
    /// As many cores as this process may use now.
    pub fn new() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self {
            one_core: cores == 1,
        }
    }

    /// Let the other end have the core, where there is but one.
    ///
    /// Elsewhere a look that yields gives its core to another program that looks, and from Linux 6.18 on the rest of
    /// its slice as well: four programs that acquire from one lender on two cores waited 43 to 48 us with it, 17 to 44
    /// without (medians of nine rounds, three times by turns).
    /// On one core a look that does not yield is time in which nobody answers: 83 us for an acquire instead of 18.
    pub fn give_way(self) {
        if self.one_core {
            rustix::thread::sched_yield();
        }
    }
}
