//! The fence of the version table. `tests/loom.rs` compiles `version_table` with loom's instead.
pub(crate) use std::sync::atomic::fence;
