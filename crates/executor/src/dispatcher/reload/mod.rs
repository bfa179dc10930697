//! Reloads the application: code that checks submissions, source files that are watched.

pub(super) mod code;
pub(super) mod source_files;
