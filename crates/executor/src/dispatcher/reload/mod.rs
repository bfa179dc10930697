//! The application's code: which one checks submissions, with the source files that a reload follows.

pub(super) mod code;
pub(super) mod source_files;
