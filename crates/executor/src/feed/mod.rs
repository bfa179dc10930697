//! The event feed: what happens in a server, numbered, for any number of readers.
//!
//! Sans-I/O: the dispatcher appends an event when what it says has become true, and reads for each stream of a client
//! as far as that has credit. The contract is the page `docs/concepts/executor/events.md`.
//!
//! ```text
//!   number   41    42    43    44    45    46
//!   place   [a1]->[a2]  [b1]  [  ]->[a3]->[b2]      names: chains of places, so that a reader of one name
//!             a's requests    ^ progress that was     looks at no other's events; those of one request
//!                               superseded            are chained too
//! ```
//! A place is found by its number, because numbers have no gaps: the ring is an array that loses its front. Links lead
//! to younger places alone, so that dropping the front breaks none. A place that was superseded stays in its chains,
//! empty, until it is dropped.
//!
//! A reader is a number, with one position for each chain that it reads. It holds nothing of the ring: what it has not
//! read when it is dropped is a gap, which its chains know, because each knows the newest number that it has lost.
//! While a reader exists, its chains are pinned: they outlive their last place, so that a gap is never missed.

mod chain;
mod event;
mod exposition;
mod histogram;
mod metrics;
#[cfg(test)]
mod model;
mod names;
mod parked;
mod reader;
mod requests;
mod ring;

pub use event::{Event, EventKind, Happening, ServerState, ServiceChange, UNKNOWN_MS};
pub use exposition::{Distribution, Exposition, Labels, Sample, owned, sample};
pub use histogram::{COMMIT_BOUNDS_US, Histogram};
pub use metrics::Metrics;
pub use reader::{EventFilter, FeedReader, Looks, Next};
pub use ring::{Feed, FeedBounds};
