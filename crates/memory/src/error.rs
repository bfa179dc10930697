//! What can go wrong with a region.
use std::io;

use crate::reference::Reference;

/// Why a region refused. Every message names the arena, the values and the next step.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting or an argument is wrong; nothing has happened.
    #[error("arena {arena:?}: {setting} {value}; {advice}")]
    Config {
        /// The arena's name.
        arena: String,
        /// What is wrong.
        setting: &'static str,
        /// The value given.
        value: u64,
        /// What would be right.
        advice: &'static str,
    },
    /// The name cannot name an arena.
    #[error("arena name {name:?}: give 1 to 100 bytes without control characters")]
    Name {
        /// The name given.
        name: String,
    },
    /// Memory of another process that must not be mapped here.
    #[error(
        "this memory of another process cannot be read: {reason}; only a chunk of an arena can"
    )]
    Unsafe {
        /// What it lacks.
        reason: &'static str,
    },
    /// The limit `arena_bytes_max` leaves no room for the block.
    #[error(
        "arena {arena:?} is full: cannot allocate {asked} bytes with {live} bytes in use by {blocks} blocks; \
         arena_bytes_max is {limit}; free blocks, or make the arena larger"
    )]
    Full {
        /// The arena's name.
        arena: String,
        /// Bytes asked for.
        asked: u64,
        /// Bytes that live blocks asked for.
        live: u64,
        /// Live blocks.
        blocks: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// More than the limit `quarantine_bytes_max` waits for operations that were given up.
    #[error(
        "arena {arena:?}: cannot allocate {asked} bytes while {quarantined} bytes in {blocks} blocks are in quarantine, \
         because the kernel or a peer may still write them; quarantine_bytes_max is {limit}; \
         wait for their operations to end, or make the arena larger"
    )]
    Quarantine {
        /// The arena's name.
        arena: String,
        /// Bytes asked for.
        asked: u64,
        /// Bytes in quarantine.
        quarantined: u64,
        /// Blocks in quarantine.
        blocks: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The limit `registrars_max` is reached.
    #[error(
        "arena {arena:?} has {limit} registrars, which is registrars_max: detach one that is done"
    )]
    Registrars {
        /// The arena's name.
        arena: String,
        /// The limit.
        limit: usize,
    },
    /// A registrar that is being called for a chunk asked for what would call it for another one.
    #[error(
        "arena {arena:?}: a registrar cannot get a new chunk, attach or detach while it is called for a chunk; \
         do it on another thread, or before"
    )]
    Nested {
        /// The arena's name.
        arena: String,
    },
    /// The reference is from before a free, or names what never was.
    #[error(
        "arena {arena:?}: {reference} names no live block; it was freed after the reference was taken"
    )]
    Stale {
        /// The arena's name.
        arena: String,
        /// The reference.
        reference: Reference,
    },
    /// The reference belongs to another region.
    #[error(
        "arena {arena:?} is region {region:016x}; {reference} is of another one: ask the arena that made it"
    )]
    Foreign {
        /// The arena's name.
        arena: String,
        /// This region's number.
        region: u64,
        /// The reference.
        reference: Reference,
    },
    /// The region was closed by its owner.
    #[error("arena {arena:?} is closed; make another one")]
    Closed {
        /// The arena's name.
        arena: String,
    },
    /// A forked child used the region of its parent.
    #[error(
        "arena {arena:?} belongs to process {owner}, not to its forked child {child}: make an arena in the child"
    )]
    Forked {
        /// The arena's name.
        arena: String,
        /// Process that made the arena.
        owner: u32,
        /// Process that asked.
        child: u32,
    },
    /// A panic left the bookkeeping half changed; blocks in use stay valid, new ones are refused.
    #[error("the bookkeeping of arena {arena:?} was left unusable by an earlier panic")]
    Poisoned {
        /// The arena's name.
        arena: String,
    },
    /// The pages that were asked for are not to be had.
    #[error(
        "arena {arena:?}: no chunk of {bytes} bytes with backing {backing:?}: {reason}; \
         provide them, or give backing \"auto\", which takes what there is"
    )]
    Backing {
        /// The arena's name.
        arena: String,
        /// What was asked for.
        backing: &'static str,
        /// Size of the chunk.
        bytes: u64,
        /// Why not.
        reason: String,
    },
    /// The kernel refused memory or a descriptor.
    #[error("arena {arena:?}: {call} for a chunk of {bytes} bytes failed: {source}")]
    System {
        /// The arena's name.
        arena: String,
        /// The system call.
        call: &'static str,
        /// Size of the chunk.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
}
