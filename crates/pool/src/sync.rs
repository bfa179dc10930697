//! The atomics of the word. `tests/loom.rs` compiles `word` over loom's in their place.
pub use std::sync::atomic::{AtomicU64, Ordering};
