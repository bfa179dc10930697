//! The atomics of the ring. `tests/loom.rs` compiles `ring` over loom's in their place.
pub use std::sync::atomic::{AtomicU64, fence};
