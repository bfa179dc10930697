//! How a connection of calls is made, what it sends, and what it counts.

use std::time::Duration;

use crate::limit::Limits;
use crate::link::admission::Handshake;
use crate::link::outbox::{Head, Payload};
use crate::wire::frame::Codec;
use crate::wire::role::Role;

/// How a connection is made.
#[derive(Clone, Debug)]
pub struct Options {
    pub role: Role,
    pub limits: Limits,
    /// The peer's name in messages.
    pub peer: String,
    /// The language runtime that is announced, see [`crate::wire::preface::Preface::runtime`].
    pub runtime: u32,
    /// How the two ends let each other in.
    pub handshake: Handshake,
    /// Whether long segments may be lent to a peer of our user, and be borrowed: see [`crate::share`].
    pub lends: bool,
}

impl Options {
    /// Default limits.
    pub fn new(role: Role, peer: impl Into<String>) -> Self {
        Self {
            role,
            limits: Limits::default(),
            peer: peer.into(),
            runtime: 0,
            handshake: Handshake::default(),
            lends: true,
        }
    }
}

/// A call to send.
pub struct Outgoing<'a> {
    pub codec: Codec,
    pub one_way: bool,
    pub remaining: Option<Duration>,
    pub generation: u32,
    pub head: Head<'a>,
    pub segments: Vec<Payload>,
}

/// What a connection has counted and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub outbox_bytes: usize,
    pub inbox_bytes: usize,
    pub inbox_calls: usize,
    pub in_flight: usize,
    pub late_replies: u64,
    pub expired: u64,
    pub stale: u64,
    pub cancelled: u64,
    pub pongs: u64,
    /// Segments that the peer may still read in our memory.
    pub lent_segments: usize,
}
