//! Worker processes: their connections, the runs on them, their exits.

pub(super) mod dispatch_queue;
mod exits;
mod growth;
pub(super) mod interrupts;
pub(super) mod measures;
pub(super) mod output;
pub(super) mod reply;
mod tail;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::slots::Key;
use forebay_transport::Error as Fault;
use forebay_transport::calls::{Connection, Outcome as Reply, Outgoing, Taker};
use forebay_transport::link::{Head, Payload};
use forebay_transport::wire::Codec;

use crate::dispatcher::hash::ByNumber;
use crate::dispatcher::limit::{DEATH_REPORT_MS, GROWTH_RUN_MS, HALF_DEAD_MS};
use crate::dispatcher::poll::{Poll, Ready, Source, Token};
use crate::dispatcher::supervisor::protocol::StartedWorker;
use crate::dispatcher::workers::growth::Mark;
use crate::dispatcher::workers::tail::Tail;
use crate::error::{Error, Result};
use crate::id::RequestId;
use crate::message::Message;
use crate::request::{Lane, Slot};

/// One run on a worker.
pub type RunId = (RequestId, u32);

/// A worker whose process runs.
pub struct Serving {
    pub connection: Arc<Connection>,
    pub pid: i32,
    pub pidfd: OwnedFd,
    generation: u32,
    watched: Ready,
    running: ByNumber<u64, RunId>,
    /// Recalled runs by their calls, until the worker has either returned or ended them.
    recalled: ByNumber<u64, RunId>,
    /// Its socket has ended: nothing more comes from it.
    over: bool,
    /// When a process that outlives its socket is killed.
    kill_at: Option<Instant>,
}

enum Stage {
    /// The supervisor starts it.
    Starting,
    Serving(Serving),
    /// Its process has ended; the supervisor has until then to report how.
    Ended(Instant),
}

/// The worker of one slot.
pub struct WorkerProcess {
    key: Key,
    pub lane: Lane,
    pub nonce: u64,
    stage: Stage,
    /// The peak and the limit of a worker that was killed for using too much memory.
    pub expelled: Option<(u64, u64)>,
    touched: bool,
    /// Its side socket, once it has identified itself.
    pub side: Option<Key>,
    pub tail: Tail,
    /// The most private memory measured since its last run began.
    pub peak_bytes: Option<u64>,
    /// Its private memory before its last long run; `mark` is the kernel's high-water mark then.
    base_bytes: Option<u64>,
    mark: Option<Mark>,
    began: Instant,
    /// Runs that it has replied to, while their last output is being read.
    pub closing: Vec<RunId>,
}

/// The workers by slot.
#[derive(Default)]
pub struct WorkerProcesses {
    slots: Vec<Option<WorkerProcess>>,
    generation: u32,
    touched: Vec<Slot>,
}

