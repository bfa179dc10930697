//! The peers of one shard: what they ask for, in which order it is answered. Sans-I/O.
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::requester::Rows;
use crate::sys::span::Span;
use crate::table::{Description, Key};
use crate::wire::Operation;

/// What a shard grants its peers, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardLimits {
    /// Requests that each peer may have with us, 1 to 1024.
    pub slots: u32,
    /// Bytes of responses that each peer may have with us.
    pub grant_bytes: u64,
    /// Tensors that there may be.
    pub tensors_max: u32,
    /// Peers that there may be.
    pub peers_max: u32,
    /// How long a peer may take nothing while something is to be sent to it, or leave a request half sent.
    pub liveness: Duration,
}

impl Default for ShardLimits {
    fn default() -> Self {
        Self {
            slots: 16,
            grant_bytes: 16 << 20,
            tensors_max: 65_536,
            peers_max: 4096,
            liveness: Duration::from_secs(5),
        }
    }
}

/// Names a peer of a shard, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId {
    index: u32,
    count: u32,
}

impl PeerId {
    /// Its place, for a table of the caller's; another peer may have it later.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// The tensors of one server thread, and the peers that pull and push their rows.
#[derive(Debug)]
pub struct Shard<K> {
    limits: ShardLimits,
    keeper: Option<K>,
}

#[allow(
    missing_docs,
    unused_variables,
    clippy::todo,
    clippy::needless_pass_by_value
)] // skeleton
impl<K: Send> Shard<K> {
    pub fn new(limits: ShardLimits) -> Self {
        Self {
            limits,
            keeper: None,
        }
    }
    pub fn publish(
        &mut self,
        name: &str,
        description: Description,
        memory: Span,
        keeper: K,
    ) -> Result<Key, (Error, K)> {
        todo!()
    }
    pub fn drop_tensor(&mut self, name: &str) -> Result<(), Error> {
        todo!()
    }
    pub fn write(
        &mut self,
        key: Key,
        rows: Rows,
        operation: Operation,
        values: Span,
    ) -> Result<u64, Error> {
        todo!()
    }
    pub fn take_retired(&mut self) -> Option<K> {
        todo!()
    }
    pub fn connect(&mut self, now: Instant) -> Result<PeerId, Error> {
        todo!()
    }
    pub fn disconnect(&mut self, peer: PeerId) {
        todo!()
    }
    pub fn outgoing(&mut self, peer: PeerId, into: &mut [Span]) -> usize {
        todo!()
    }
    pub fn sent(&mut self, peer: PeerId, bytes: usize, now: Instant) {
        todo!()
    }
    pub fn wants_write(&self, peer: PeerId) -> bool {
        todo!()
    }
    pub fn incoming(&mut self, peer: PeerId) -> [Span; 2] {
        todo!()
    }
    pub fn received(&mut self, peer: PeerId, bytes: usize, now: Instant) -> Result<(), Error> {
        todo!()
    }
    pub fn feed(&mut self, peer: PeerId, bytes: &[u8], now: Instant) -> Result<(), Error> {
        todo!()
    }
    pub fn expire(&mut self, peer: PeerId, now: Instant) -> Result<Option<Instant>, Error> {
        todo!()
    }
    pub fn is_quiet(&self, peer: PeerId) -> bool {
        todo!()
    }
}
