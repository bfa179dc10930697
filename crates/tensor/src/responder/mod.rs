//! The peers of one shard: their requests, and the order of the answers. Sans-I/O.
//!
//! # Invariants
//!
//! 1. Each entry of a valid request is answered once, with its rows or with a refusal.
//! 2. A peer has at most `slots` requests and `grant_bytes` of answers that have not begun; one more violates the
//!    protocol.
//! 3. A push is applied as a whole, once all of its values are received, and between answers: unsent answers that
//!    read its rows are copied first, so an answer never mixes versions.
//! 4. Memory of a tensor is read only by answers that hold its storage, and by nothing after a disconnect.
mod answers;
mod peer;
mod reads;
mod sends;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use forebay_base::slots::{self, Slots};

use crate::error::Error;
use crate::inbox::fill;
use crate::names::{Meaning, Unknown};
use crate::requester::Rows;
use crate::shm::SharedIndex;
use crate::sys::span::Span;
use crate::table::{Changed, Description, Exports, Found, Key, Table, check_indices, check_slice};
use crate::version_table::VersionTable;
use crate::wire::Operation;
use peer::{Peer, Step};
pub use reads::{ReadId, Room};
use sends::Sends;

/// Limits of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardLimits {
    /// Requests in flight of each peer, 1 to 1024.
    pub slots: u32,
    /// Bytes of outstanding responses of each peer.
    pub grant_bytes: u64,
    /// Number of tensors.
    pub tensors_max: u32,
    /// Number of peers.
    pub peers_max: u32,
    /// How long a peer may accept no bytes while an answer waits, or leave a request half sent.
    pub liveness: Duration,
    /// Memory for rows that are read from files, until they are sent; pulls wait for it.
    pub staging_bytes: u64,
}

impl Default for ShardLimits {
    fn default() -> Self {
        Self {
            slots: 16,
            grant_bytes: 16 << 20,
            tensors_max: 65_536,
            peers_max: 4096,
            liveness: Duration::from_secs(5),
            staging_bytes: 64 << 20,
        }
    }
}

/// Identifies a peer of a shard until it is disconnected; a stale one finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(slots::Key);

impl PeerId {
    /// Its slot, for a table of the caller; a later peer may reuse it.
    pub fn index(self) -> usize {
        self.0.index as usize
    }
}

/// The tensors of one server thread, and the peers that pull and push their rows.
///
/// `K` keeps the memory of a tensor; [`Shard::take_retired`] returns it when nothing reads the memory any more.
/// Used by one thread at a time.
#[derive(Debug)]
pub struct Shard<K> {
    limits: ShardLimits,
    table: Table<K>,
    peers: Slots<Box<Peer>>,
    /// Peers with rows to read from files, in the order of their turns.
    readers: VecDeque<PeerId>,
    /// The rows that the current write changes; kept for its capacity.
    changed: Changed,
    /// The hook of the fabric, whose device reads rows by itself.
    sends: Sends,
}

impl<K> Shard<K> {
    /// A shard without tensors and peers.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for slots outside of 1 to 1024, or a grant outside of 1 to 2^40 bytes.
    pub fn new(limits: ShardLimits) -> Result<Self, Error> {
        crate::requester::check_limits(limits.slots, limits.grant_bytes)?;
        let mut table = Table::new(limits.tensors_max);
        table.staging_bytes = limits.staging_bytes;
        Ok(Self {
            limits,
            table,
            peers: Slots::new(),
            readers: VecDeque::new(),
            changed: Changed::new(),
            sends: Sends::default(),
        })
    }

    /// Publish the tensor in `memory` under a name; it replaces a tensor of that name.
    ///
    /// The shard borrows the memory until the keeper is returned: only [`Shard::write`] and pushes may change it.
    ///
    /// # Errors
    ///
    /// Returned with the keeper: [`Error::Name`] for an invalid name; [`Error::Config`] for a shape without
    /// dimensions or with rows of no bytes, or if the memory has another size; [`Error::Limit`] for one tensor too
    /// many.
    pub fn publish(
        &mut self,
        name: &str,
        description: Description,
        memory: Span,
        keeper: K,
    ) -> Result<Key, (Error, K)> {
        self.publish_exported(name, description, (memory, Exports::default()), keeper)
    }