impl WorkerProcesses {
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
        self.slots[index] = Some(WorkerProcess {
            // As an event token carries it, so that the key of an event equals this one.
            key: Key::from_bits(key.to_bits()),
            lane,
            nonce,
            stage: Stage::Starting,
            expelled: None,
            touched: false,
            side: None,
            tail: Tail::default(),
            peak_bytes: None,
            base_bytes: None,
            mark: None,
            began: Instant::now(),
            closing: Vec::new(),
        });
    }

    pub fn get(&self, slot: Slot) -> Option<&WorkerProcess> {
        self.slots.get(slot as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut WorkerProcess> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// The slot of `key`, if it still holds the same worker.
    pub fn slot_of(&self, key: Key) -> Option<Slot> {
        let worker = self.get(key.index)?;
        (worker.key == key).then_some(key.index)
    }

    /// Every worker, with its slot.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &WorkerProcess)> {
        let taken = self.slots.iter().flatten();
        taken.map(|worker| (worker.key.index, worker))
    }

    /// Take over a worker that has started. False if the slot no longer waits for one.
    ///
    /// # Errors
    /// `System` if the kernel watches no further descriptor; `Transport` if the connection is in use.
    pub fn adopt(&mut self, poll: &Poll, slot: Slot, started: StartedWorker) -> Result<bool> {
        let Some(worker) = self.get_mut(slot) else {
            return Ok(false);
        };
        if !matches!(worker.stage, Stage::Starting) {
            return Ok(false);
        }
        let StartedWorker {
            connection,
            pid,
            pidfd,
            generation,
        } = started;
        connection.attach().map_err(Error::Transport)?;
        connection.cork().map_err(Error::Transport)?;
        let mut serving = Serving {
            connection,
            pid,
            pidfd,
            generation,
            watched: Ready::default(),
            running: ByNumber::default(),
            recalled: ByNumber::default(),
            over: false,
            kill_at: None,
        };
        let death = Token::new(Source::Death, worker.key);
        poll.add(&serving.pidfd, death, Ready::READ)
            .map_err(Error::system("epoll_ctl"))?;
        serving.watch(poll, worker.key, Ready::READ);
        worker.stage = Stage::Serving(serving);
        if worker.lane != Lane::Async {
            worker.set_mark();
        }
        Ok(true)
    }

    /// Send a run to a worker. False if its process is exiting: its death will be reported.
    ///
    /// # Errors
    /// `Transport` if the connection refuses it, such as a frame that is too long.
    pub fn dispatch(&mut self, slot: Slot, run: RunId, message: Message) -> Result<bool> {
        let call = self.send(slot, message, false)?;
        if let Some(call) = call
            && let Some(serving) = self.get_mut(slot).and_then(WorkerProcess::serving_mut)
        {
            serving.running.insert(call, run);
        }
        Ok(call.is_some())
    }

    /// A run of a worker has ended.
    pub fn ended(&mut self, slot: Slot, run: RunId) {
        let Some(worker) = self.get_mut(slot) else {
            return;
        };
        if let Some(serving) = worker.serving_mut() {
            serving.ended(run);
        }
        if worker.lane != Lane::Async && worker.serving().is_some_and(|one| !one.is_idle()) {
            worker.begin(); // its next run has begun
        }
    }

    /// Ask a worker to leave.
    pub fn dismiss(&mut self, slot: Slot) {
        let leave = Message {
            head: crate::message::leave(),
            segment: None,
        };
        // Fails if it has gone already.
        drop(self.send(slot, leave, true));
    }

    fn send(&mut self, slot: Slot, message: Message, one_way: bool) -> Result<Option<u64>> {
        let Some(worker) = self.get_mut(slot) else {
            return Ok(None);
        };
        let Stage::Serving(serving) = &mut worker.stage else {
            return Ok(None);
        };
        let segments = message.segment.into_iter();
        let outgoing = Outgoing {
            codec: Codec::Msgpack,
            one_way,
            remaining: None,
            generation: serving.generation,
            head: Head::Borrowed(&message.head),
            segments: segments.map(|blob| Box::new(blob) as Payload).collect(),
        };
        let started = serving.connection.start(outgoing, Taker::Queue);
        if !std::mem::replace(&mut worker.touched, true) {
            self.touched.push(slot);
        }
        match started {
            Ok(call) => Ok(Some(call)),
            // Its death will be reported, and ends its runs.
            Err(Fault::Broken { .. } | Fault::Closed { .. } | Fault::Protocol { .. }) => Ok(None),
            Err(error) => Err(Error::Transport(error)),
        }
    }

    /// Read the replies of a worker, each with its run.
    pub fn receive(&mut self, slot: Slot, replies: &mut Vec<(RunId, Reply)>) {
        let Some(serving) = self.get_mut(slot).and_then(WorkerProcess::serving_mut) else {
            return;
        };
        let Ok(finished) = serving.connection.receive() else {
            return;
        };
        serving.take(finished, replies);
        // Usually its process ends at the same moment, which its pidfd reports; one that lives on is killed.
        if serving.connection.is_over() && !serving.over {
            serving.over = true;
            serving.kill_at = Instant::now().checked_add(Duration::from_millis(HALF_DEAD_MS));
            self.touch(slot);
        }
    }

    /// The process of a worker has ended: read its last replies.
    pub fn end(&mut self, poll: &Poll, slot: Slot, replies: &mut Vec<(RunId, Reply)>) {
        let Some(worker) = self.get_mut(slot) else {
            return;
        };
        let report_until = Instant::now() + Duration::from_millis(DEATH_REPORT_MS);
        let key = worker.key;
        let Stage::Serving(mut serving) =
            std::mem::replace(&mut worker.stage, Stage::Ended(report_until))
        else {
            return;
        };
        // Replies that it sent before its death are still in the socket.
        drop(serving.connection.peer_died());
        if let Ok(finished) = serving.connection.receive() {
            serving.take(finished, replies);
        }
        serving.watch(poll, key, Ready::default());
        poll.remove(&serving.pidfd);
        serving.connection.close();
    }

    /// Free a slot.
    pub fn remove(&mut self, poll: &Poll, slot: Slot) -> Option<WorkerProcess> {
        let worker = self.slots.get_mut(slot as usize)?.take()?;
        if let Stage::Serving(serving) = &worker.stage {
            // Explicitly: a descriptor that was duplicated stays in the epoll after it is closed here.
            serving.unwatch(poll);
            serving.connection.close();
        }
        Some(worker)
    }

    /// Flush each touched worker once.
    pub fn flush(&mut self, poll: &Poll) {
        for slot in std::mem::take(&mut self.touched) {
            let Some(worker) = self.get_mut(slot) else {
                continue;
            };
            worker.touched = false;
            let key = worker.key;
            if let Stage::Serving(serving) = &mut worker.stage {
                let write = !serving.connection.flush().unwrap_or(true);
                let read = !serving.over;
                serving.watch(poll, key, Ready { read, write });
            }
        }
    }

    /// Have a worker flushed at the end of the turn.
    pub fn touch(&mut self, slot: Slot) {
        if let Some(worker) = self.get_mut(slot)
            && !std::mem::replace(&mut worker.touched, true)
        {
            self.touched.push(slot);
        }
    }

    /// When the next worker is overdue.
    pub fn deadline(&self) -> Option<Instant> {
        self.iter()
            .filter_map(|(_, worker)| worker.deadline())
            .min()
    }

    /// The workers that are overdue at `now`: to be killed, or ended for an unknown reason (true).
    pub fn overdue(&self, now: Instant) -> Vec<(Slot, bool)> {
        let overdue = self.iter().filter(|(_, worker)| {
            let deadline = worker.deadline();
            deadline.is_some_and(|deadline| deadline <= now)
        });
        let ended = |worker: &WorkerProcess| matches!(worker.stage, Stage::Ended(_));
        overdue
            .map(|(slot, worker)| (slot, ended(worker)))
            .collect()
    }
}

