//! A pull: what is asked for, and what stands for it on its way to its end.
use forebay_memory::Lease;

use super::slot::Settled;
use crate::error::Error;
use crate::table::Key;
use crate::verbs::PULL_BYTES_MAX;

/// Rows to pull.
#[derive(Debug)]
pub struct Pull {
    /// The caller's number of it, which comes back with its end.
    pub token: u64,
    /// The tensor.
    pub tensor: Key,
    /// The first row.
    pub first: u64,
    /// How many rows.
    pub rows: u64,
    /// The block that they go to. No reference to its bytes may be used until it is given back.
    pub into: Lease,
    /// Where in the block.
    pub at: usize,
    /// How many bytes the rows have; at most 1 GiB.
    pub bytes: usize,
}

/// What a pull that was prepared occupies.
#[must_use = "a slot that is prepared is taken until it is posted and answered"]
#[derive(Debug)]
pub struct Prepared {
    pub(super) slot: u32,
}

/// An end that has come and is to be settled.
#[must_use = "the memory of a pull is held until its arrival is settled"]
#[derive(Debug)]
pub struct Arrival(pub(super) Kind);

#[derive(Debug)]
pub(super) enum Kind {
    Slot {
        slot: u32,
        result: Result<(), Error>,
    },
    Read(Settled),
}

/// Whether a destination can be one.
pub(super) fn check_inside(block: &Lease, at: usize, bytes: usize) -> Result<(), Error> {
    let inside = at <= block.len() && bytes <= block.len() - at && bytes <= PULL_BYTES_MAX;
    if inside {
        return Ok(());
    }
    Err(Error::Config {
        setting: "the destination's bytes",
        value: bytes as u64,
        advice: "stay inside of the block, and take at most 1 GiB",
    })
}
