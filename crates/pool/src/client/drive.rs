//! Driving: handling what has happened, and waking the callers concerned.

use std::time::Duration;

use forebay_base::Queue;
use forebay_base::time::timespec;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::io::Errno;

use super::{Client, State, Transition, Wake};
use crate::death::{Cause, Death};
use crate::error::{Error, Result};
use crate::machine::Action;
use crate::wire::{Event, Handle, KeeperRequest};

/// The epoll data of the keeper's socket; slots use their own number.
pub const CONTROL: u64 = u64::MAX;

impl Client {
    /// Last leases of services that ended while they were idle, each returned once: what was kept
    /// for them can go.
    pub fn dead_idle(&self) -> Result<Vec<Handle>> {
        Ok(std::mem::take(&mut self.enter()?.dead_idle))
    }

    /// Handle whatever has happened; never waits.
    pub fn drive(&self) -> Result<()> {
        let mut state = self.enter()?;
        self.drive_with(&mut state)
    }

    /// Wait until `queue` has an item or there is something to drive, at most so many
    /// milliseconds.
    ///
    /// # Errors
    /// `Interrupted` where a signal arrived; the caller runs its handlers and waits again.
    pub fn wait(&self, queue: &Queue<Wake>, limit_ms: Option<u64>) -> Result<()> {
        let limit = limit_ms.map(Duration::from_millis).map(timespec);
        let ready = self.ready()?;
        let mut set = [
            PollFd::new(&*ready, PollFlags::IN),
            PollFd::new(queue, PollFlags::IN),
        ];
        match poll(&mut set, limit.as_ref()) {
            Ok(_) => self.drive(),
            Err(Errno::INTR) => Err(Error::Interrupted),
            Err(errno) => Err(Error::system("poll")(errno)),
        }
    }