impl WorkerProcess {
    pub fn serving(&self) -> Option<&Serving> {
        match &self.stage {
            Stage::Serving(serving) => Some(serving),
            Stage::Starting | Stage::Ended(_) => None,
        }
    }

    pub fn serving_mut(&mut self) -> Option<&mut Serving> {
        match &mut self.stage {
            Stage::Serving(serving) => Some(serving),
            Stage::Starting | Stage::Ended(_) => None,
        }
    }

    /// A run begins.
    pub fn begin(&mut self) {
        self.tail.clear();
        self.peak_bytes = None;
        self.began = Instant::now();
    }

    /// Record a measurement.
    pub fn measured(&mut self, private_bytes: u64) {
        self.peak_bytes = self.peak_bytes.max(Some(private_bytes));
        if self
            .serving()
            .is_some_and(|serving| serving.running.is_empty())
        {
            self.base_bytes = Some(private_bytes);
        }
    }

    /// The peak of private memory of a run that has ended, if it was measured.
    pub fn peak_of_run(&mut self) -> Option<u64> {
        let long = Duration::from_millis(GROWTH_RUN_MS);
        if self.lane == Lane::Async || self.began.elapsed() < long {
            return self.peak_bytes;
        }
        let growth = self.mark.and_then(|mark| mark.growth());
        // Without the private memory at its beginning, the growth alone would be too small a peak.
        let grown = growth
            .zip(self.base_bytes)
            .map(|(growth, base)| base + growth);
        self.set_mark();
        self.peak_bytes.max(grown)
    }

