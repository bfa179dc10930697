//! All the `unsafe` of the crate: memory that callers lend, the rings that the kernel shares, the fallback's system calls.
#![allow(unsafe_code)]
mod blocks;
pub(crate) mod lent;
pub(crate) mod ring;
pub(crate) mod signals;
pub(crate) mod transfer;
