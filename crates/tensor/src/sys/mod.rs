//! All the `unsafe` of the crate: memory that callers lend, and arithmetic on it.
#![allow(unsafe_code)]
pub(crate) mod arena;
pub(crate) mod arithmetic;
pub(crate) mod shared_words;
pub(crate) mod span;
pub(crate) mod staging;
