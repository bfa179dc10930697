//! A pull on its way: prepared, then arrived.
use forebay_memory::Lease;
use forebay_tensor::Error;

use super::slot::Settled;
use crate::PULL_BYTES_MAX;

/// A prepared pull, which occupies a slot.
#[must_use = "a prepared slot stays occupied until it is posted and answered"]
#[derive(Debug)]
pub struct Prepared {
    pub(super) slot: u32,
}

/// The end of a pull or read, to be settled by [`Puller::settle`](crate::Puller::settle).
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

/// Check a destination.
pub(super) fn check_inside(block: &Lease, at: usize, bytes: usize) -> Result<(), Error> {
    let inside = at <= block.len() && bytes <= block.len() - at && bytes <= PULL_BYTES_MAX;
    if inside {
        return Ok(());
    }
    Err(Error::Config {
        setting: "the destination's bytes",
        value: bytes as u64,
        advice: "stay inside of the block, and use at most 1 GiB",
    })
}
