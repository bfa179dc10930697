//! Takes the memory of destinations back before their pulls have ended: cancel, revoke, fence.
use forebay_memory::Lease;
use forebay_tensor::Error;

use super::pull::{Arrival, Kind};
use super::slot::{Pending, Settled};
use super::{Posted, Puller};

impl Puller {
    /// Cancel a pull: its block is in quarantine until its answer has come or the peer is fenced.
    /// Returns whether there was such a pull.
    pub fn cancel(&mut self, token: u64) -> bool {
        let Some((_, pending)) = self.pending_mut(token) else {
            return false;
        };
        pending.quarantined = Some(pending.into.quarantine());
        true
    }

    /// Revoke the owner's key for a pull, which ends with `error` once the device has done that: nothing can be
    /// written to its block any more. If the owner answers later the device breaks the connection. Returns whether
    /// there was such a pull.
    ///
    /// # Errors
    ///
    /// Why the connection is over.
    pub fn revoke(&mut self, token: u64, error: Error) -> Result<bool, Error> {
        let Some((at, pending)) = self.pending_mut(token) else {
            return Ok(false);
        };
        pending.is_over = true;
        let slot = &mut self.slots[at as usize];
        slot.is_lost = true;
        slot.registration = None;
        let Some(window) = &mut slot.window else {
            let result = Err(error);
            self.ready.push(Arrival(Kind::Slot { slot: at, result }));
            return Ok(true);
        };
        let revoked = |bound| Posted::Revoked {
            slot: at,
            error,
            _bound: bound,
        };
        window.revoke(&mut self.link, revoked)
    }

    /// Revoke the keys, and drop the leases, that idle slots keep on a block.
    /// The block is free once [`Puller::wait`] has taken the completions. Returns how many keys there were.
    ///
    /// # Errors
    ///
    /// Why the connection is over.
    pub fn release_keys(&mut self, block: &Lease) -> Result<usize, Error> {
        let mut left = 0;
        for slot in self.slots.iter_mut().filter(|slot| slot.pending.is_none()) {
            let Some(window) = slot.window.as_mut().filter(|window| window.covers(block)) else {
                continue;
            };
            window.revoke(&mut self.link, |bound| Posted::Released { _bound: bound })?;
            left += 1;
        }
        Ok(left)
    }

    /// The same for the blocks of all idle slots: the arena needs the memory.
    ///
    /// # Errors
    ///
    /// Why the connection is over.
    pub fn release_all_keys(&mut self) -> Result<usize, Error> {
        let mut left = 0;
        for slot in self.slots.iter_mut().filter(|slot| slot.pending.is_none()) {
            if let Some(window) = &mut slot.window {
                left += usize::from(
                    window.revoke(&mut self.link, |bound| Posted::Released { _bound: bound })?,
                );
            }
        }
        Ok(left)
    }

    /// Whether the device may still be revoking keys.
    pub fn is_releasing_keys(&self) -> bool {
        let is_left = |posted: &Posted| matches!(posted, Posted::Released { .. });
        self.link.broken().is_none() && self.link.posted().any(is_left)
    }

    /// Whether the memory of a block is registered, so that a pull can go there.
    pub fn reaches(&self, block: &Lease) -> bool {
        self.registry.find(block).is_ok()
    }

    /// An unfinished pull, and its slot's number.
    fn pending_mut(&mut self, token: u64) -> Option<(u32, &mut Pending)> {
        let slots = (0..).zip(&mut self.slots);
        let mut pending = slots.filter_map(|(at, slot)| Some((at, slot.pending.as_mut()?)));
        pending.find(|(_, pending)| pending.token == token && !pending.is_over)
    }

    /// Fence the peer: from now on it can write nothing. All pending pulls end with why the connection is over:
    /// `error`, or an earlier reason. Posted reads are dropped with the connection.
    pub fn break_off(&mut self, error: Error) -> Vec<Settled> {
        let error = self.link.fence(error);
        self.slots
            .iter_mut()
            .filter_map(|slot| slot.settle(Err(error.clone())))
            .collect()
    }
}
