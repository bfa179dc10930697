//! What stands for a pull on its way to its end.
use forebay_memory::Lease;
use forebay_tensor::Error;

use super::slot::Settled;
use crate::PULL_BYTES_MAX;

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
