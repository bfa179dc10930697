//! A slot of a puller: one request at the owner, the key that it may write by, and whose memory that is.
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
    /// Set where nobody waits for it any more.
    pub(super) quarantined: Option<Quarantined>,
    /// Set once its answer has come, or its key was taken back: a second answer is a lie.
    pub(super) is_over: bool,
}

/// How a pull ended.
#[derive(Debug)]
pub struct Settled {
    /// The caller's number of it.
    pub token: u64,
    /// Its destination, which is the caller's again. None where it was cancelled: the block is out of quarantine now.
    pub into: Option<Lease>,
    /// Whether the rows are there; where not, its bytes are undefined.
    pub result: Result<(), Error>,
}

/// A place for one request, here and at the owner.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Made at its first use, and not where transfers register for themselves.
    pub(super) window: Option<SlotWindow>,
    pub(super) registration: Option<Registration>,
    pub(super) pending: Option<Pending>,
    /// Which use of the slot this is.
    pub(super) turn: u16,
    /// Whether the request itself is still being written: its bytes must stay as they are.
    pub(super) is_sending: bool,
    /// Its key was taken back, and its answer has not come.
    pub(super) is_lost: bool,
}

impl Slot {
    pub(super) fn is_free(&self) -> bool {
        self.pending.is_none() && !self.is_sending && !self.is_lost
    }

    /// End its pull; the memory that was registered for it alone is unregistered first.
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