    pub(super) fn drive_with(&self, state: &mut State) -> Result<()> {
        let ready = self.ready()?;
        loop {
            let mut events = Vec::with_capacity(32);
            let now = timespec(Duration::ZERO);
            match epoll::wait(&*ready, spare_capacity(&mut events), Some(&now)) {
                Ok(0) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::system("epoll_wait")(errno)),
            }
            for event in events {
                match u32::try_from(event.data.u64()) {
                    Ok(slot) => {
                        self.unwatch(state, slot);
                        let mut actions = Vec::new();
                        state.machine.readable(slot, &mut actions);
                        self.act(state, &mut actions);
                    }
                    Err(_) => self.take_events(state)?,
                }
            }
        }
    }

    fn take_events(&self, state: &mut State) -> Result<()> {
        while let Some((event, descriptor)) = state.link.receive()? {
            match event {
                Some(Event::Started {
                    handle,
                    pid,
                    directory,
                }) => {
                    state.entry_of(handle.slot).directory = directory;
                    if descriptor.is_none() {
                        refuse(state, handle); // the kernel dropped what this process could not have
                    }
                    state.started(handle, pid, descriptor);
                }
                Some(Event::Died { slot, death }) => self.died(state, slot, death),
                Some(Event::Output { handle, text }) => {
                    if let Ok(entry) = state.entry(handle) {
                        entry.output = Some(text);
                    }
                }
                Some(Event::Heavy { slot }) => state.entry_of(slot).heavy = true,
                Some(Event::Written {
                    handle,
                    total,
                    text,
                }) => {
                    if let Ok(entry) = state.entry(handle) {
                        entry.written = Some((total, text));
                    }
                }
                None => {
                    self.keeper_lost(state);
                    break;
                }
            }
        }
        state.notify_watchers();
        Ok(())
    }

    fn died(&self, state: &mut State, slot: u32, mut death: Death) {
        if let Some(reason) = state.entry_of(slot).refused.take() {
            death.text = reason;
        }
        *state.deaths.entry(death.cause.name()).or_default() += 1;
        state.note(slot, Transition::Death(death.cause));
        let mut actions = Vec::new();
        self.unwatch(state, slot);
        state.machine.lose(slot, &mut actions);
        state.entry_of(slot).death = Some(death);
        state.note_dead_idle(slot);
        state.free_slot(slot);
        self.act(state, &mut actions);
    }

    /// The keeper is gone: kill every group it owned, and count their services as dead.
    fn keeper_lost(&self, state: &mut State) {
        if let Some(control) = state.link.control()
            && let Ok(ready) = self.ready()
        {
            let _ = epoll::delete(ready, control);
        }
        state.link.lose();
        let occupied: Vec<u32> = state.machine.occupied().collect();
        for slot in occupied {
            let entry = state.entry_of(slot);
            entry.kill();
            let (pid, text) = (entry.pid, b"the keeper of the pool was killed".to_vec());
            self.died(
                state,
                slot,
                Death {
                    cause: Cause::KeeperLost,
                    pid,
                    text,
                    ..Death::default()
                },
            );
        }
    }

    /// Retire a service and have it ended.
    pub(super) fn drop_service(&self, state: &mut State, slot: u32, cause: Cause) {
        self.unwatch(state, slot);
        let mut actions = Vec::new();
        state.machine.lose(slot, &mut actions);
        state.retire(slot);
        if state.entry_of(slot).death.is_none() {
            state.note(slot, Transition::End(cause));
        }
        let handle = state.entry_of(slot).handle(slot);
        if state.entry_of(slot).socket.is_none() {
            // The keeper never received its start, so it will report no death.
            let text = b"it was never asked for".to_vec();
            state.entry_of(slot).death.get_or_insert(Death {
                cause: Cause::NotStarted,
                pid: 0,
                text,
                ..Death::default()
            });
        }
        if state.entry_of(slot).death.is_none() {
            // Where the keeper is gone, its loss is handled by the next drive.
            let _ = state.link.send(&KeeperRequest::Kill { handle, cause }, &[]);
        }
        state.note_dead_idle(slot);
        state.free_slot(slot);
        self.act(state, &mut actions);
    }

    pub(super) fn act(&self, state: &mut State, actions: &mut Vec<Action>) {
        while let Some(action) = actions.pop() {
            match action {
                Action::Wake(ticket, _) => {
                    if let Some(queue) = state.wakers.remove(&ticket) {
                        notify(&queue, ticket);
                    }
                }
                Action::Evict(slot) => {
                    state.entry_of(slot).lent = false;
                    self.drop_service(state, slot, Cause::Evicted);
                }
            }
        }
    }

    pub(super) fn watch_socket(&self, state: &State, slot: u32) -> Result<()> {
        let Some(socket) = state
            .entries
            .get(slot as usize)
            .and_then(|entry| entry.socket.as_ref())
        else {
            return Ok(());
        };
        let data = epoll::EventData::new_u64(u64::from(slot));
        epoll::add(self.ready()?, socket, data, epoll::EventFlags::IN)
            .map_err(Error::system("epoll_ctl"))
    }

    pub(super) fn unwatch(&self, state: &State, slot: u32) {
        if let Some(socket) = state
            .entries
            .get(slot as usize)
            .and_then(|entry| entry.socket.as_ref())
            && let Ok(ready) = self.ready()
        {
            let _ = epoll::delete(ready, socket); // not watched is as good
        }
    }
}

/// Push a wake-up. A queue that is full is being drained, and one that is closed has no reader left.
pub fn notify(queue: &Queue<Wake>, wake: Wake) {
    let _ = queue.push(wake);
}

/// Have a service ended that this process cannot watch, because it has no descriptor left for it.
fn refuse(state: &mut State, handle: Handle) {
    let reason = Error::descriptors("receiving the pidfd of a service").to_string();
    state.entry_of(handle.slot).refused = Some(reason.into_bytes());
    let cause = Cause::NotStarted;
    // Where the keeper is gone, its loss is handled by the next drive.
    let _ = state.link.send(&KeeperRequest::Kill { handle, cause }, &[]);
}
