//! The process of one worker: its connection, the runs on it, its death.
//!
//! It is started, serves, then ends. While it serves, each run that was sent to it is in `running` until its reply has
//! come or the worker has returned it. Calls are numbered in the order in which they were sent, so the lowest one is the
//! current run of a worker that runs one after the other. The fields change only here: each method names what happened.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::slots::Key;
use forebay_transport::Error as Fault;
use forebay_transport::calls::{Connection, Options, Outcome as Reply, Outgoing, Taker};
use forebay_transport::link::{Head, Payload};
use forebay_transport::stream::Socket;
use forebay_transport::wire::{Codec, Role};
use rustix::process::{Signal, pidfd_send_signal};

use crate::dispatcher::handover::MovedRun;
use crate::dispatcher::limit::{DEATH_REPORT_MS, GROWTH_RUN_MS, HALF_DEAD_MS};
use crate::dispatcher::poll::{Poll, Ready, Source, Token};
use crate::dispatcher::supervisor::protocol::StartedWorker;
use crate::dispatcher::workers::RunId;
use crate::dispatcher::workers::growth::Mark;
use crate::dispatcher::workers::tail::Tail;
use crate::error::{Error, Result};
use crate::hash::ByNumber;
use crate::message::Message;
use crate::request::{Death, Lane};
use crate::sys;

/// A worker whose process runs.
struct Serving {
    connection: Arc<Connection>,
    pid: i32,
    pidfd: OwnedFd,
    generation: u32,
    is_measured: bool,
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
    lane: Lane,
    nonce: u64,
    stage: Stage,
    /// The peak and the limit of a worker that was killed for using too much memory.
    expelled: Option<(u64, u64)>,
    touched: bool,
    dismissed: bool,
    /// Its side socket, once it has identified itself.
    side: Option<Key>,
    tail: Tail,
    /// The most private memory measured since its last run began.
    peak_bytes: Option<u64>,
    /// Its private memory before its last long run; `mark` is the kernel's high-water mark then.
    base_bytes: Option<u64>,
    mark: Option<Mark>,
    began: Instant,
    /// Runs that it has replied to, while their last output is being read.
    closing: Vec<RunId>,
}

/// Its life.
impl WorkerProcess {
    /// A worker that the supervisor starts. It identifies itself by the nonce when it connects its side socket.
    pub fn new(key: Key, lane: Lane, nonce: u64) -> Self {
        Self {
            key,
            lane,
            nonce,
            stage: Stage::Starting,
            expelled: None,
            touched: false,
            dismissed: false,
            side: None,
            tail: Tail::default(),
            peak_bytes: None,
            base_bytes: None,
            mark: None,
            began: Instant::now(),
            closing: Vec::new(),
        }
    }

    /// Tells it from earlier and later workers of its slot.
    pub fn key(&self) -> Key {
        self.key
    }

    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// Whether it was asked to leave.
    pub fn was_dismissed(&self) -> bool {
        self.dismissed
    }

    /// It has started and serves from now on. False if that is not awaited.
    ///
    /// # Errors
    /// `System` if the kernel watches no further descriptor; `Transport` if the connection is in use.
    pub fn adopt(&mut self, poll: &Poll, started: StartedWorker) -> Result<bool> {
        if !matches!(self.stage, Stage::Starting) {
            return Ok(false);
        }
        let StartedWorker {
            connection,
            pid,
            pidfd,
            generation,
            is_measured,
        } = started;
        connection.attach().map_err(Error::Transport)?;
        connection.cork().map_err(Error::Transport)?;
        let mut serving = Serving {
            connection,
            pid,
            pidfd,
            generation,
            is_measured,
            watched: Ready::default(),
            running: ByNumber::default(),
            recalled: ByNumber::default(),
            over: false,
            kill_at: None,
        };
        let death = Token::new(Source::Death, self.key);
        poll.add(&serving.pidfd, death, Ready::READ)
            .map_err(Error::system("epoll_ctl"))?;
        serving.watch(poll, self.key, Ready::READ);
        self.stage = Stage::Serving(serving);
        Ok(true)
    }

    /// Go on with the process of another server, which has identified itself by this side socket.
    ///
    /// # Errors
    /// `System` if the kernel watches no further descriptor; `Transport` for another kind of descriptor.
    pub fn resume(
        &mut self,
        poll: &Poll,
        (pid, is_measured): (i32, bool),
        (connection, pidfd, generation): (OwnedFd, OwnedFd, u32),
        side: Key,
        runs: &[MovedRun],
    ) -> Result<()> {
        let options = Options::new(Role::Caller, "a worker");
        let connection = Connection::resume(connection, options, true).map_err(Error::Transport)?;
        for run in runs {
            let expected = connection.expect_reply(run.call, Taker::Queue);
            expected.map_err(Error::Transport)?;
        }
        let started = StartedWorker {
            connection: Arc::new(connection),
            pid,
            pidfd,
            generation,
            is_measured,
        };
        self.adopt(poll, started)?;
        self.side = Some(side);
        if let Some(serving) = self.serving_mut() {
            let runs = runs
                .iter()
                .map(|MovedRun { call, run }| (*call, (run.id, run.attempt)));
            serving.running.extend(runs);
        }
        Ok(())
    }

