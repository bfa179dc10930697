//! A lease from its beginning to its end, and what its holder asks meanwhile.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_base::Queue;

use super::ClientState;
use crate::client::Wake;
use crate::client::entry::{Entry, HandedOut, Written};
use crate::clock::now_ms;
use crate::death::{Cause, Death};
use crate::error::Result;
use crate::machine::Key;
use crate::transition::Transition;
use crate::wire::{Handle, KeeperRequest};
use crate::word::{Stamp, State as Word};

impl ClientState {
    pub fn lend(&mut self, handle: Handle, key: Key) -> Result<Option<i32>> {
        self.drive()?;
        let Some((pid, _)) = self.entries.lease(handle)?.process() else {
            return Ok(None);
        };
        let leased = Stamp::new(Word::Leased, handle.generation);
        // At its deadline the keeper has seen that it had answered, and made it idle; it is still this caller's.
        if self.shift(handle, Word::Starting, Word::Leased)
            || self.shift(handle, Word::Idle, Word::Leased)
        {
            let took_ms = self.entries.at(handle.slot).lend();
            self.start_times.learn(key, took_ms);
            self.note_lease(handle.slot);
        } else if Stamp::load(&self.link.cell(handle.slot).word) != leased {
            return Ok(None); // its deadline came first; the keeper will report its death
        }
        Ok(Some(pid))
    }

    pub fn release(&mut self, handle: Handle, reset_ms: Option<u64>) -> Result<()> {
        self.entries.lease(handle)?.give_back();
        let slot = handle.slot;
        let now = now_ms();
        if let Some(cause) = self.worn(slot, now) {
            self.drop_service(slot, cause);
            return Ok(());
        }
        self.link.cell(slot).since_ms.store(now, Ordering::Release);
        let (to, transition) = match reset_ms {
            None => (Word::Idle, Transition::Release),
            Some(_) => (Word::Resetting, Transition::Reset),
        };
        if self.entries.at(slot).is_dead()
            || !self.machine.is_lendable(slot)
            || !self.shift(handle, Word::Leased, to)
        {
            self.drop_service(slot, Cause::Discarded);
            return Ok(());
        }
        self.note(slot, transition);
        if let Some(deadline_ms) = reset_ms {
            let request = KeeperRequest::Reset {
                handle,
                deadline_ms,
            };
            if self.link.send(&request, &[]).is_err() {
                // Without a keeper, nothing would end it if it hung.
                self.drop_service(slot, Cause::Discarded);
                return Ok(());
            }
            self.stats.resets += 1;
            self.watch(slot)?;
        }
        let settled = reset_ms.is_none();
        self.decide(|machine, actions| machine.release(slot, settled, actions));
        Ok(())
    }

    pub fn release_shared(&mut self, handle: Handle, closed: bool) -> Result<bool> {
        self.entries.lease(handle)?;
        Ok(self.decide(|machine, actions| machine.release_shared(handle.slot, closed, actions)))
    }

    pub fn abandon(&mut self, handle: Handle, answered: bool) -> Result<()> {
        self.entries.lease(handle)?.give_back();
        let slot = handle.slot;
        let cell = self.link.cell(slot);
        cell.since_ms.store(now_ms(), Ordering::Release);
        // An answered one is idle. Another goes on under its start deadline, which fits only the
        // generation that it was started with: a later caller that leaves it too gives the service up.
        let goes_on = if answered {
            self.shift(handle, Word::Starting, Word::Idle)
                || self.shift(handle, Word::Leased, Word::Idle)
        } else {
            self.shift(handle, Word::Starting, Word::Starting)
        };
        if self.entries.at(slot).is_dead() || !self.machine.is_lendable(slot) || !goes_on {
            self.drop_service(slot, Cause::Discarded);
            return Ok(());
        }
        if !answered {
            self.watch(slot)?;
        }
        self.decide(|machine, actions| {
            machine.release(slot, false, actions);
            if answered {
                machine.readable(slot, actions);
            }
        });
        Ok(())
    }

    pub fn discard(&mut self, handle: Handle, cause: Cause) -> Result<()> {
        self.entries.lease(handle)?.give_back();
        self.drop_service(handle.slot, cause);
        Ok(())
    }

    pub fn close_lent(&mut self, wanted: impl Fn(u32) -> bool) {
        let lent = |slot: &u32| self.entries.get(*slot).is_some_and(Entry::is_lent);
        let lent: Vec<u32> = self.machine.occupied().filter(lent).collect();
        for slot in lent.into_iter().filter(|&slot| wanted(slot)) {
            self.machine.close(slot);
        }
    }

