//! What passes between the dispatcher's thread and those of its program.

pub(super) mod code;
pub(super) mod command;
mod commands;
pub(super) mod files;
pub(super) mod idle;
pub(super) mod local;
pub(super) mod mailbox;