    /// The same for memory that other processes or a device can read.
    pub(crate) fn publish_exported(
        &mut self,
        name: &str,
        description: Description,
        (memory, exports): (Span, Exports),
        keeper: K,
    ) -> Result<Key, (Error, K)> {
        match self.table.check(name, &description, memory) {
            Ok(row_bytes) => {
                let memory = (memory, exports);
                let table = &mut self.table;
                Ok(table.publish(name, description, row_bytes, memory, keeper))
            }
            Err(error) => Err((error, keeper)),
        }
    }

    /// Maintain this version table from now on, so that readers can use shared memory.
    pub fn attach_versions(&mut self, versions: VersionTable) {
        self.table.attach_versions(versions);
    }

    /// Maintain this shared index from now on; no tensor is published yet.
    ///
    /// # Errors
    ///
    /// As [`VersionTable::new`].
    pub(crate) fn attach_index(&mut self, index: SharedIndex) -> Result<(), Error> {
        self.table.attach_index(index)
    }

    /// Drop the tensor of a name. Answers that were requested before are still sent.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`].
    pub fn drop_tensor(&mut self, name: &str) -> Result<(), Error> {
        self.table.drop_tensor(name)
    }

    /// The tensor of a name.
    ///
    /// # Errors
    ///
    /// The most similar names.
    pub fn meaning(&self, name: &str) -> Result<Meaning, Unknown> {
        self.table.meaning(name)
    }

    /// Set rows, or add to them, as a push does; returns the new version.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`], [`Error::OutOfRange`]; [`Error::Config`] for values of another size,
    /// or a dtype without addition.
    pub fn write(
        &mut self,
        key: Key,
        rows: Rows,
        operation: Operation,
        values: Span,
    ) -> Result<u64, Error> {
        let tensor = match self.table.find(key) {
            Found::Live(tensor) => tensor,
            Found::Stale { current, .. } => return Err(stale(key, current)),
            Found::Never => return Err(stale(key, 0)),
        };
        let checked = match rows {
            Rows::Slice { first, count } => check_slice(tensor.rows, first, count),
            Rows::Indices(words) => check_indices(tensor.rows, words),
        };
        checked.map_err(|row| Error::OutOfRange {
            tensor: Some(key.id),
            row,
            rows: tensor.rows,
        })?;
        if rows.count().checked_mul(tensor.row_bytes) != Some(values.bytes() as u64) {
            return Err(Error::Config {
                setting: "the size of the values",
                value: values.bytes() as u64,
                advice: "they must have as many bytes as the rows",
            });
        }
        if tensor.file.is_some() {
            return Err(Error::ReadOnly { tensor: key.id });
        }
        if !tensor.can(operation) {
            return Err(Error::Config {
                setting: "the operation \"add\" on tensor",
                value: u64::from(key.id),
                advice: "its dtype has no addition; use \"set\"",
            });
        }
        if rows.count() == 0 {
            return Ok(tensor.version);
        }
        let (storage, memory) = (tensor.storage, tensor.memory);
        if self.table.storages.has_readers(storage) {
            self.changed.set(storage, (memory, tensor.row_bytes), rows);
            self.preserve();
        }
        self.sends.settle(memory);
        Ok(self.table.write(key.id, rows, operation, values))
    }

    /// The keeper of memory that nothing reads any more.
    pub fn take_retired(&mut self) -> Option<K> {
        self.table.storages.take_retired()
    }

    /// Add a peer that was granted `slots`, at most the shard's limit.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`].
    pub fn connect(&mut self, slots: u32, now: Instant) -> Result<PeerId, Error> {
        let value = self.peers.len() as u64 + 1;
        let maximum = u64::from(self.limits.peers_max);
        if value > maximum {
            return Err(Error::Limit {
                limit: "peers of a server",
                value,
                maximum,
                advice: "disconnect other peers, or use more shards",
            });
        }
        let slots = slots.min(self.limits.slots);
        let key = self.peers.insert_with(|key| {
            let mut peer = Box::new(Peer::new(slots, self.limits.grant_bytes, now));
            peer.answers.reader = key.index;
            peer
        });
        Ok(PeerId(key))
    }

    /// Remove a peer. It is fenced: its socket is closed. Idempotent.
    pub fn disconnect(&mut self, peer: PeerId) {
        if let Some(mut gone) = self.peers.remove(peer.0) {
            gone.clear(&mut self.table);
        }
    }

