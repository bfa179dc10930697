//! The exchange with the program's threads: commands in, orders or answers out.

mod commands;
pub(super) mod local;
pub(super) mod mailbox;
pub(super) mod protocol;
