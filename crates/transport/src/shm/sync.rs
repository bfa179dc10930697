//! The atomics of the ring: std's, or loom's under `--cfg loom`, so that the model runs the code that ships.
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64, fence};