    /// The next bytes to send to a peer, in order; returns how many of `into` were set, 0 if there is nothing.
    ///
    /// They are valid until the shard is changed.
    pub fn outgoing(&mut self, peer: PeerId, into: &mut [Span]) -> usize {
        let Some(found) = self.peer(peer) else {
            return 0;
        };
        let (found, table) = found;
        found.answers.begin(&mut found.outbox, &mut table.storages);
        found.outbox.gather(into)
    }

    /// `bytes` of `outgoing` were sent.
    ///
    /// # Panics
    ///
    /// If there were fewer.
    pub fn sent(&mut self, peer: PeerId, bytes: usize, now: Instant) {
        if let Some((found, table)) = self.peer(peer) {
            found.sent(bytes, now, table);
        }
    }

    /// Whether there is something to send.
    pub fn wants_write(&self, peer: PeerId) -> bool {
        self.peers
            .get(peer.0)
            .is_some_and(|found| found.wants_write())
    }

    /// Where to receive the next bytes of a peer, in order; the first span is empty only for an unknown peer.
    pub fn incoming(&mut self, peer: PeerId) -> [Span; 2] {
        match self.peer(peer) {
            Some((found, _)) => found.incoming(),
            None => [Span::EMPTY; 2],
        }
    }

    /// `bytes` were received into the spans of `incoming`; processes the requests in them.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`]: close the socket, then [`Shard::disconnect`].
    pub fn received(&mut self, peer: PeerId, bytes: usize, now: Instant) -> Result<(), Error> {
        if let Some((found, _)) = self.peer(peer) {
            found.received(bytes, now);
        }
        loop {
            let Self {
                peers,
                table,
                changed,
                ..
            } = self;
            let Some(found) = peers.get_mut(peer.0) else {
                break;
            };
            match found.step(table)? {
                Step::Wait => break,
                Step::Again => {}
                Step::Read => self.reads(peer),
                Step::Apply => {
                    let (span, is_read) = found.changes(table, changed);
                    self.sends.settle(span);
                    if is_read {
                        self.preserve();
                    }
                    if let Some((found, table)) = self.peer(peer) {
                        found.apply(table);
                    }
                }
            }
        }
        Ok(())
    }

    /// As `incoming` and `received`, for bytes in a buffer of the caller.
    ///
    /// # Errors
    ///
    /// As [`Shard::received`].
    pub fn feed(&mut self, peer: PeerId, mut bytes: &[u8], now: Instant) -> Result<(), Error> {
        while !bytes.is_empty() {
            let count = fill(self.incoming(peer), bytes);
            if count == 0 {
                break;
            }
            bytes = &bytes[count..];
            self.received(peer, count, now)?;
        }
        Ok(())
    }

    /// Check a peer's silence; returns when to check again.
    ///
    /// # Errors
    ///
    /// [`Error::Silent`]: close the socket, then [`Shard::disconnect`].
    pub fn expire(&mut self, peer: PeerId, now: Instant) -> Result<Option<Instant>, Error> {
        let liveness = self.limits.liveness;
        match self.peer(peer) {
            Some((found, _)) => found.expire(now, liveness),
            None => Ok(None),
        }
    }

    /// Whether no request of a peer is half received, and nothing waits to be sent to it.
    pub fn is_quiet(&self, peer: PeerId) -> bool {
        self.peers.get(peer.0).is_none_or(|found| found.is_quiet())
    }

    fn peer(&mut self, peer: PeerId) -> Option<(&mut Peer, &mut Table<K>)> {
        let found = self.peers.get_mut(peer.0)?;
        Some((found, &mut self.table))
    }

    /// Peers with answers that read the memory of a tensor.
    #[cfg(test)]
    pub(crate) fn readers(&self, key: Key) -> usize {
        match self.table.find(key) {
            Found::Live(tensor) => self.table.storages.readers(tensor.storage),
            _ => 0,
        }
    }

    /// Copy the rows of all unsent answers that the current write changes.
    fn preserve(&mut self) {
        let Self {
            peers,
            table,
            changed,
            ..
        } = self;
        // Backwards: a reader whose last piece is copied is removed from the list.
        for at in (0..table.storages.readers(changed.storage)).rev() {
            let (peer, pieces) = table.storages.reader(changed.storage, at);
            if let Some((_, peer)) = peers.at_mut(peer) {
                peer.preserve(changed, pieces, table);
            }
        }
    }
}

fn stale(key: Key, current: u32) -> Error {
    Error::Stale {
        tensor: key.id,
        held: key.generation,
        current,
    }
}
