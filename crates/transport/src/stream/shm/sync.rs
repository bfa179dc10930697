//! The atomics of the ring, and the locks of what is lent. `tests/loom.rs` compiles both over loom's in their place.
pub use std::sync::atomic::{AtomicU64, fence};
pub use std::sync::{Arc, Mutex, MutexGuard};
