//! Workers: their processes, the runs on the way to them, their output, their memory, their ends.
//!
//! Replies, output and the death of one worker come by different descriptors, between which the kernel keeps no order.
//! The order is made here: the output of a run is read before its end is reported, and the last replies of a worker
//! before its death.
//!
//! A dispatched run waits in `queue` until the journal has it and its arguments were read; from then until its reply it
//! is in its worker's `process`. When a worker is gone, `reap` removes it everywhere.

mod dispatch;
mod dispatch_queue;
mod exits;
mod growth;
mod interrupts;
mod measures;
pub(super) mod moving;
mod output;
mod process;
mod processes;
mod reply;
mod tail;

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::Instant;

use forebay_base::slots::Key;
use forebay_transport::calls::Outcome as Reply;

use crate::dispatcher::clients::Clients;
use crate::dispatcher::context::Context;
use crate::dispatcher::limit::OUTPUT_BYTES_A_TURN;
use crate::dispatcher::poll::{Poll, Ready};
use crate::dispatcher::supervisor::protocol::{Order, StartedWorker};
use crate::dispatcher::workers::dispatch_queue::DispatchQueue;
use crate::dispatcher::workers::interrupts::Interrupts;
use crate::dispatcher::workers::measures::Measures;
use crate::dispatcher::workers::output::SideChannels;
use crate::dispatcher::workers::process::WorkerProcess;
use crate::dispatcher::workers::processes::Processes;
use crate::dispatcher::workers::reply::outcome_of;
use crate::error::Result;
use crate::feed::Happening;
use crate::gauge::Memory;
use crate::id::RequestId;
use crate::request::{Lane, Slot};

/// One run on a worker.
pub type RunId = (RequestId, u32);

/// All workers.
pub struct Workers {
    processes: Processes,
    sides: SideChannels,
    /// Dispatched runs that their workers have not received.
    queue: DispatchQueue,
    interrupts: Interrupts,
    measures: Measures,
    /// Scratch space, kept so that a turn allocates nothing.
    replies: Vec<(RunId, Reply)>,
    memory_limit: Option<u64>,
    /// There is a store, which keeps the files of results.
    keeps_files: bool,
}

impl Workers {
    /// Begin to measure, and listen for side sockets at a path.
    ///
    /// # Errors
    /// `System`; those of [`SideChannels::listen`].
    pub fn new(
        poll: &Poll,
        side_socket: Option<&Path>,
        memory: Memory,
        memory_limit: Option<u64>,
        keeps_files: bool,
    ) -> Result<Self> {
        let measures = Measures::start(poll, memory)?;
        let mut sides = SideChannels::default();
        if let Some(path) = side_socket {
            sides.listen(poll, path)?;
        }
        Ok(Self {
            processes: Processes::default(),
            sides,
            queue: DispatchQueue::default(),
            interrupts: Interrupts::default(),
            measures,
            replies: Vec::new(),
            memory_limit,
            keeps_files,
        })
    }

    /// Order the start of a worker.
    pub fn start(&mut self, cx: &Context, slot: Slot, lane: Lane) {
        // Unpredictable, and a new one for each worker, so that a late side socket of the slot's last worker is not
        // taken for this one's.
        let nonce = RandomState::new().hash_one(cx.now);
        self.processes.start(slot, lane, nonce);
        cx.shared.order(Order::Start { slot, lane, nonce });
    }

    /// A worker has started: read its connection from now on.
    pub fn ready(&mut self, cx: &mut Context, slot: Slot, started: StartedWorker) {
        let (pid, is_measured) = (started.pid, started.is_measured);
        match self.processes.adopt(&cx.poll, slot, started) {
            Ok(true) => {
                if is_measured {
                    self.measures.watch(slot, pid);
                }
                if let Some(lane) = self.processes.get(slot).map(WorkerProcess::lane) {
                    let worker = slot;
                    cx.note(Happening::WorkerStarted { worker, lane, pid });
                }
                cx.machine.worker_ready(cx.now, slot);
            }
            // The machine has given this worker up meanwhile.
            Ok(false) => cx.shared.order(Order::Stop { slot }),
            Err(error) => {
                if let Some(worker) = self.processes.remove(&cx.poll, slot) {
                    self.reap(cx, slot, &worker);
                }
                cx.shared.order(Order::Stop { slot });
                let why = error.to_string();
                cx.machine.worker_failed(cx.now, slot, why.into());
            }
        }
    }

    /// Ask a worker to leave.
    pub fn stop(&mut self, cx: &Context, slot: Slot) {
        self.processes.dismiss(slot);
        cx.shared.order(Order::Stop { slot });
    }

    /// Measure a worker now.
    pub fn measure(&self, slot: Slot) {
        self.measures.measure(slot);
    }

    /// Measure often while there is work.
    pub fn pace(&self, busy: bool) {
        self.measures.pace(busy);
    }

    /// Measurements have come.
    pub fn take_readings(&mut self, cx: &mut Context) {
        self.measures.take_readings(cx, &mut self.processes);
    }

    /// Flush each worker that something was sent to.
    pub fn flush(&mut self, poll: &Poll) {
        self.processes.flush(poll);
    }

    /// Bind the side socket again if its file was removed; the outcome, if there is one to report.
    pub fn rebind_if_removed(&mut self, poll: &Poll) -> Option<std::result::Result<(), String>> {
        self.sides.rebind_if_removed(poll)
    }

    /// Accept side sockets again after a pause, end what is overdue, repeat interrupts.
    pub fn run_timers(&mut self, cx: &mut Context, clients: &mut Clients, now: Instant) {
        self.sides.resume_accepting(&cx.poll, now);
        for (slot, ended) in self.processes.overdue(now) {
            self.overdue(cx, clients, slot, ended);
        }
        self.interrupts.repeat(&self.processes, &self.sides, now);
    }

