//! Getting a service: at once, by a ticket that waits its turn, or by starting one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_base::Queue;

use super::ClientState;
use crate::client::link::Link;
use crate::client::{Answer, Policy, Wake};
use crate::clock::now_ms;
use crate::control;
use crate::death::Cause;
use crate::error::{Error, Result};
use crate::limit::SERVICES_MAX;
use crate::machine::{CallerGroup, Grant, Key, Ticket};
use crate::wire::{Deadlines, Handle, KeeperRequest};

impl ClientState {
    pub fn take(&mut self, key: Key, group: CallerGroup) -> Option<Handle> {
        let now = now_ms();
        loop {
            let (link, policy) = (&self.link, &self.policy);
            // Of a quiet one `ask` says so.
            let loud = |slot| !is_quiet(link, policy, slot, now);
            let slot = self.machine.take(key, group, loud)?;
            if let Some(handle) = self.claim(slot, true, now) {
                return Some(handle);
            }
            self.drop_service(slot, Cause::Discarded);
        }
    }

    pub fn join(&mut self, key: Key, group: CallerGroup) -> Option<Handle> {
        while let Some(slot) = self.machine.join(key, group) {
            if let Some(handle) = self.begin_joined(slot) {
                return Some(handle);
            }
            self.machine.unjoin(slot);
            self.drop_service(slot, Cause::Discarded);
        }
        None
    }

    pub fn ask(&mut self, key: Key, group: CallerGroup) -> Result<Answer> {
        if !self.machine.has_idle(key) {
            self.drive()?;
        }
        let ticket = self.waiters.next_ticket();
        while let Some(grant) =
            self.decide(|machine, actions| machine.ask(ticket, key, group, actions))
        {
            if let Some(answer) = self.answer(grant) {
                return Ok(answer);
            }
            if let Grant::Join { slot } = grant {
                self.machine.unjoin(slot);
            }
            self.drop_service(grant.slot(), Cause::Discarded);
        }
        // Where no start has ended yet, what settles was started earlier than anything that could be
        // started now: no grace ends the wait for it.
        let known = self.start_times.known(key).unwrap_or(0);
        let settling = self.machine.settling_of(key) > 0;
        self.stats.waits += 1;
        Ok(Answer::Wait {
            ticket,
            grace_ms: if settling { known } else { 0 },
        })
    }

    pub fn await_on(&mut self, ticket: Ticket, queue: &Arc<Queue<Wake>>) {
        let granted = self.machine.granted(ticket).is_some();
        self.waiters.await_on(ticket, queue, granted);
    }

    pub fn collect(&mut self, ticket: Ticket) -> Option<Answer> {
        while let Some(grant) = self.machine.granted(ticket) {
            if let Some(answer) = self.answer(grant) {
                self.machine.collect(ticket);
                return Some(answer);
            }
            // The ticket goes back to the head of the queue, and may be granted again at once.
            self.drop_service(grant.slot(), Cause::Discarded);
        }
        None
    }

    /// What a grant comes to; None where its service has ended meanwhile.
    fn answer(&mut self, grant: Grant) -> Option<Answer> {
        match grant {
            Grant::Start { slot } => Some(Answer::Start {
                handle: self.begin(slot),
            }),
            Grant::Join { slot } => {
                let handle = self.begin_joined(slot)?;
                Some(Answer::Joined { handle })
            }
            Grant::Take { slot, settled } => self.lend_granted(slot, settled),
        }
    }

    fn lend_granted(&mut self, slot: u32, settled: bool) -> Option<Answer> {
        let now = now_ms();
        let quiet = settled && is_quiet(&self.link, &self.policy, slot, now);
        let handle = self.claim(slot, settled, now)?;
        self.unwatch(slot);
        Some(Answer::Lent {
            handle,
            settled,
            quiet,
        })
    }

    pub fn share(&mut self, key: Key, leases: u32) {
        self.machine.share(key, leases);
    }

    pub fn open(&mut self, handle: Handle) -> Result<()> {
        self.entries.lease(handle)?;
        let slot = handle.slot;
        if self.worn(slot, now_ms()).is_none() {
            self.decide(|machine, actions| machine.open(slot, actions));
        } // else it ends with the lease that it has
        Ok(())
    }

    /// A further lease of a shared service, if it lives.
    fn begin_joined(&mut self, slot: u32) -> Option<Handle> {
        let entry = self.entries.at(slot);
        if !entry.is_lent() || entry.is_dead() || !entry.is_silent(false) {
            return None;
        }
        let handle = entry.handle(slot);
        entry.join();
        if self.worn(slot, now_ms()).is_some() {
            self.machine.close(slot);
        }
        self.note_lease(slot);
        Some(handle)
    }

    pub fn refill(&mut self, key: Key) -> Result<Option<Handle>> {
        self.drive()?;
        let slot = self.machine.refill(key, self.link.min_idle(key));
        Ok(slot.map(|slot| self.begin(slot)))
    }

    pub fn keep(&mut self, key: Key, min_idle: u32) -> Result<()> {
        self.link.keep(key, min_idle)
    }

