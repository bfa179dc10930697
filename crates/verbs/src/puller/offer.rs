//! The requester's end before it is connected, for callers that exchange the introductions themselves.
use std::sync::Arc;

use forebay_tensor::Error;

use super::{Posted, Puller, sends_of};
use crate::Registering;
use crate::device::Device;
use crate::link::Unconnected;
use crate::requests::Outbox;
use crate::sys::pair::RemotePart;
use crate::wire::{decode_answer, protocol};

/// A queue pair and memory for requests, to be introduced to an owner.
pub struct Offer {
    device: Arc<Device>,
    unconnected: Unconnected<Posted>,
    outbox: Outbox,
}

impl Offer {
    /// An end with at most `slots` requests in flight.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for slots outside of 1 to 1024, [`Error::Broken`] if the device gives no queue pair.
    pub fn new(device: &Arc<Device>, slots: u32) -> Result<Self, Error> {
        let unconnected = Unconnected::new(&device.adapter, slots, sends_of(slots))?;
        let outbox = Outbox::new(&device.requests, &device.registry, slots)?;
        Ok(Self {
            device: Arc::clone(device),
            unconnected,
            outbox,
        })
    }

    /// The introduction for the owner's `Responder::accept`.
    pub fn introduction(&self) -> Vec<u8> {
        self.unconnected.ours.encode().to_vec()
    }

    /// Connect to the owner by its answer. The caller watches the stream for its end, and breaks off then.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] for an invalid answer, [`Error::Broken`] if the device refuses.
    pub fn connect(self, answer: &[u8]) -> Result<Puller, Error> {
        let (peer, inbox) = decode_answer(answer)?;
        if inbox == RemotePart::default() {
            return Err(protocol("the peer accepts no requests"));
        }
        let granted = self.unconnected.ours.slots.min(peer.slots);
        let link = self.unconnected.connect(&peer, None)?;
        let Device {
            adapter, registry, ..
        } = &*self.device;
        let places = (adapter, registry, Registering::Once);
        Ok(Puller::assemble(link, granted, inbox, self.outbox, places))
    }
}
