//! A durable queue of requests, driven by a dispatcher that gives them to workers.
//!
//! `machine` decides, without a socket, a clock or a thread; the store keeps what it decided, the dispatcher performs
//! it. The design note is the page `docs/concepts/executor.md`.

// A refusal is the rare answer, made once and sent; boxing it would burden every signature.
#![allow(clippy::result_large_err)]

pub mod action;
pub mod clock;
pub mod dispatcher;
pub mod error;
pub mod feed;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod gauge;
mod hash;
pub mod id;
pub mod items;
pub mod journal;
pub mod limit;
pub mod logs;
pub mod machine;
pub mod manifest;
pub mod message;
pub mod nearest;
pub mod news;
pub mod op;
mod private_file;
pub mod request;
pub mod schema;
pub mod secret;
pub mod side;
pub mod store;
mod sys;
pub mod usage;
