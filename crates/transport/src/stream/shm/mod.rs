//! Shared memory between two processes of one user: a stream of bytes through a ring, and frames by reference.
//!
//! Each side owns a region, in which it alone writes and which the other maps read-only. [`SharedStream`] is what the message
//! state machine sees: a [`crate::stream::Stream`] that can also put a long frame aside and send its name instead.
//! The design note, with state machines, invariants and the table of failures, is `docs/concepts/transport/shared_memory.md`.
//!
//! | module | what |
//! |---|---|
//! | `ring` | cursors of the ring, sleeping and waking; pure, checked with loom |
//! | `lifeline` | records and descriptors over the Unix socket |
//! | `own` | our side: region, control block, frames to lend |
//! | `peer` | the peer's side: windows, received frames |
//! | `stream` | both together |
//!
//! What a peer may still read, and what it may name, is of `share`, as for segments of calls: `ledger`, `return_table`,
//! `loans`, `windows`.

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod lifeline;
mod own;
mod peer;
pub(crate) mod ring;
pub(crate) mod stream;
#[cfg(test)]
mod stream_tests;
pub(crate) mod sync;

pub use stream::SharedStream;

use forebay_base::PerProcess;

use crate::share::loans::Peers;

/// The frames of all connections. Those in arenas, which outlive a connection, stay until nobody reads them.
static PEERS: PerProcess<Peers> = PerProcess::new();

/// Take back what peers have released, whether their connections are open or not; returns whether that was anything.
///
/// For where memory is short: it looks at every frame that is lent.
pub fn reclaim() -> bool {
    peers().sweep()
}

/// As [`reclaim`], but for the peers of closed connections alone: when a connection opens or closes.
fn reclaim_closed() {
    peers().sweep_closed();
}

fn peers() -> &'static Peers {
    PEERS.get_or_init(Peers::default)
}

/// A name of a frame on the wire.
pub const NAME_BYTES: usize = 32;

/// Where a frame lies in the region of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    pub chunk: u32,
    pub slot: u32,
    pub generation: u64,
    pub offset: u64,
    pub bytes: u64,
}

impl Name {
    /// Write it out.
    pub fn encode(&self) -> [u8; NAME_BYTES] {
        let mut out = [0; NAME_BYTES];
        out[0..4].copy_from_slice(&self.chunk.to_le_bytes());
        out[4..8].copy_from_slice(&self.slot.to_le_bytes());
        out[8..16].copy_from_slice(&self.generation.to_le_bytes());
        out[16..24].copy_from_slice(&self.offset.to_le_bytes());
        out[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        out
    }

    /// Read it; any bytes are a name.
    pub fn decode(bytes: &[u8; NAME_BYTES]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        Self {
            chunk: half(0),
            slot: half(4),
            generation: word(8),
            offset: word(16),
            bytes: word(24),
        }
    }
}

/// The control block of a side: words, each on a cache line of its own, the return table, the ring.
mod layout {
    use crate::limit::RING_BYTES;
    use crate::share::return_table;

    /// How many bytes its owner has written into its ring.
    pub const TAIL: usize = 0;
    /// How many bytes its owner has read of the other ring.
    pub const HEAD: usize = 64;
    /// Odd while its owner sleeps for input, and for room.
    pub const SLEEPS_FOR_INPUT: usize = 128;
    pub const SLEEPS_FOR_ROOM: usize = 192;
    /// Which frames its owner has received, and given back.
    pub const RETURNED: usize = 4096;
    pub const RING: usize = RETURNED + return_table::BYTES;
    pub const BYTES: usize = RING + RING_BYTES;
}
