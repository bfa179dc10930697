//! Commands of the program's threads to the dispatcher, with its orders and answers to them.

mod commands;
pub(super) mod local;
pub(super) mod mailbox;
pub(super) mod protocol;