    /// Whether what it runs may go over to another server: nothing is half read or half written, it returns nothing, and
    /// it has lent no memory, whose names the other one could not read.
    pub fn is_movable(&self) -> bool {
        let Some(serving) = self.serving() else {
            return false;
        };
        let count = serving.running.len();
        let is_between = serving.connection.is_quiescent(count).unwrap_or(false);
        let is_open = serving.connection.is_open().unwrap_or(false);
        let one_by_one = self.is_async() || count == 1;
        let is_known = self.side.is_some() && !serving.over;
        is_known
            && one_by_one
            && serving.recalled.is_empty()
            && is_open
            && is_between
            && !serving.connection.borrows()
    }

    /// Its connection and its pidfd, while it serves.
    pub fn descriptors(&self) -> Option<(Socket, &OwnedFd)> {
        let serving = self.serving()?;
        Some((serving.connection.socket()?, &serving.pidfd))
    }

    /// Its runs without a reply, by their calls.
    pub fn open_runs(&self) -> impl Iterator<Item = (u64, RunId)> {
        let running = self.serving().map(|serving| &serving.running);
        running
            .into_iter()
            .flatten()
            .map(|(call, run)| (*call, *run))
    }

    /// Its process; 0 while it does not serve.
    pub fn pid(&self) -> i32 {
        self.serving().map_or(0, |serving| serving.pid)
    }

    /// Of its lease.
    pub fn generation(&self) -> u32 {
        self.serving().map_or(0, |serving| serving.generation)
    }

    /// Whether its memory is that of its runs.
    pub fn is_measured(&self) -> bool {
        self.serving().is_some_and(|serving| serving.is_measured)
    }

    /// Another server has it: let go of its connection, and tell it nothing.
    pub fn leave(&self, poll: &Poll) {
        if let Some(serving) = self.serving() {
            serving.unwatch(poll);
            drop(serving.connection.close_local());
        }
    }

    /// It has connected its side socket. False if that is another worker's.
    pub fn identify(&mut self, nonce: u64, side: Key) -> bool {
        let is_own = self.nonce == nonce;
        if is_own {
            self.side = Some(side);
        }
        is_own
    }

    /// Its side socket, once it has identified itself.
    pub fn side(&self) -> Option<Key> {
        self.side
    }

    /// It uses too much memory: kill it, and remember why.
    pub fn expel(&mut self, peak_bytes: u64, limit_bytes: u64) {
        self.expelled = Some((peak_bytes, limit_bytes));
        self.kill();
    }

    /// It outlives its socket: kill it, once only.
    pub fn kill_half_dead(&mut self) {
        if let Some(serving) = self.serving_mut() {
            serving.kill_at = None;
        }
        self.kill();
    }

    /// Kill it by its pidfd, since its number may be another process's by now. Its keeper kills the rest of its group.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Send a signal to its process. One that has gone needs none: its end is on its way here.
    pub fn signal(&self, signal: Signal) {
        if let Some(serving) = self.serving() {
            let _ = pidfd_send_signal(&serving.pidfd, signal);
        }
    }

    /// Send the signal that makes it read its side socket.
    pub fn interrupt(&self) {
        if let Some(serving) = self.serving() {
            sys::interrupt(&serving.pidfd);
        }
    }

    /// Its process has ended: read its last replies. The supervisor has to report how it ended.
    pub fn end(&mut self, poll: &Poll, replies: &mut Vec<(RunId, Reply)>) {
        let report_until = Instant::now() + Duration::from_millis(DEATH_REPORT_MS);
        let Stage::Serving(mut serving) =
            std::mem::replace(&mut self.stage, Stage::Ended(report_until))
        else {
            return;
        };
        // Replies that it sent before its death are still in the socket.
        drop(serving.connection.peer_died());
        if let Ok(finished) = serving.connection.receive() {
            serving.take(finished, replies);
        }
        serving.watch(poll, self.key, Ready::default());
        poll.remove(&serving.pidfd);
        serving.connection.close();
    }

    /// Its slot is free from now on: close its connection.
    pub fn close(&self, poll: &Poll) {
        if let Some(serving) = self.serving() {
            // Explicitly: a descriptor that was duplicated stays in the epoll after it is closed here.
            serving.unwatch(poll);
            serving.connection.close();
        }
    }

