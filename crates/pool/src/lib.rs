//! The pool machine, and the keeper that owns processes. No Python.
//!
//! - [`client`]: the pool as its user's process sees it.
//! - [`machine`]: which caller gets which service next.
//! - [`keeper`]: the process that owns every service of a client.
//! - [`lender`]: one pool, lent to all programs of a user; its two ends.
//! - [`template`]: the process that services are forked from.
//! - [`readiness`]: how a program says that it can serve.
//! - [`word`]: the shared word that decides between a caller and a deadline.
//! - [`confine`]: what a service may use, and how it is held to it.
//! - [`wire`], [`control`]: what client, keeper and template say to each other.

#![cfg(not(loom))] // `tests/loom.rs` includes what it checks

pub mod client;
pub mod clock;
pub mod confine;
pub mod control;
pub mod death;
pub mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod keeper;
pub mod lender;
pub mod limit;
pub mod machine;
pub mod readiness;
mod sync;
pub mod sys;
pub mod template;
pub mod transition;
pub mod wire;
pub mod word;

pub use error::{Error, Result};