    pub fn hurry(&mut self, ticket: Ticket) {
        self.decide(|machine, actions| machine.hurry(ticket, actions));
    }

    pub fn leave(&mut self, ticket: Ticket) {
        self.waiters.leave(ticket);
        self.decide(|machine, actions| machine.leave(ticket, actions));
    }

    pub fn branch(
        &mut self,
        parent: Handle,
        key: Key,
        deadlines: Deadlines,
    ) -> Result<(Handle, OwnedFd)> {
        self.entries.lease(parent)?;
        let slot = self.machine.branch(key);
        let handle = self.begin(slot);
        let started = self.start(handle, deadlines, None, |deadlines| KeeperRequest::Branch {
            handle,
            parent,
            deadlines,
        });
        match started {
            Ok(socket) => Ok((handle, socket)),
            Err(error) => {
                self.discard(handle, Cause::Discarded)?;
                Err(error)
            }
        }
    }

    /// Have the keeper start a service in room that was granted, with a socket of its own where one is given.
    /// Returns the caller's end of the service's socket.
    pub fn start(
        &mut self,
        handle: Handle,
        mut deadlines: Deadlines,
        own: Option<BorrowedFd<'_>>,
        request: impl FnOnce(Deadlines) -> KeeperRequest,
    ) -> Result<OwnedFd> {
        if self.entries.lease(handle)?.is_dead() {
            // Room that was granted under a keeper that is lost is counted as a death: nothing may be started in it by
            // the next keeper.
            return Err(Error::KeeperLost);
        }
        expect_word(handle.slot)?;
        let (ours, theirs) = control::stream_pair()?;
        let watched = ours.try_clone().map_err(|source| Error::System {
            what: "dup of a socket".into(),
            source,
        })?;
        deadlines.key = self.machine.key_of(handle.slot);
        let stateful = deadlines.limits.stateful;
        if stateful {
            self.machine.keep(deadlines.key);
            (deadlines.idle_ms, deadlines.private_bytes_max) = (0, 0);
        } else {
            deadlines.lifetime_ms = jittered(self.policy.lifetime_ms, handle);
        }
        let lifetime_ms = deadlines.lifetime_ms;
        let request = request(deadlines);
        let mut descriptors = vec![theirs.as_fd(), ours.as_fd()];
        descriptors.extend(own);
        self.link.send(&request, &descriptors)?;
        let entry = self.entries.at(handle.slot);
        entry.asked(watched, stateful, lifetime_ms);
        Ok(ours)
    }
}

/// Whether a service has been idle for so long that it should be asked whether it answers.
fn is_quiet(link: &Link, policy: &Policy, slot: u32, now: u64) -> bool {
    let since = &link.cell(slot).since_ms;
    let idle = now.saturating_sub(since.load(Ordering::Acquire));
    policy.ping_after_ms > 0 && idle > policy.ping_after_ms
}

/// Whether there is a word for a slot; there is none for those above the limit.
fn expect_word(slot: u32) -> Result<()> {
    if slot < SERVICES_MAX {
        return Ok(());
    }
    let next = "wait until services that are being ended are gone";
    let (maximum, value) = (u64::from(SERVICES_MAX), u64::from(slot) + 1);
    Err(Error::Limit {
        limit: "services_max",
        maximum,
        value,
        next,
    })
}

/// A tenth more or less, so that services that were started together do not end together.
///
/// Spread by the handle (the multiplier is 2^64 divided by the golden ratio), which needs no generator.
fn jittered(lifetime_ms: u64, handle: Handle) -> u64 {
    let seed = (u64::from(handle.slot) << 32) ^ handle.generation;
    let spread = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32; // 32 bits, evenly
    let tenth = lifetime_ms / 10;
    lifetime_ms - tenth + ((2 * tenth * spread) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Policy;
    use crate::client::ready_set::ReadySet;

    #[test]
    fn lifetimes_are_spread_by_a_tenth() {
        let of = |generation| {
            let slot = 3;
            jittered(1_000_000, Handle { slot, generation })
        };
        let all: std::collections::BTreeSet<u64> = (0..100).map(of).collect();
        assert!(all.len() > 90, "{all:?}");
        assert!(all.first() >= Some(&900_000) && all.last() <= Some(&1_100_000));
        assert_eq!(
            jittered(
                0,
                Handle {
                    slot: 3,
                    generation: 1
                }
            ),
            0
        );
    }

    #[test]
    fn room_above_the_limit_is_refused_and_given_back() {
        let policy = Policy {
            max_size: 1,
            max_running: 1,
            max_uses: 0,
            lifetime_ms: 0,
            ping_after_ms: 0,
        };
        let ready = Arc::new(ReadySet::new().expect("an epoll set"));
        let mut state = ClientState::new(policy, ready).expect("a pool");
        let handle = state.begin(SERVICES_MAX);

        let error = state.start(handle, Deadlines::default(), None, |deadlines| {
            KeeperRequest::Fork {
                handle,
                template: 0,
                deadlines,
            }
        });
        let error = error.expect_err("no word for it");
        assert!(error.to_string().starts_with("services_max is 4096, 4097"));
        state.discard(handle, Cause::Discarded).expect("ours");
    }
}