    /// Its death as the supervisor reports it, with what is known here.
    pub fn death(&self, reported: Death, memory_limit: Option<u64>) -> Death {
        let mut death = Death {
            peak_bytes: reported.peak_bytes.max(self.peak_bytes),
            ..reported
        };
        if let Some((peak, limit)) = self.expelled {
            death.cause = Arc::from("memory");
            death.peak_bytes = death.peak_bytes.max(Some(peak));
            death.limit_bytes = Some(limit);
        }
        if &*death.cause == "memory" {
            death.limit_bytes = death.limit_bytes.or(memory_limit);
        }
        if death.last_output.is_empty() {
            // A worker's output comes to the dispatcher, not to its keeper.
            death.last_output = self.tail.text().into();
        }
        death
    }

    /// When it is overdue: to be killed, or to count as ended for an unknown reason.
    pub fn deadline(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Starting => None,
            Stage::Serving(serving) => serving.kill_at,
            Stage::Ended(report_until) => Some(*report_until),
        }
    }

    /// Whether its process has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended(_))
    }

    /// Whether its process runs and has been handed over.
    pub fn is_serving(&self) -> bool {
        self.serving().is_some()
    }

    /// Whether this process runs here.
    pub fn is_process(&self, pid: i32) -> bool {
        self.serving().is_some_and(|serving| serving.pid == pid)
    }

    fn serving(&self) -> Option<&Serving> {
        match &self.stage {
            Stage::Serving(serving) => Some(serving),
            Stage::Starting | Stage::Ended(_) => None,
        }
    }

    fn serving_mut(&mut self) -> Option<&mut Serving> {
        match &mut self.stage {
            Stage::Serving(serving) => Some(serving),
            Stage::Starting | Stage::Ended(_) => None,
        }
    }
}

/// Its connection.
impl WorkerProcess {
    /// Send a run. False if its process is exiting: its death will be reported.
    ///
    /// # Errors
    /// `Transport` if the connection refuses it, such as a frame that is too long.
    pub fn dispatch(&mut self, run: RunId, message: Message) -> Result<bool> {
        let call = self.send(message, false)?;
        if let (Some(call), Some(serving)) = (call, self.serving_mut()) {
            serving.running.insert(call, run);
        }
        Ok(call.is_some())
    }

    /// Ask it to leave.
    pub fn dismiss(&mut self) {
        self.dismissed = true;
        let leave = Message {
            head: crate::message::leave(),
            segment: None,
        };
        // Fails if it has gone already.
        drop(self.send(leave, true));
    }

    fn send(&mut self, message: Message, one_way: bool) -> Result<Option<u64>> {
        let Stage::Serving(serving) = &mut self.stage else {
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
        match serving.connection.start(outgoing, Taker::Queue) {
            Ok(call) => Ok(Some(call)),
            // Its death will be reported, and ends its runs.
            Err(Fault::Broken { .. } | Fault::Closed { .. } | Fault::Protocol { .. }) => Ok(None),
            Err(error) => Err(Error::Transport(error)),
        }
    }

    /// Read its replies, each with its run. True once, when its socket has ended.
    pub fn receive(&mut self, replies: &mut Vec<(RunId, Reply)>) -> bool {
        let Some(serving) = self.serving_mut() else {
            return false;
        };
        let Ok(finished) = serving.connection.receive() else {
            return false;
        };
        serving.take(finished, replies);
        // Usually its process ends at the same moment, which its pidfd reports; one that lives on is killed.
        let ends = serving.connection.is_over() && !serving.over;
        if ends {
            serving.over = true;
            serving.kill_at = Instant::now().checked_add(Duration::from_millis(HALF_DEAD_MS));
        }
        ends
    }

    /// It is to be flushed at the end of the turn. False if that was noted already.
    pub fn touch(&mut self) -> bool {
        !std::mem::replace(&mut self.touched, true)
    }

    /// Send what was collected in this turn.
    pub fn flush(&mut self, poll: &Poll) {
        self.touched = false;
        let key = self.key;
        if let Some(serving) = self.serving_mut() {
            let write = !serving.connection.flush().unwrap_or(true);
            let read = !serving.over;
            serving.watch(poll, key, Ready { read, write });
        }
    }
}

/// Its runs.
impl WorkerProcess {
    pub fn is_async(&self) -> bool {
        self.lane == Lane::Async
    }

    /// A run is sent: it begins now unless it is handed to a worker that has another one.
    ///
    /// A handed run begins later: until then measurements and output belong to the run before it.
    pub fn begin_unless_handed(&mut self) {
        if self.is_async() || self.serving().is_none_or(Serving::is_idle) {
            self.begin();
        }
    }

