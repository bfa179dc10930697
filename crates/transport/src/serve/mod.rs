//! Serving messages from a thread that knows no interpreter.
//!
//! A [`Server`] accepts, and answers by a [`Service`]: echo, forward, get by key, health, or a table of those.
//! Its thread sleeps in `epoll` alone; what a program does under a lock of its own does not delay it.
//! [`peer`] decides over any stream, [`reactor`] acts on sockets.
//! The design note is `docs/guides/native_handlers.md`.

mod dial;
mod door;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod peer;
mod progress;
mod reactor;
pub mod server;
pub mod service;
pub mod store;

pub use dial::{Place, Target};
pub use door::{Arrival, Door, Listening};
pub use server::{Counters, Options, Server};
pub use service::{Health, Service, Table};
pub use store::{Shared, Store};
