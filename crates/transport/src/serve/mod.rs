//! Serving messages from a thread that knows no interpreter.
//!
//! A [`MessageServer`] accepts, and answers by a [`Service`]: echo, forward, get by key, health, or a table of those.
//! Its thread sleeps in `epoll` alone; what a program does under a lock of its own does not delay it.
//! `session` decides over any stream, `reactor` acts on sockets.
//! The design note is `docs/guides/native_handlers.md`.

mod acceptor;
mod control;
mod dial;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod metrics;
mod options;
mod pending_handshakes;
mod reactor;
mod server;
mod service;
mod session;
mod store;

pub use acceptor::{Accepted, Acceptor, Listening};
pub use dial::{Address, Target};
pub use metrics::ServerCounters;
pub use options::ServerOptions;
pub use pending_handshakes::PendingHandshakes;
pub use server::MessageServer;
pub use service::{Health, Service, Table};
pub use store::{Shared, Store, StoreCounters};
