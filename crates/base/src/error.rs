//! What can go wrong with a queue.
use std::io;

/// Why a queue could not be made or drained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel gave no eventfd, as a rule because the process has no descriptor left.
    #[error("cannot make an eventfd for a wake queue: {source}; see `ulimit -n`")]
    Descriptor {
        /// The system's error.
        #[from]
        source: io::Error,
    },
    /// The limit is no number of items that a queue can hold.
    #[error("queue_items_max is {limit}; it must be at least 1")]
    Limit {
        /// What was asked for.
        limit: usize,
    },
    /// The queue is closed and everything in it has been taken.
    #[error("the wake queue is closed")]
    Closed,
}

/// Why an item was not put into a queue; it gives the item back.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Refused<T> {
    /// The named limit is reached; the consumer is slower than its producers.
    #[error("queue_items_max ({limit}) is reached: drain the queue, or make it larger")]
    Full {
        /// The item, untouched.
        item: T,
        /// The limit that was reached.
        limit: usize,
    },
    /// The queue was closed; nothing will be taken from it any more but what it holds.
    #[error("the wake queue is closed")]
    Closed {
        /// The item, untouched.
        item: T,
    },
}

impl<T> Refused<T> {
    /// Take the item back.
    pub fn into_item(self) -> T {
        match self {
            Self::Full { item, .. } | Self::Closed { item } => item,
        }
    }
}

// By hand: an item need not be printable for its refusal to be.
impl<T> std::fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full { limit, .. } => f
                .debug_struct("Full")
                .field("limit", limit)
                .finish_non_exhaustive(),
            Self::Closed { .. } => f.debug_struct("Closed").finish_non_exhaustive(),
        }
    }
}
