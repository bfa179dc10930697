//! How often the process has allocated.
pub mod sys;
