//! How a native listener serves its connections.

use std::time::Duration;

use crate::limit::{Limits, NATIVE_STALL_S};
use crate::link::admission::Admission;

/// How connections are served.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub limits: Limits,
    /// What the listener requires of a client.
    pub admission: Admission,
    /// Whether memory for announced lengths is allocated at once.
    pub trusted: bool,
    /// Within this a client must have finished its handshake.
    pub handshake: Duration,
    /// Within this half a message, or an answer that the client does not take, must have progressed.
    pub stall: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            limits: Limits::of_messages(),
            admission: Admission::Anybody,
            trusted: false,
            handshake: Duration::from_secs(5),
            stall: Duration::from_secs(NATIVE_STALL_S),
        }
    }
}
