//! Workers that go over to another server while they run something.
//!
//! A worker does not notice: the next server has duplicates of its descriptors, and reads the answers to the calls that
//! are open. It goes over between two frames. The server that has started it stays its parent, and tells the next one
//! how it ended.

use std::os::fd::{AsFd, OwnedFd};

use crate::dispatcher::clients::Clients;
use crate::dispatcher::context::Context;
use crate::dispatcher::giving::{MovedRun, MovedWorker};
use crate::dispatcher::poll::Poll;
use crate::dispatcher::workers::Workers;
use crate::dispatcher::workers::process::WorkerProcess;
use crate::error::{Error, Result};
use crate::feed::Happening;
use crate::request::{Millis, Slot};

/// Of the server that is replaced.
impl Workers {
    /// Read whatever busy workers have sent, and what they have written.
    pub fn read_all(&mut self, cx: &mut Context, clients: &mut Clients) {
        let busy = self.processes.all().filter(|(_, worker)| worker.has_runs());
        let busy: Vec<Slot> = busy.map(|(slot, _)| slot).collect();
        for slot in busy {
            self.drain_side(cx, clients, slot);
            self.read(cx, clients, slot);
        }
    }

    /// How many workers run something that cannot go over now, and runs that no worker has received.
    pub fn unmovable(&self) -> usize {
        let stays = |(slot, worker): &(Slot, &WorkerProcess)| {
            worker.has_runs() && (!worker.is_movable() || self.interrupts.has(*slot))
        };
        self.processes.all().filter(stays).count() + self.queue.len()
    }

    /// The busy workers as the next server gets them.
    ///
    /// # Errors
    /// `System`: no descriptor is left.
    pub fn duplicate(&self, cx: &Context) -> Result<Vec<MovedWorker>> {
        let busy = self.processes.all().filter(|(_, worker)| worker.has_runs());
        busy.map(|(slot, worker)| self.duplicate_one(cx, slot, worker))
            .collect()
    }

    fn duplicate_one(
        &self,
        cx: &Context,
        slot: Slot,
        worker: &WorkerProcess,
    ) -> Result<MovedWorker> {
        let no_side = || Error::Config("a worker has no side socket".into());
        let side = worker.side().and_then(|key| self.sides.descriptors(key));
        let (side, output) = side.ok_or_else(no_side)?;
        let (connection, pidfd) = worker.descriptors().ok_or_else(no_side)?;
        let runs = worker.open_runs();
        let runs = runs.map(|(call, (id, attempt))| MovedRun {
            call,
            id,
            attempt,
            ran_ms: ran_ms(cx, cx.machine.began(id)),
        });
        Ok(MovedWorker {
            slot,
            lane: worker.lane(),
            pid: worker.pid(),
            generation: worker.generation(),
            connection: duplicate(connection.as_fd())?,
            pidfd: duplicate(pidfd.as_fd())?,
            side: [duplicate(side.as_fd())?, duplicate(output.as_fd())?],
            runs: runs.collect(),
        })
    }

    /// Let go of the workers that have gone over: nothing is told to them.
    pub fn leave(&mut self, poll: &Poll, moved: &[MovedWorker]) {
        for worker in moved {
            if let Some(worker) = self.processes.get_mut(worker.slot) {
                worker.leave(poll);
            }
        }
    }
}

/// Of the server that takes its place.
impl Workers {
    /// Go on with a worker of the server before.
    ///
    /// # Errors
    /// `System` if the kernel watches no further descriptor; `Transport` for another kind of descriptor.
    pub fn resume(&mut self, cx: &mut Context, slot: Slot, moved: MovedWorker) -> Result<()> {
        let (lane, pid) = (moved.lane, moved.pid);
        self.processes.start(slot, lane, 0);
        let [side, output] = moved.side;
        let side = self.sides.adopt(&cx.poll, slot, pid, side, output)?;
        if let Some(worker) = self.processes.get_mut(slot) {
            let runs = moved.runs;
            let started = (moved.connection, moved.pidfd, moved.generation);
            worker.resume(&cx.poll, pid, started, side, &runs)?;
        }
        self.measures.watch(slot, pid);
        let worker = slot;
        cx.note(Happening::WorkerStarted { worker, lane, pid });
        Ok(())
    }
}

fn ran_ms(cx: &Context, began: Option<Millis>) -> u64 {
    cx.now.saturating_sub(began.unwrap_or(cx.now))
}

fn duplicate(descriptor: std::os::fd::BorrowedFd<'_>) -> Result<OwnedFd> {
    descriptor
        .try_clone_to_owned()
        .map_err(Error::system("dup"))
}
