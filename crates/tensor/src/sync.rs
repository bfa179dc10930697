//! The fence of the board. `tests/loom.rs` compiles `board` over loom's in its place.
pub(crate) use std::sync::atomic::fence;