    pub fn end_unlent(&mut self, wanted: impl Fn(u32) -> bool) -> Vec<u32> {
        let ended: Vec<u32> = self.machine.unlent().filter(|&slot| wanted(slot)).collect();
        for &slot in &ended {
            self.entries.at(slot).give_back();
            self.drop_service(slot, Cause::Returned);
        }
        ended
    }

    pub fn end(&mut self, handle: Handle, cause: Cause) -> Result<()> {
        self.entries.lease(handle)?;
        self.link.send(&KeeperRequest::Kill { handle, cause }, &[])
    }

    pub fn death(
        &mut self,
        handle: Handle,
        queue: Option<&Arc<Queue<Wake>>>,
    ) -> Result<Option<Death>> {
        self.drive()?;
        let death = self.entries.lease(handle)?.death().cloned();
        if death.is_none() {
            self.waiters.watch(queue);
        }
        Ok(death)
    }

    pub fn process(&mut self, handle: Handle) -> Result<Option<(i32, RawFd)>> {
        Ok(self.entries.lease(handle)?.process())
    }

    pub fn hand_out(&mut self, handle: Handle) -> Result<HandedOut> {
        self.entries.lease(handle)?.hand_out()
    }

    pub fn directory(&mut self, handle: Handle) -> Result<Vec<u8>> {
        Ok(self.entries.lease(handle)?.directory().to_vec())
    }

    pub fn ask_output(&mut self, handle: Handle) -> Result<()> {
        self.entries.lease(handle)?.forget_output();
        self.link.send(&KeeperRequest::Output { handle }, &[])
    }

    pub fn output(
        &mut self,
        handle: Handle,
        queue: Option<&Arc<Queue<Wake>>>,
    ) -> Result<Option<Vec<u8>>> {
        self.drive()?;
        let output = self.entries.lease(handle)?.take_output();
        if output.is_none() {
            self.waiters.watch(queue);
        }
        Ok(output)
    }

    pub fn follow(&mut self, handle: Handle, beyond: u64) -> Result<()> {
        if self.entries.lease(handle)?.has_written(beyond) {
            return Ok(()); // another follower has received it
        }
        self.link
            .send(&KeeperRequest::Follow { handle, beyond }, &[])
    }

    pub fn written(
        &mut self,
        handle: Handle,
        beyond: u64,
        queue: Option<&Arc<Queue<Wake>>>,
    ) -> Result<Option<Written>> {
        self.drive()?;
        let written = self.entries.lease(handle)?.written(beyond);
        if written.is_none() {
            self.waiters.watch(queue);
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ready_set::ReadySet;
    use crate::client::{Answer, Policy};
    use crate::control;

    const KEY: Key = 1;
    const POLICY: Policy = Policy {
        max_size: 1,
        max_running: 1,
        max_uses: 0,
        lifetime_ms: 0,
        ping_after_ms: 0,
    };

    /// A pool whose only service is being started, and the ticket of a caller that waits.
    fn busy(ready: &Arc<ReadySet>) -> (ClientState, Handle, u64) {
        let mut state = ClientState::new(POLICY, Arc::clone(ready)).expect("a pool");
        let Ok(Answer::Start { handle }) = state.ask(KEY, 0) else {
            panic!("there is room");
        };
        let (socket, _) = control::stream_pair().expect("sockets");
        state.entries.at(handle.slot).asked(socket, false, 0);
        let Ok(Answer::Wait { ticket, .. }) = state.ask(KEY, 0) else {
            panic!("there is no room");
        };
        (state, handle, ticket)
    }

    #[test]
    fn a_start_that_is_left_and_cannot_be_watched_makes_room() {
        let ready = Arc::new(ReadySet::new().expect("an epoll set"));
        let (mut state, handle, ticket) = busy(&ready);
        ready.close(); // nothing can be added to it any more

        state.abandon(handle, false).expect_err("not watched");
        let granted = state.collect(ticket);
        assert!(matches!(granted, Some(Answer::Start { .. })), "{granted:?}");
    }

    #[test]
    fn a_service_whose_reset_cannot_be_watched_makes_room() {
        let ready = Arc::new(ReadySet::new().expect("an epoll set"));
        let (mut state, handle, ticket) = busy(&ready);
        let (pidfd, keeper) = control::stream_pair().expect("sockets"); // stand for processes
        let _handover = state.handover().expect("a pair").expect("none runs");
        state.attach(keeper).expect("watched");
        let entry = state.entries.at(handle.slot);
        entry.started(i32::MAX, Some(pidfd), Vec::new());
        let lent = state.lend(handle, KEY).expect("ours");
        assert_eq!(lent, Some(i32::MAX));
        ready.close(); // nothing can be added to it any more

        let reset_ms = Some(1_000);
        state.release(handle, reset_ms).expect_err("not watched");
        let granted = state.collect(ticket);
        assert!(matches!(granted, Some(Answer::Start { .. })), "{granted:?}");
    }
}
