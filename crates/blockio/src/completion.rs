//! How the end of a batch reaches its caller, and how a caller stops waiting.
use std::fmt;

use forebay_base::Queue;

use crate::flight::Keeper;

/// A batch that was handed over has ended.
pub struct Finished {
    /// What it was called when it was submitted.
    pub ticket: u64,
    /// The owner of its memory, to be dropped where that may be done.
    pub keeper: Option<Keeper>,
}

impl fmt::Debug for Finished {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Finished")
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}

/// Where ends go, a wake-up for many.
pub type Completions = Queue<Finished>;

/// Operations that need no waiting after which a caller is asked whether to stop: fifty milliseconds from the page cache.
pub(crate) const OPERATIONS_UNASKED: u64 = 1 << 16;

/// What a blocking call asks of its caller when it cannot wait for the end.
pub trait GivingUp {
    /// A signal has interrupted the wait, or 65,536 operations went by without one: whether to stop.
    fn interrupted(&mut self) -> bool;

    /// An owner for the memory of the batch, which the kernel may still write after the call has returned.
    fn keeper(&mut self) -> Keeper;
}

/// Waits through signals, and keeps nothing: for memory that lives as long as the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patient;

impl GivingUp for Patient {
    fn interrupted(&mut self) -> bool {
        false
    }

    fn keeper(&mut self) -> Keeper {
        Box::new(())
    }
}
