//! A durable queue of requests, and the dispatcher that gives them to workers.
//!
//! `machine` decides, without a socket, a clock or a thread; the store keeps what it decided, and the
//! dispatcher does it. The design note is the page `docs/concepts/executor.md`.

pub mod action;
pub mod error;
pub mod id;
pub mod limit;
pub mod machine;
pub mod op;
pub mod request;
