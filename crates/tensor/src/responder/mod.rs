//! The peers of one shard: what they ask for, in which order it is answered. Sans-I/O.
//!
//! # Invariants
//!
//! 1. Each entry of a request that keeps to the protocol is answered once, with its rows or with why not.
//! 2. A peer has at most `slots` requests and `grant_bytes` of answers that have not begun; one more breaks the protocol.
//! 3. A push is applied whole, when all of its values have come, and between answers:
//!    what has not gone out is copied before its rows change.
//! 4. Memory of a tensor is read by answers that hold its storage, and by nothing after a disconnect.
mod answers;
mod peer;
mod reads;
mod sends;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::inbox::fill;
use crate::names::{Meaning, Unknown};
use crate::requester::Rows;
use crate::shm::SharedIndex;
use crate::slab::{Id, Slab};
use crate::sys::span::Span;
use crate::table::{Changed, Description, Exports, Found, Key, Table, check_indices, check_slice};
use crate::version_table::VersionTable;
use crate::wire::Operation;
use peer::{Peer, Step};
pub use reads::{ReadId, Room};
use sends::Sends;

/// What a shard grants its peers, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardLimits {
    /// Requests that each peer may have with us at most, 1 to 1024.
    pub slots: u32,
    /// Bytes of responses that each peer may have with us.
    pub grant_bytes: u64,
    /// Tensors that there may be.
    pub tensors_max: u32,
    /// Peers that there may be.
    pub peers_max: u32,
    /// How long a peer may take nothing while something is to be sent to it, or leave a request half sent.
    pub liveness: Duration,
    /// Memory for rows that are read from files, until they have gone out; pulls wait for it.
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

/// Names a peer of a shard, for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(Id);

impl PeerId {
    /// Its place, for a table of the caller's; another peer may have it later.
    pub fn index(self) -> usize {
        self.0.index as usize
    }
}

/// The tensors of one server thread, and the peers that pull and push their rows.
///
/// `K` keeps the memory of a tensor; it comes back by [`Shard::take_retired`] when nothing reads that any more.
/// Used by one thread at a time.
#[derive(Debug)]
pub struct Shard<K> {
    limits: ShardLimits,
    table: Table<K>,
    peers: Slab<Box<Peer>>,
    /// Peers that have something to read, in the order of their turns.
    readers: VecDeque<PeerId>,
    /// What is about to change, while it is.
    changed: Changed,
    /// Devices that read rows by themselves.
    sends: Sends,
}

impl<K> Shard<K> {
    /// A shard without tensors and peers.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for slots that are not 1 to 1024, or a grant of nothing or above 2^40 bytes.
    pub fn new(limits: ShardLimits) -> Result<Self, Error> {
        crate::requester::check_limits(limits.slots, limits.grant_bytes)?;
        let mut table = Table::new(limits.tensors_max);
        table.staging_bytes = limits.staging_bytes;
        Ok(Self {
            limits,
            table,
            peers: Slab::new(),
            readers: VecDeque::new(),
            changed: Changed::new(),
            sends: Sends::default(),
        })
    }

    /// Make a name mean the tensor in `memory`; one that had the name is replaced.
    ///
    /// The memory is the shard's until the keeper comes back: only [`Shard::write`] and pushes change it.
    ///
    /// # Errors
    ///
    /// With the keeper: [`Error::Name`] for a name that cannot be one; [`Error::Config`] for a shape without rows or
    /// with rows of no bytes, or where the memory has another size; [`Error::Limit`] for one tensor too many.
    pub fn publish(
        &mut self,
        name: &str,
        description: Description,
        memory: Span,
        keeper: K,
    ) -> Result<Key, (Error, K)> {
        self.publish_exported(name, description, (memory, Exports::default()), keeper)
    }

    /// The same with what others reach the memory by.
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

    /// Have `board` say which tensors may be read from shared memory, from now on.
    pub fn attach_versions(&mut self, versions: VersionTable) {
        self.table.attach_versions(versions);
    }

    /// Have tensors told of where others can map them; none is there yet.
    ///
    /// # Errors
    ///
    /// As [`VersionTable::new`].
    pub(crate) fn attach_index(&mut self, index: SharedIndex) -> Result<(), Error> {
        self.table.attach_index(index)
    }