    /// A run has ended: the next one begins.
    pub fn run_ended(&mut self, run: RunId) {
        if let Some(serving) = self.serving_mut() {
            serving.ended(run);
        }
        if !self.is_async() && self.has_runs() {
            self.begin(); // its next run has begun
        }
    }

    fn begin(&mut self) {
        self.tail.clear();
        self.peak_bytes = None;
        self.began = Instant::now();
    }

    /// Whether it has runs whose replies have not come.
    pub fn has_runs(&self) -> bool {
        self.serving().is_some_and(|serving| !serving.is_idle())
    }

    /// Whether the reply to this run has not come.
    pub fn has_run(&self, run: RunId) -> bool {
        self.serving().is_some_and(|serving| serving.runs(run))
    }

    /// Whether this run is the current one, as far as the replies show.
    pub fn has_begun(&self, run: RunId) -> bool {
        let first = self.serving().and_then(Serving::first);
        first.is_some_and(|(_, first)| first == run)
    }

    /// Note that a run is being recalled; its call, unless it is the current run.
    pub fn recall(&mut self, run: RunId) -> Option<u64> {
        self.serving_mut()?.recall(run)
    }

    /// It has returned a call: the run that will not begin.
    pub fn returned(&mut self, call: u64) -> Option<RunId> {
        self.serving_mut()?.returned(call)
    }

    /// Record a measurement.
    pub fn measured(&mut self, private_bytes: u64) {
        self.peak_bytes = self.peak_bytes.max(Some(private_bytes));
        if self.serving().is_some_and(Serving::is_idle) {
            self.base_bytes = Some(private_bytes);
        }
    }

    /// The peak of private memory of a run that has ended, if it was measured.
    pub fn peak_of_run(&mut self) -> Option<u64> {
        let long = Duration::from_millis(GROWTH_RUN_MS);
        if self.is_async() || self.began.elapsed() < long {
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

    /// Its growth counts from now on; that of an async worker is not measured by its mark.
    pub fn set_first_mark(&mut self) {
        if self.lane != Lane::Async {
            self.set_mark();
        }
    }

    fn set_mark(&mut self) {
        let serving = self.serving().filter(|serving| serving.is_measured);
        self.mark = serving.and_then(|serving| Mark::set(serving.pid));
    }
}

/// Its output.
impl WorkerProcess {
    /// Replies have come: the output that is read until [`Self::output_read`] is of these runs.
    pub fn replied(&mut self, replies: &[(RunId, Reply)]) {
        self.closing.extend(replies.iter().map(|(run, _)| *run));
    }

    /// What it wrote before its last replies was read.
    pub fn output_read(&mut self) {
        self.closing.clear();
    }

    /// Whether its output may be of this run.
    pub fn writes_for(&self, run: RunId) -> bool {
        self.has_run(run) || self.closing.contains(&run)
    }

    /// It has written: the run that this belongs to, if that is a single one.
    pub fn wrote(&mut self, bytes: &[u8]) -> Option<RunId> {
        self.tail.add(bytes);
        self.only_run()
    }

    /// Of several runs that it has replied to and whose output was not read, it is the last: the pipe was empty before
    /// it replied to each of the others.
    fn only_run(&self) -> Option<RunId> {
        if self.is_async() {
            return None;
        }
        let running = || self.serving()?.first().map(|(_, run)| run);
        self.closing.last().copied().or_else(running)
    }

    /// Whether it was handed further runs behind the current one.
    pub fn has_handed(&self) -> bool {
        let running = self.serving().map_or(0, |serving| serving.running.len());
        !self.is_async() && running > 1
    }
}

impl Serving {
    /// Whether the worker has this run.
    fn runs(&self, run: RunId) -> bool {
        self.running.values().any(|&one| one == run)
    }

    /// The current run of a worker that runs one after the other, with its call.
    fn first(&self) -> Option<(u64, RunId)> {
        // Calls are numbered in the order in which they were sent.
        let first = self.running.iter().min_by_key(|(call, _)| **call);
        first.map(|(call, run)| (*call, *run))
    }

    fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Note that a run is being recalled; its call, unless it is the current run.
    fn recall(&mut self, run: RunId) -> Option<u64> {
        let mut running = self.running.iter();
        let call = running.find(|(_, one)| **one == run).map(|(call, _)| *call);
        let call = call.filter(|call| self.first().is_some_and(|(first, _)| first != *call))?;
        self.recalled.insert(call, run);
        Some(call)
    }

    /// The worker has returned a call: the run that will not begin.
    fn returned(&mut self, call: u64) -> Option<RunId> {
        let run = self.recalled.remove(&call)?;
        self.running.remove(&call);
        Some(run)
    }

    /// A run has ended, so it was not returned.
    fn ended(&mut self, run: RunId) {
        if !self.recalled.is_empty() {
            self.recalled.retain(|_, one| *one != run);
        }
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
