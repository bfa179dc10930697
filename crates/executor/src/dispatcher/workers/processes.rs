//! The processes of all workers by slot.
//!
//! A slot is taken from the order to start its worker until its end was reported. The key of a worker has a generation,
//! so that an event of the slot's last worker is not taken for this one's.

use std::time::Instant;

use forebay_base::slots::Key;
use forebay_transport::calls::Outcome as Reply;

use crate::dispatcher::poll::Poll;
use crate::dispatcher::supervisor::protocol::StartedWorker;
use crate::dispatcher::workers::RunId;
use crate::dispatcher::workers::process::WorkerProcess;
use crate::error::Result;
use crate::message::Message;
use crate::request::{Lane, Slot};

/// The workers by slot.
#[derive(Default)]
pub struct Processes {
    slots: Vec<Option<WorkerProcess>>,
    generation: u32,
    touched: Vec<Slot>,
}

impl Processes {
    /// A worker is being started in `slot`.
    pub fn start(&mut self, slot: Slot, lane: Lane, nonce: u64) {
        let index = slot as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.generation = self.generation.wrapping_add(1);
        let key = Key {
            index: slot,
            generation: self.generation,
        };
        // As an event token carries it, so that the key of an event equals this one.
        let key = Key::from_bits(key.to_bits());
        self.slots[index] = Some(WorkerProcess::new(key, lane, nonce));
    }

    pub fn get(&self, slot: Slot) -> Option<&WorkerProcess> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut WorkerProcess> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// All workers.
    pub fn all(&self) -> impl Iterator<Item = (Slot, &WorkerProcess)> {
        let numbered = (0..).zip(self.slots.iter());
        numbered.filter_map(|(slot, worker)| Some((slot, worker.as_ref()?)))
    }

    /// The slot of `key`, if it still holds the same worker.
    pub fn slot_of(&self, key: Key) -> Option<Slot> {
        let worker = self.get(key.index)?;
        (worker.key() == key).then_some(key.index)
    }

    /// The side socket of a worker that has identified itself.
    pub fn side_of(&self, slot: Slot) -> Option<Key> {
        self.get(slot)?.side()
    }

    /// Take over a worker that has started. False if the slot no longer waits for one.
    ///
    /// # Errors
    /// Those of [`WorkerProcess::adopt`].
    pub fn adopt(&mut self, poll: &Poll, slot: Slot, started: StartedWorker) -> Result<bool> {
        match self.get_mut(slot) {
            Some(worker) => {
                let is_adopted = worker.adopt(poll, started)?;
                if is_adopted {
                    worker.set_first_mark();
                }
                Ok(is_adopted)
            }
            None => Ok(false),
        }
    }

    /// Send a run to a worker. False if its process is exiting: its death will be reported.
    ///
    /// # Errors
    /// Those of [`WorkerProcess::dispatch`].
    pub fn dispatch(&mut self, slot: Slot, run: RunId, message: Message) -> Result<bool> {
        let Some(worker) = self.get_mut(slot) else {
            return Ok(false);
        };
        let sent = worker.dispatch(run, message);
        self.touch(slot);
        sent
    }

    /// Ask a worker to leave.
    pub fn dismiss(&mut self, slot: Slot) {
        if let Some(worker) = self.get_mut(slot) {
            worker.dismiss();
            self.touch(slot);
        }
    }

    /// Read the replies of a worker, each with its run.
    pub fn receive(&mut self, slot: Slot, replies: &mut Vec<(RunId, Reply)>) {
        let worker = self.get_mut(slot);
        if worker.is_some_and(|worker| worker.receive(replies)) {
            self.touch(slot);
        }
    }

    /// Free a slot.
    pub fn remove(&mut self, poll: &Poll, slot: Slot) -> Option<WorkerProcess> {
        let worker = self.slots.get_mut(slot as usize)?.take()?;
        worker.close(poll);
        Some(worker)
    }

    /// Flush each touched worker once.
    pub fn flush(&mut self, poll: &Poll) {
        for slot in std::mem::take(&mut self.touched) {
            if let Some(worker) = self.get_mut(slot) {
                worker.flush(poll);
            }
        }
    }

    /// Have a worker flushed at the end of the turn.
    pub fn touch(&mut self, slot: Slot) {
        if self.get_mut(slot).is_some_and(WorkerProcess::touch) {
            self.touched.push(slot);
        }
    }

    /// When the next worker is overdue.
    pub fn deadline(&self) -> Option<Instant> {
        self.slots
            .iter()
            .flatten()
            .filter_map(WorkerProcess::deadline)
            .min()
    }

    /// The workers that are overdue at `now`: to be killed, or ended for an unknown reason (true).
    pub fn overdue(&self, now: Instant) -> Vec<(Slot, bool)> {
        let workers = self.slots.iter().flatten();
        let overdue =
            workers.filter(|worker| worker.deadline().is_some_and(|deadline| deadline <= now));
        overdue
            .map(|worker| (worker.key().index, worker.has_ended()))
            .collect()
    }
}
