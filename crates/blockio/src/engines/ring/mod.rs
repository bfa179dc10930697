//! The engine on `io_uring`.

pub(crate) mod driver;
mod entry;
pub(crate) mod io_thread;
pub(crate) mod local;
pub(crate) mod loop_ring;
pub(crate) mod probe;
pub(crate) mod registry;
mod table;
