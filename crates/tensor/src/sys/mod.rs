//! All the `unsafe` of the crate: memory that callers lend, and arithmetic on it.
#![allow(unsafe_code)]
pub(crate) mod arithmetic;
pub(crate) mod board;
pub(crate) mod near;
pub(crate) mod span;
pub(crate) mod staging;
