//! The slots of a puller: one request each at the owner, the owner's key, and the destination block.
use std::sync::Arc;

use forebay_memory::{Lease, Quarantined};
use forebay_tensor::Error;
use forebay_tensor::fabric::FabricPull;

use crate::sys::device::Domain;
use crate::sys::registration::Registration;
use crate::window::SlotWindow;
use crate::wire::{Answer, Status, protocol};

/// A pull that has not ended.
#[derive(Debug)]
struct Pending {
    token: u64,
    into: Lease,
    bytes: usize,
    /// Set once it was canceled.
    quarantined: Option<Quarantined>,
    /// Set once its answer has come, or its key was revoked: a second answer violates the protocol.
    is_over: bool,
}

/// How a pull ended.
#[derive(Debug)]
pub struct Settled {
    /// The number by which the caller names this pull.
    pub token: u64,
    /// Its destination. `None` if it was canceled: the block has left quarantine now.
    pub into: Option<Lease>,
    /// Whether the rows are in the destination; if not, its bytes are undefined.
    pub result: Result<(), Error>,
}

/// A slot for one request, here and at the owner.
#[derive(Debug, Default)]
struct Slot {
    /// Made at its first use, unless memory is registered per transfer.
    window: Option<SlotWindow>,
    registration: Option<Registration>,
    pending: Option<Pending>,
    /// The count of uses of the slot, so that a late answer is recognized.
    turn: u16,
    /// Whether the request itself is still being written: its bytes must stay as they are.
    is_sending: bool,
    /// Its key was revoked, and its answer has not come.
    is_lost: bool,
}

impl Slot {
    fn is_free(&self) -> bool {
        self.pending.is_none() && !self.is_sending && !self.is_lost
    }

    /// End its pull; memory that was registered for it only is deregistered first.
    fn settle(&mut self, result: Result<(), Error>) -> Option<Settled> {
        self.registration = None;
        let pending = self.pending.take()?;
        let into = pending.quarantined.is_none().then_some(pending.into);
        Some(Settled {
            token: pending.token,
            into,
            result,
        })
    }
}

/// All slots of a connection.
#[derive(Debug)]
pub(super) struct SlotTable {
    slots: Vec<Slot>,
}

impl SlotTable {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn has_free(&self) -> bool {
        self.slots.iter().any(Slot::is_free)
    }

    /// A free slot: preferably one with a key on the block already, then one without a key, then any.
    pub(super) fn best(&self, block: &Lease) -> Option<u32> {
        let free = (0..).zip(&self.slots).filter(|(_, slot)| slot.is_free());
        let rank = |(_, slot): &(u32, &Slot)| match &slot.window {
            Some(window) if window.covers(block) => 0,
            Some(window) if !window.is_idle() => 2,
            _ => 1,
        };
        let mut best: Option<(u32, u32)> = None;
        for each in free {
            let rank = rank(&each);
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, each.0));
            }
            if rank == 0 {
                break;
            }
        }
        best.map(|(_, at)| at)
    }

    /// The window of a slot, made at its first use.
    pub(super) fn window(
        &mut self,
        slot: u32,
        domain: &Arc<Domain>,
    ) -> Result<&mut SlotWindow, Error> {
        match &mut self.slots[slot as usize].window {
            Some(window) => Ok(window),
            none => Ok(none.insert(SlotWindow::new(domain)?)),
        }
    }

    /// Keep the registration of a destination until the slot's pull has ended.
    pub(super) fn register(&mut self, slot: u32, registration: Registration) {
        self.slots[slot as usize].registration = Some(registration);
    }

    /// A pull takes a free slot; returns the turn of the slot, which its answer repeats.
    pub(super) fn take(&mut self, slot: u32, pull: FabricPull) -> u16 {
        let slot = &mut self.slots[slot as usize];
        slot.turn = slot.turn.wrapping_add(1);
        slot.is_sending = true;
        slot.pending = Some(Pending {
            token: pull.token,
            into: pull.into,
            bytes: pull.bytes,
            quarantined: None,
            is_over: false,
        });
        slot.turn
    }

    /// The request of a slot is sent.
    pub(super) fn sent(&mut self, slot: u32) {
        self.slots[slot as usize].is_sending = false;
    }

    /// An answer has come, with `bytes` of rows. Returns whether it ends a pull: not one that was revoked before.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] for an answer that no request has, or of another length.
    pub(super) fn answer(&mut self, answer: Answer, bytes: u32) -> Result<bool, Error> {
        let slot = self
            .slots
            .get_mut(answer.slot as usize)
            .filter(|slot| slot.turn == answer.turn);
        let slot = slot.ok_or_else(|| protocol("an answer without a request"))?;
        if slot.is_lost {
            slot.is_lost = false;
            return Ok(false);
        }
        let pending = slot.pending.as_mut().filter(|pending| !pending.is_over);
        let pending = pending.ok_or_else(|| protocol("a second answer"))?;
        let expected = if answer.status == Status::Ok {
            pending.bytes
        } else {
            0
        };
        if bytes as usize != expected {
            return Err(protocol("an answer of another length than its request"));
        }
        pending.is_over = true;
        Ok(true)
    }

    /// End the pull of a slot, which frees it. `None` if it has ended.
    pub(super) fn settle(&mut self, slot: u32, result: Result<(), Error>) -> Option<Settled> {
        self.slots[slot as usize].settle(result)
    }

    /// End all pulls with this error.
    pub(super) fn settle_all(&mut self, error: &Error) -> Vec<Settled> {
        self.slots
            .iter_mut()
            .filter_map(|slot| slot.settle(Err(error.clone())))
            .collect()
    }

    /// Put the block of a pull in quarantine. Returns whether there was such a pull.
    pub(super) fn cancel(&mut self, token: u64) -> bool {
        let Some((_, pending)) = self.pending_mut(token) else {
            return false;
        };
        pending.quarantined = Some(pending.into.quarantine());
        true
    }

    /// A pull ends before its answer: its slot, and the window whose key must be revoked first.
    pub(super) fn lose(&mut self, token: u64) -> Option<(u32, Option<&mut SlotWindow>)> {
        let (at, pending) = self.pending_mut(token)?;
        pending.is_over = true;
        let slot = &mut self.slots[at as usize];
        slot.is_lost = true;
        slot.registration = None;
        Some((at, slot.window.as_mut()))
    }

    /// The windows of slots without a pull.
    pub(super) fn idle_windows(&mut self) -> impl Iterator<Item = &mut SlotWindow> {
        let idle = self.slots.iter_mut().filter(|slot| slot.pending.is_none());
        idle.filter_map(|slot| slot.window.as_mut())
    }

    /// An unfinished pull, and its slot's number.
    fn pending_mut(&mut self, token: u64) -> Option<(u32, &mut Pending)> {
        let slots = (0..).zip(&mut self.slots);
        let mut pending = slots.filter_map(|(at, slot)| Some((at, slot.pending.as_mut()?)));
        pending.find(|(_, pending)| pending.token == token && !pending.is_over)
    }
}
