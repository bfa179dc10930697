//! Workers that go over to another server while they run something.
//!
//! A worker does not notice: the next server has duplicates of its descriptors, and reads the answers to the calls that
//! are open. It goes over between two frames. The server that has started it stays its parent, and tells the next one
//! how it ended.
//!
//! The first functions are those of the server that is replaced, [`resume`] is that of the one in its place.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::dispatcher::context::Context;
use crate::dispatcher::handover::{MovedRun, MovedWorker};
use crate::dispatcher::poll::Poll;
use crate::dispatcher::workers::Workers;
use crate::dispatcher::workers::process::WorkerProcess;
use crate::error::{Error, Result};
use crate::feed::Happening;
use crate::machine::AdoptedRun;
use crate::request::{Millis, Slot};
use crate::side::Side;

/// How many workers run something that cannot go over now, and runs that no worker has received.
pub fn unmovable(workers: &Workers) -> usize {
    let stays = |(slot, worker): &(Slot, &WorkerProcess)| {
        let is_known = side_of(workers, worker).is_some();
        let stays = !is_known || !worker.is_movable() || workers.interrupts.has(*slot);
        worker.has_runs() && stays
    };
    workers.processes.all().filter(stays).count() + workers.queue.len()
}

/// The side socket and the output of a worker, once it has connected them.
fn side_of<'a>(
    workers: &'a Workers,
    worker: &WorkerProcess,
) -> Option<(&'a Side, Option<&'a OwnedFd>)> {
    workers.sides.descriptors(worker.side()?)
}

/// The busy workers as the next server gets them.
///
/// # Errors
/// `System`: no descriptor is left.
pub fn duplicate(workers: &Workers, cx: &Context) -> Result<Vec<MovedWorker>> {
    let busy = workers.busy();
    busy.map(|(slot, worker)| duplicate_one(workers, cx, slot, worker))
        .collect()
}

fn duplicate_one(
    workers: &Workers,
    cx: &Context,
    slot: Slot,
    worker: &WorkerProcess,
) -> Result<MovedWorker> {
    let no_side = || Error::Config("a worker has no side socket".into());
    let (side, output) = side_of(workers, worker).ok_or_else(no_side)?;
    let output = output.map(|output| another(output.as_fd()));
    let (connection, pidfd) = worker.descriptors().ok_or_else(no_side)?;
    let runs = worker.open_runs().map(|(call, (id, attempt))| {
        let ran_ms = ran_ms(cx, cx.machine.began(id));
        let run = AdoptedRun {
            id,
            attempt,
            ran_ms,
            waits: cx.machine.is_waiting(id),
        };
        MovedRun { call, run }
    });
    Ok(MovedWorker {
        slot,
        lane: worker.lane(),
        pid: worker.pid(),
        generation: worker.generation(),
        is_measured: worker.is_measured(),
        connection: another(connection.as_fd())?,
        pidfd: another(pidfd.as_fd())?,
        side: another(side.as_fd())?,
        output: output.transpose()?,
        runs: runs.collect(),
    })
}

/// Let go of the workers that have gone over: nothing is told to them.
pub fn leave(workers: &mut Workers, poll: &Poll, moved: &[MovedWorker]) {
    for worker in moved {
        if let Some(worker) = workers.processes.get_mut(worker.slot) {
            worker.leave(poll);
        }
    }
}

/// Go on with a worker of the server before, in this slot.
///
/// # Errors
/// `System` if the kernel watches no further descriptor; `Transport` for another kind of descriptor.
pub fn resume(
    workers: &mut Workers,
    cx: &mut Context,
    slot: Slot,
    moved: MovedWorker,
) -> Result<()> {
    let (lane, pid, is_measured) = (moved.lane, moved.pid, moved.is_measured);
    workers.processes.start(slot, lane, 0);
    let (side, output) = (moved.side, moved.output);
    let side = workers.sides.adopt(&cx.poll, slot, pid, side, output)?;
    if let Some(worker) = workers.processes.get_mut(slot) {
        let started = (moved.connection, moved.pidfd, moved.generation);
        worker.resume(&cx.poll, (pid, is_measured), started, side, &moved.runs)?;
    }
    if is_measured {
        workers.measures.watch(slot, pid);
    }
    let worker = slot;
    cx.note(Happening::WorkerStarted { worker, lane, pid });
    Ok(())
}

fn ran_ms(cx: &Context, began: Option<Millis>) -> u64 {
    cx.now.saturating_sub(began.unwrap_or(cx.now))
}

fn another(descriptor: BorrowedFd<'_>) -> Result<OwnedFd> {
    descriptor
        .try_clone_to_owned()
        .map_err(Error::system("dup"))
}