    /// Make a name mean nothing. Answers that have been asked for still go out.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`].
    pub fn drop_tensor(&mut self, name: &str) -> Result<(), Error> {
        self.table.drop_tensor(name)
    }

    /// What a name means.
    ///
    /// # Errors
    ///
    /// The nearest names that there are.
    pub fn meaning(&self, name: &str) -> Result<Meaning, Unknown> {
        self.table.meaning(name)
    }

    /// Set rows, or add to them, as a push does; returns the version that this makes.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`], [`Error::OutOfRange`]; [`Error::Config`] for values of another size,
    /// or a dtype that cannot be added.
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
                advice: "they are to have as many bytes as the rows",
            });
        }
        if tensor.file.is_some() {
            return Err(Error::ReadOnly { tensor: key.id });
        }
        if !tensor.can(operation) {
            return Err(Error::Config {
                setting: "the operation \"add\" on tensor",
                value: u64::from(key.id),
                advice: "its dtype is no number; use \"set\"",
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

    /// A peer has connected, which was granted `slots`: the shard's limit at most.
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
                advice: "let others go first, or use more shards",
            });
        }
        let slots = slots.min(self.limits.slots);
        let peer = Peer::new(slots, self.limits.grant_bytes, now);
        let id = self.peers.insert(Box::new(peer));
        if let Some(peer) = self.peers.get_mut(id.index) {
            peer.answers.reader = id.index;
        }
        Ok(PeerId(id))
    }

    /// A peer is gone, and fenced: its socket is closed. Idempotent.
    pub fn disconnect(&mut self, peer: PeerId) {
        if self.peers.has(peer.0)
            && let Some(mut gone) = self.peers.remove(peer.0.index)
        {
            gone.clear(&mut self.table);
        }
    }

    /// The next bytes to send to a peer, in order; returns how many of `into` were set, 0 where there is nothing.
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

    /// So many of the bytes that `outgoing` gave have been taken.
    ///
    /// # Panics
    ///
    /// Where it gave fewer.
    pub fn sent(&mut self, peer: PeerId, bytes: usize, now: Instant) {
        if let Some((found, table)) = self.peer(peer) {
            found.sent(bytes, now, table);
        }
    }

    /// Whether there is something to send.
    pub fn wants_write(&self, peer: PeerId) -> bool {
        let found = self.peers.at(peer.0.index);
        found.is_some_and(|(number, found)| number == peer.0 && found.wants_write())
    }

    /// Where the next bytes from a peer go, in order; the second may be empty, the first only for a peer that is gone.
    pub fn incoming(&mut self, peer: PeerId) -> [Span; 2] {
        match self.peer(peer) {
            Some((found, _)) => found.incoming(),
            None => [Span::EMPTY; 2],
        }
    }

    /// So many bytes have come where `incoming` said. Carries out what they ask for.
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
            if !peers.has(peer.0) {
                break;
            }
            let Some(found) = peers.get_mut(peer.0.index) else {
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

    /// As `incoming` and `received`, for bytes that are in a buffer of the caller's.
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

    /// Look after a peer's silence; returns by when to look again.
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

    /// Whether nothing of a peer is half received, and nothing is to be sent to it.
    pub fn is_quiet(&self, peer: PeerId) -> bool {
        let found = self.peers.at(peer.0.index);
        found.is_none_or(|(number, found)| number != peer.0 || found.is_quiet())
    }

    fn peer(&mut self, peer: PeerId) -> Option<(&mut Peer, &mut Table<K>)> {
        if !self.peers.has(peer.0) {
            return None;
        }
        let found = self.peers.get_mut(peer.0.index)?;
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

    /// Have all answers that read what is about to change copied.
    fn preserve(&mut self) {
        let Self {
            peers,
            table,
            changed,
            ..
        } = self;
        // From the last one on: a reader that is left with nothing leaves the list.
        for at in (0..table.storages.readers(changed.storage)).rev() {
            let (peer, pieces) = table.storages.reader(changed.storage, at);
            if let Some(peer) = peers.get_mut(peer) {
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
