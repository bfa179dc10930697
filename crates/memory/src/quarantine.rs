//! Keeping a block that the kernel or a peer may still write, as after a read whose caller has stopped waiting.
//!
//! Source: a cancelled disk read is carried out all the same, and a ring that was closed with reads in flight
//! wrote half of their buffers afterwards (docs/concepts/blockio.md, "Why is closing so careful?").
use crate::lease::Lease;
use crate::reference::Reference;

/// Keeps a block whatever other leases are dropped, and has it counted as one that may still change.
///
/// Drop it, on any thread, when the block cannot be written any more.
/// Several of one block count once.
#[must_use = "dropping it says that the block is not written any more"]
#[derive(Debug)]
pub struct Quarantined(Lease);

impl Quarantined {
    /// The block's name.
    pub fn reference(&self) -> Reference {
        self.0.reference()
    }
}

impl Lease {
    /// Put the block into quarantine for as long as the result lives.
    ///
    /// While more than the limit `quarantine_bytes_max` is there, [`Region::allocate`](crate::Region::allocate) refuses.
    /// This itself never does: what the kernel writes, it writes.
    pub fn quarantine(&self) -> Quarantined {
        self.region().enter_quarantine(self.reference());
        Quarantined(self.clone())
    }
}

impl Drop for Quarantined {
    fn drop(&mut self) {
        // Before the lease goes: a block that is counted is a live one.
        self.0.region().leave_quarantine(self.0.reference());
    }
}
