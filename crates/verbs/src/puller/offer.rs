//! The requester's end before it is connected, for who sets connections up by messages of its own.
use std::sync::Arc;

use forebay_tensor::Error;

use super::{Posted, Puller, READS_MAX, SENDS_PER_SLOT};
use crate::Registering;
use crate::device::Device;
use crate::link::Unmet;
use crate::puller::{Ends, allocate};
use crate::sys::pair::RemotePart;
use crate::wire::{SLOT_BYTES, decode_answer, protocol};

/// A queue pair and room for requests, which an owner is told of.
pub struct Offer {
    device: Arc<Device>,
    unmet: Unmet<Posted>,
    ends: Ends,
}

impl Offer {
    /// An end that would have so many requests with the owner.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for slots that are not 1 to 1024, [`Error::Broken`] where the device gives no queue pair.
    pub fn new(device: &Arc<Device>, slots: u32) -> Result<Self, Error> {
        let sends = slots
            .saturating_mul(SENDS_PER_SLOT)
            .saturating_add(READS_MAX);
        let unmet = Unmet::new(&device.adapter, slots, sends)?;
        let outbox = allocate(&device.requests, slots as usize * SLOT_BYTES)?;
        let outbox_registration = device.registry.find(&outbox)?;
        Ok(Self {
            device: Arc::clone(device),
            unmet,
            ends: Ends {
                outbox,
                outbox_registration,
            },
        })
    }

    /// What the owner is to be told, by [`Answerer::meet`](crate::Answerer::meet).
    pub fn introduction(&self) -> Vec<u8> {
        self.unmet.ours.encode().to_vec()
    }

    /// Connect to the owner that answered so. Who holds the stream watches for its end, and breaks off then.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] for what is no answer, [`Error::Broken`] where the device refuses.
    pub fn accepted(self, answer: &[u8]) -> Result<Puller, Error> {
        let (peer, inbox) = decode_answer(answer)?;
        if inbox == RemotePart::default() {
            return Err(protocol("it takes no requests"));
        }
        let granted = self.unmet.ours.slots.min(peer.slots);
        let link = self.unmet.meet(&peer, None)?;
        let Device {
            adapter, registry, ..
        } = &*self.device;
        let places = (adapter, registry, Registering::Once);
        Ok(Puller::assemble(link, granted, inbox, self.ends, places))
    }
}