    fn set_mark(&mut self) {
        self.mark = self.serving().and_then(|serving| Mark::set(serving.pid));
    }

    /// Whether this process runs here.
    pub fn is_process(&self, pid: i32) -> bool {
        self.serving().is_some_and(|serving| serving.pid == pid)
    }

    /// Whether the worker has this run.
    pub fn runs(&self, run: RunId) -> bool {
        let runs = self.serving().is_some_and(|serving| serving.runs(run));
        runs || self.closing.contains(&run)
    }

    /// The run that the worker's output belongs to, if that is a single one. Of several runs that it has replied to and
    /// whose output was not read, it is the last: the pipe was empty before it replied to each of the others.
    pub fn only_run(&self) -> Option<RunId> {
        if self.lane == Lane::Async {
            return None;
        }
        let running = || self.serving()?.first().map(|(_, run)| run);
        self.closing.last().copied().or_else(running)
    }

    /// Whether it was handed further runs behind the current one.
    pub fn has_handed(&self) -> bool {
        let running = self.serving().map_or(0, |serving| serving.running.len());
        self.lane != Lane::Async && running > 1
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Starting => None,
            Stage::Serving(serving) => serving.kill_at,
            Stage::Ended(report_until) => Some(*report_until),
        }
    }
}

impl Serving {
    /// Whether the worker has this run.
    pub fn runs(&self, run: RunId) -> bool {
        self.running.values().any(|&one| one == run)
    }

    /// The current run of a worker that runs one after the other, with its call.
    fn first(&self) -> Option<(u64, RunId)> {
        // Calls are numbered in the order in which they were sent.
        let first = self.running.iter().min_by_key(|(call, _)| **call);
        first.map(|(call, run)| (*call, *run))
    }

    /// Whether this run is the current one, as far as the replies show.
    pub fn has_begun(&self, run: RunId) -> bool {
        self.first().is_some_and(|(_, first)| first == run)
    }

    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Note that a run is being recalled; its call, unless it is the current run.
    pub fn recall(&mut self, run: RunId) -> Option<u64> {
        let mut running = self.running.iter();
        let call = running.find(|(_, one)| **one == run).map(|(call, _)| *call);
        let call = call.filter(|call| self.first().is_some_and(|(first, _)| first != *call))?;
        self.recalled.insert(call, run);
        Some(call)
    }

    /// The worker has returned a call: the run that will not begin.
    pub fn returned(&mut self, call: u64) -> Option<RunId> {
        let run = self.recalled.remove(&call)?;
        self.running.remove(&call);
        Some(run)
    }

    /// A run has ended, so it was not returned.
    pub fn ended(&mut self, run: RunId) {
        if !self.recalled.is_empty() {
            self.recalled.retain(|_, one| *one != run);
        }
    }

    /// It was killed for closing its socket: kill it once only.
    pub fn killed(&mut self) {
        self.kill_at = None;
    }

    fn take(
        &mut self,
        finished: impl IntoIterator<Item = (u64, Reply)>,
        replies: &mut Vec<(RunId, Reply)>,
    ) {
        for (call, reply) in finished {
            if let Some(run) = self.running.remove(&call) {
                replies.push((run, reply));
            }
        }
    }

    fn watch(&mut self, poll: &Poll, key: Key, wanted: Ready) {
        let Some(socket) = self.connection.socket() else {
            return;
        };
        let token = Token::new(Source::Worker, key);
        if poll
            .change(socket.as_fd(), token, self.watched, wanted)
            .is_ok()
        {
            self.watched = wanted;
        }
    }

    fn unwatch(&self, poll: &Poll) {
        if let Some(socket) = self.connection.socket() {
            poll.remove(socket.as_fd());
        }
        poll.remove(&self.pidfd);
    }
}
