//! Descriptors that come to mean something else.
pub mod sys;
