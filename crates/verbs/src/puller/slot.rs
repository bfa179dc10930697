//! A slot of a puller: one request at the owner, the owner's key, and the destination block.
use forebay_memory::{Lease, Quarantined};
use forebay_tensor::Error;

use crate::sys::registration::Registration;
use crate::window::SlotWindow;

/// A pull that has not ended.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) token: u64,
    pub(super) into: Lease,
    pub(super) bytes: usize,
    /// Set once it was canceled.
    pub(super) quarantined: Option<Quarantined>,
    /// Set once its answer has come, or its key was revoked: a second answer violates the protocol.
    pub(super) is_over: bool,
}

/// How a pull ended.
#[derive(Debug)]
pub struct Settled {
    /// The caller's token.
    pub token: u64,
    /// Its destination. `None` if it was canceled: the block has left quarantine now.
    pub into: Option<Lease>,
    /// Whether the rows are in the destination; if not, its bytes are undefined.
    pub result: Result<(), Error>,
}

/// A slot for one request, here and at the owner.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Made at its first use, unless memory is registered per transfer.
    pub(super) window: Option<SlotWindow>,
    pub(super) registration: Option<Registration>,
    pub(super) pending: Option<Pending>,
    /// The count of uses of the slot, so that a late answer is recognized.
    pub(super) turn: u16,
    /// Whether the request itself is still being written: its bytes must stay as they are.
    pub(super) is_sending: bool,
    /// Its key was revoked, and its answer has not come.
    pub(super) is_lost: bool,
}

impl Slot {
    pub(super) fn is_free(&self) -> bool {
        self.pending.is_none() && !self.is_sending && !self.is_lost
    }

    /// End its pull; memory that was registered for it only is deregistered first.
    pub(super) fn settle(&mut self, result: Result<(), Error>) -> Option<Settled> {
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
