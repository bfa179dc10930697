//! Memory for the requests of a connection, and for what is answered beside rows: a part per slot.
use std::sync::Arc;

use forebay_memory::{Lease, Region};
use forebay_tensor::Error;

use crate::registry::{Registry, local_part};
use crate::sys::bytes::copy_in;
use crate::sys::pair::LocalPart;
use crate::sys::registration::Registration;
use crate::wire::SLOT_BYTES;

/// Allocate memory for the requests of `slots`.
pub(super) fn allocate(region: &Region, slots: u32) -> Result<Lease, Error> {
    let bytes = slots as usize * SLOT_BYTES;
    region
        .allocate(bytes.max(1))
        .map_err(|error| Error::Broken {
            why: format!("no memory for requests: {error}"),
        })
}

/// Memory that is sent from.
#[derive(Debug)]
pub(super) struct Outbox {
    block: Lease,
    registration: Arc<Registration>,
}

impl Outbox {
    /// # Errors
    ///
    /// [`Error::Broken`] without memory, [`Error::Config`] for a region that is not registered.
    pub(super) fn new(region: &Region, registry: &Registry, slots: u32) -> Result<Self, Error> {
        let block = allocate(region, slots)?;
        let registration = registry.find(&block)?;
        Ok(Self {
            block,
            registration,
        })
    }

    /// Write what a slot sends next.
    pub(super) fn write(&self, slot: u32, bytes: &[u8]) {
        copy_in(&self.block, slot as usize * SLOT_BYTES, bytes);
    }

    /// The first `bytes` of a slot's part, for the device.
    pub(super) fn part(&self, slot: u32, bytes: usize) -> LocalPart {
        let at = slot as usize * SLOT_BYTES;
        local_part(&self.registration, &self.block, at, bytes)
    }
}