    /// When the next of these is due.
    pub fn deadline(&self) -> Option<Instant> {
        let due = [
            self.processes.deadline(),
            self.sides.resumes(),
            self.interrupts.deadline(),
        ];
        due.into_iter().flatten().min()
    }
}

/// What comes from workers.
impl Workers {
    /// The connection of a worker is ready.
    pub fn is_ready(&mut self, cx: &mut Context, clients: &mut Clients, key: Key, ready: Ready) {
        let Some(slot) = self.processes.slot_of(key) else {
            return;
        };
        if ready.write {
            self.processes.touch(slot);
        }
        if ready.read {
            self.read(cx, clients, slot);
        }
    }

    /// Those that run something.
    pub fn busy(&self) -> impl Iterator<Item = (Slot, &WorkerProcess)> {
        self.processes.all().filter(|(_, worker)| worker.has_runs())
    }

    /// Read whatever busy workers have sent, and what they have written.
    pub fn read_all(&mut self, cx: &mut Context, clients: &mut Clients) {
        let busy: Vec<Slot> = self.busy().map(|(slot, _)| slot).collect();
        for slot in busy {
            self.drain_side(cx, clients, slot);
            self.read(cx, clients, slot);
        }
    }

    /// Take in the replies of a worker.
    fn read(&mut self, cx: &mut Context, clients: &mut Clients, slot: Slot) {
        let mut replies = std::mem::take(&mut self.replies);
        self.processes.receive(slot, &mut replies);
        self.read_output_before(cx, clients, slot, &replies);
        self.take_replies(cx, slot, &mut replies);
    }

    /// Take in what a worker wrote before it replied, so that the output of a run precedes its end.
    fn read_output_before(
        &mut self,
        cx: &mut Context,
        clients: &mut Clients,
        slot: Slot,
        replies: &[(RunId, Reply)],
    ) {
        let worker = self.processes.get_mut(slot);
        let Some(worker) = worker.filter(|_| !replies.is_empty()) else {
            return;
        };
        worker.replied(replies);
        if worker.side().is_none() {
            // A worker connects its side socket before it takes its first run, but this epoll may report the reply
            // first.
            self.accept_sides(cx, clients);
        }
        match self.processes.get(slot) {
            // It has begun its next run, and its pipe was empty when it replied: what is there now belongs to that run. Of
            // an event loop's runs a thousand may end at once, and each record names its own.
            Some(worker) if worker.has_runs() && !worker.is_async() => {
                if let Some(key) = worker.side() {
                    self.read_side(cx, clients, key);
                }
            }
            _ => self.drain_side(cx, clients, slot),
        }
        if let Some(worker) = self.processes.get_mut(slot) {
            worker.output_read();
        }
    }

    /// Take in the last output and the last replies of a worker whose process has ended.
    pub fn ended(&mut self, cx: &mut Context, clients: &mut Clients, key: Key) {
        let Some(slot) = self.processes.slot_of(key) else {
            return;
        };
        let mut replies = std::mem::take(&mut self.replies);
        // Before the connection closes: closing it ends the runs whose output this still is.
        self.read_final_output(cx, clients, slot);
        if let Some(worker) = self.processes.get_mut(slot) {
            worker.end(&cx.poll, &mut replies);
        }
        self.take_replies(cx, slot, &mut replies);
        cx.shared.order(Order::Died { slot });
    }

    fn take_replies(&mut self, cx: &mut Context, slot: Slot, replies: &mut Vec<(RunId, Reply)>) {
        for ((id, attempt), reply) in replies.drain(..) {
            if let Some(outcome) = outcome_of(&reply, self.keeps_files) {
                let worker = self.processes.get_mut(slot);
                let peak = worker.and_then(|worker| {
                    let peak = worker.peak_of_run();
                    worker.run_ended((id, attempt));
                    peak
                });
                cx.machine
                    .finished(cx.now, slot, id, attempt, outcome, peak);
            }
        }
        self.replies = std::mem::take(replies);
    }

    /// Workers connect their side sockets.
    pub fn accept_sides(&mut self, cx: &mut Context, clients: &mut Clients) {
        self.sides.accept(cx, &mut self.processes, clients);
    }

    /// The side socket of a worker is readable.
    pub fn read_side(&mut self, cx: &mut Context, clients: &mut Clients, key: Key) {
        self.sides.read(cx, &mut self.processes, clients, key);
    }

    /// The pipe of a worker is readable.
    pub fn read_output(&mut self, cx: &mut Context, clients: &mut Clients, key: Key) {
        let slot = self.sides.slot_of(key);
        let worker = slot.and_then(|slot| self.processes.get(slot));
        let handed = worker.is_some_and(WorkerProcess::has_handed);
        let mut bytes_max = OUTPUT_BYTES_A_TURN;
        if let Some(slot) = slot.filter(|_| handed) {
            // The pipe is empty whenever such a worker replies. So the bytes that are there before its replies are
            // taken belong to the run that is the current one afterwards. At the end of the pipe nothing is there; the
            // read then finds the end.
            bytes_max = self.sides.bytes_in_pipe(key).unwrap_or(bytes_max).max(1);
            self.read(cx, clients, slot);
        }
        self.sides
            .read_output(cx, &mut self.processes, clients, key, bytes_max);
    }

    /// Read everything that a worker sent and wrote before the end of its run or its process.
    fn drain_side(&mut self, cx: &mut Context, clients: &mut Clients, slot: Slot) {
        if let Some(key) = self.processes.side_of(slot) {
            self.sides.drain(cx, &mut self.processes, clients, key);
        }
    }
}
