//! Having things started: the keeper by the caller, everything else by the keeper.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll;

use super::drive::CONTROL;
use super::{Client, Handover};
use crate::clock::now_ms;
use crate::control;
use crate::death::Cause;
use crate::error::{Error, Result};
use crate::limit::SERVICES_MAX;
use crate::machine::Key;
use crate::wire::{Deadlines, Handle, KeeperRequest, Launch};

impl Client {
    /// What a new keeper process is to be started with; None where one is running.
    pub fn handover(&self) -> Result<Option<Handover>> {
        let mut state = self.enter()?;
        state.link.handover()
    }

    /// A keeper was started with the last handover. Returns its number: each keeper is sent all templates anew.
    pub fn attach(&self, keeper: OwnedFd) -> Result<u64> {
        let mut state = self.enter()?;
        let epoch = state.link.attach(keeper);
        if let Some(control) = state.link.control() {
            let data = epoll::EventData::new_u64(CONTROL);
            epoll::add(self.ready()?, control, data, epoll::EventFlags::IN)
                .map_err(Error::system("epoll_ctl"))?;
            for (&key, &min_idle) in &state.keep {
                state
                    .link
                    .send(&KeeperRequest::Keep { key, min_idle }, &[])?;
            }
        }
        Ok(epoch)
    }

    /// Number of the running keeper; 0 without one.
    pub fn epoch(&self) -> Result<u64> {
        Ok(self.enter()?.link.epoch())
    }

    /// Describe a template to the keeper, which keeps so many processes forked ahead.
    pub fn describe(
        &self,
        template: u32,
        launch: Launch,
        setup: Vec<u8>,
        spares: u32,
    ) -> Result<()> {
        let mut state = self.enter()?;
        state.link.describe(template, launch, setup, spares)
    }

    /// Start a service from a template. Returns the caller's end of its socket.
    pub fn fork(&self, handle: Handle, template: u32, deadlines: Deadlines) -> Result<OwnedFd> {
        self.start(handle, deadlines, |deadlines| KeeperRequest::Fork {
            handle,
            template,
            deadlines,
        })
    }

    /// Start a copy of a lent service, for the same holder. Returns its lease to be, and the caller's end of its
    /// socket. The holder itself sends the service the call to fork.
    pub fn branch(
        &self,
        parent: Handle,
        key: Key,
        deadlines: Deadlines,
    ) -> Result<(Handle, OwnedFd)> {
        let handle = {
            let mut state = self.enter()?;
            state.entry(parent)?;
            let slot = state.machine.branch(key);
            state.begin(slot)
        };
        let started = self.start(handle, deadlines, |deadlines| KeeperRequest::Branch {
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

    /// Start a program as a service, with a socket of its own where one is given.
    /// Returns the caller's end of the service's socket.
    pub fn launch(
        &self,
        handle: Handle,
        launch: Launch,
        deadlines: Deadlines,
        own: Option<BorrowedFd<'_>>,
    ) -> Result<OwnedFd> {
        self.start_with(handle, deadlines, own, |deadlines| KeeperRequest::Start {
            handle,
            launch,
            deadlines,
        })
    }

    fn start(
        &self,
        handle: Handle,
        deadlines: Deadlines,
        request: impl FnOnce(Deadlines) -> KeeperRequest,
    ) -> Result<OwnedFd> {
        self.start_with(handle, deadlines, None, request)
    }

    fn start_with(
        &self,
        handle: Handle,
        mut deadlines: Deadlines,
        own: Option<BorrowedFd<'_>>,
        request: impl FnOnce(Deadlines) -> KeeperRequest,
    ) -> Result<OwnedFd> {
        let mut state = self.enter()?;
        state.expect_keeper_of(handle)?;
        if handle.slot >= SERVICES_MAX {
            let next = "wait until services that are being ended are gone";
            let (maximum, value) = (u64::from(SERVICES_MAX), u64::from(handle.slot) + 1);
            return Err(Error::Limit {
                limit: "services_max",
                maximum,
                value,
                next,
            });
        }
        let (ours, theirs) = control::stream_pair()?;
        let watched = ours.try_clone().map_err(|source| Error::System {
            what: "dup of a socket".into(),
            source,
        })?;
        deadlines.key = state.machine.key_of(handle.slot);
        let stateful = deadlines.limits.stateful;
        if stateful {
            state.machine.keep(deadlines.key);
            (deadlines.idle_ms, deadlines.private_bytes_max) = (0, 0);
        } else {
            deadlines.lifetime_ms = jittered(state.policy.lifetime_ms, handle);
        }
        let request = request(deadlines);
        let mut descriptors = vec![theirs.as_fd(), ours.as_fd()];
        descriptors.extend(own);
        state.link.send(&request, &descriptors)?;
        let entry = state.entry_of(handle.slot);
        entry.socket = Some(watched);
        entry.stateful = stateful;
        if deadlines.lifetime_ms > 0 {
            entry.expires_ms = now_ms() + deadlines.lifetime_ms;
        }
        Ok(ours)
    }
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
        let client = Client::new(Policy {
            max_size: 1,
            max_running: 1,
            max_uses: 0,
            lifetime_ms: 0,
            ping_after_ms: 0,
        });
        let client = client.expect("a pool");
        client.lock().begin(SERVICES_MAX);
        let (slot, generation) = (SERVICES_MAX, 1);
        let handle = Handle { slot, generation };

        let error = client.fork(handle, 0, Deadlines::default());
        let error = error.expect_err("no word for it");
        assert!(error.to_string().starts_with("services_max is 4096, 4097"));
        client.discard(handle, Cause::Discarded).expect("ours");
    }
}
