//! The dispatcher's thread, which runs in turns.
//!
//! A turn takes in what workers, clients, the store and the program's threads have sent, lets the machine decide,
//! performs its actions in their order, and flushes each connection once, so that a thousand requests in flight cost
//! few system calls. Only the epoll blocks, and nothing here attaches to Python.
//!
//! Order within a turn is part of the design. Input comes before time, because a reply that has arrived must count
//! before the time-out of its run. Actions run until none is left, because performing one may let the machine decide
//! more. The store's batch is written before the flush, so that a commit is on its way while the kernel takes the
//! bytes. Workers are flushed before clients, because they compute while clients are notified.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use forebay_transport::calls::Outcome as Reply;

use crate::action::Action;
use crate::clock::Clock;
use crate::dispatcher::Shared;
use crate::dispatcher::clients::Clients;
use crate::dispatcher::clients::admin_calls::AdminCalls;
use crate::dispatcher::clients::following::Following;
use crate::dispatcher::clients::waiters::Waiters;
use crate::dispatcher::commits::pending_writes::PendingWrites;
use crate::dispatcher::commits::recovery;
use crate::dispatcher::idle::Idleness;
use crate::dispatcher::poll::{Poll, Ready, Source, Token, watch_only};
use crate::dispatcher::reload::code::Code;
use crate::dispatcher::reload::source_files::SourceFiles;
use crate::dispatcher::settings::Settings;
use crate::dispatcher::supervisor::local::Tickets;
use crate::dispatcher::supervisor::protocol::{Command, Order};
use crate::dispatcher::workers::dispatch_queue::DispatchQueue;
use crate::dispatcher::workers::interrupts::Interrupts;
use crate::dispatcher::workers::measures::Measures;
use crate::dispatcher::workers::output::SideChannels;
use crate::dispatcher::workers::{RunId, WorkerProcess, WorkerProcesses};
use crate::error::{Error, Result};
use crate::logs::Logs;
use crate::machine::Machine;
use crate::request::{Millis, Slot};
use crate::store::Answer;

/// What the thread owns.
pub(super) struct Driver {
    pub poll: Poll,
    pub clock: Clock,
    /// The time of this turn, the same for every event in it.
    pub now: Millis,
    pub shared: Arc<Shared>,
    pub machine: Machine,
    pub workers: WorkerProcesses,
    pub clients: Clients,
    pub tickets: Tickets,
    pub waiters: Waiters,
    pub admin_calls: AdminCalls,
    /// The store with what is on its way to it; `None` if requests are kept in memory alone.
    pub pending: Option<PendingWrites>,
    /// Scratch space, as are `commands`, `actions` and `replies`: kept so that a turn allocates nothing.
    pub answers: Vec<Answer>,
    idleness: Idleness,
    drains: Vec<Sender<()>>,
    pub code: Code,
    pub side_channels: SideChannels,
    pub following: Following,
    pub interrupts: Interrupts,
    pub dispatch_queue: DispatchQueue,
    pub measures: Measures,
    pub source_files: SourceFiles,
    pub reloads: bool,
    pub arguments_bytes_max: usize,
    pub memory_limit: Option<u64>,
    idle_end: Option<Duration>,
    commands: Vec<Command>,
    actions: Vec<Action>,
    replies: Vec<(RunId, Reply)>,
    closing: bool,
}

impl Driver {
    pub fn new(settings: Settings, shared: Arc<Shared>) -> Result<Self> {
        let poll = Poll::new().map_err(Error::system("epoll_create"))?;
        watch_only(&poll, &shared.commands, Source::Commands)?;
        let store = settings.store.as_ref();
        let clock = store.map_or_else(Clock::new, |store| store.clock);
        let now = clock.now();
        let memory_limit = settings.policy.memory_limit;
        let mut policy = settings.policy;
        if let Some(store) = &settings.store {
            policy.result_bytes_max = store.result_bytes_max;
        }
        let mut machine = Machine::new(policy, now);
        let directory = settings
            .store
            .as_ref()
            .map(|store| store.directory.join("logs"));
        let pending = settings
            .store
            .map(|config| recovery::open(config, &mut machine, now))
            .transpose()?;
        if let Some(pending) = &pending {
            watch_only(&poll, &**pending.store.answers(), Source::Store)?;
        }
        let mut following = Following::default();
        following.logs = directory
            .map(|directory| Logs::open(&directory, settings.log_bytes_max))
            .transpose()?;
        let measures = Measures::start(&poll, memory_limit)?;
        let mut side_channels = SideChannels::default();
        if let Some(path) = &settings.side_socket {
            side_channels.listen(&poll, path)?;
        }
        // Clients connect last: until the store was read, no id, submission token or idempotency key of theirs
        // could be recognized.
        let mut clients = Clients::default();
        if let Some(path) = &settings.socket {
            clients.listen(&poll, path)?;
        }
        Ok(Self {
            poll,
            clock,
            now,
            shared,
            machine,
            workers: WorkerProcesses::default(),
            clients,
            tickets: Tickets::default(),
            waiters: Waiters::default(),
            admin_calls: AdminCalls::default(),
            pending,
            answers: Vec::new(),
            idleness: Idleness::Busy,
            drains: Vec::new(),
            code: Code::default(),
            side_channels,
            following,
            interrupts: Interrupts::default(),
            dispatch_queue: DispatchQueue::default(),
            measures,
            source_files: SourceFiles::default(),
            reloads: settings.reload,
            arguments_bytes_max: settings.arguments_bytes_max,
            memory_limit,
            idle_end: settings.idle_end,
            commands: Vec::new(),
            actions: Vec::new(),
            replies: Vec::new(),
            closing: false,
        })
    }

    /// Serve until the owner closes.
    pub fn run(mut self) {
        while !self.closing {
            let timeout = self.timeout();
            if self.poll.wait(timeout).is_err() {
                break; // only an invalid epoll descriptor fails
            }
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.now = self.clock.now();
        // Before any event: a schedule that is due by the wall clock must not fire by a time that the clock no longer
        // shows.
        self.machine.set_wall(self.now, self.clock.wall());
        for index in 0.. {
            let Some((token, ready)) = self.poll.event(index) else {
                break;
            };
            self.handle(token, ready);
        }
        for key in self.clients.take_again() {
            self.read_client(key);
        }
        for key in self.following.take_again() {
            self.pump(key);
        }
        self.run_timers();
        self.act();
        self.measures.gauge.pace(!self.machine.is_idle());
        if let Some(pending) = &mut self.pending {
            pending.write();
        }
        self.flush();
        if !self.drains.is_empty() && (self.machine.is_idle() || self.machine.is_stuck()) {
            for drained in self.drains.drain(..) {
                let _ = drained.send(()); // fails if the caller no longer waits
            }
        }
    }

    fn handle(&mut self, token: Token, ready: Ready) {
        let Token { kind, key } = token;
        match kind {
            Source::Commands => self.take_commands(),
            Source::ClientListener => {
                for key in self.clients.accept(&self.poll) {
                    self.read_client(key);
                }
            }
            Source::Client if ready.read => self.read_client(key),
            Source::Client => {
                self.clients.flush_now(key);
                self.pump_client(key);
            }
            Source::Worker => {
                if let Some(slot) = self.workers.slot_of(key) {
                    if ready.write {
                        self.workers.touch(slot);
                    }
                    if ready.read {
                        self.read_worker(slot);
                    }
                }
            }
            Source::Death => {
                if let Some(slot) = self.workers.slot_of(key) {
                    self.worker_ended(slot);
                }
            }
            Source::Store => self.take_store_answers(),
            Source::Gauge => {
                self.take_readings();
                self.rebind_removed_sockets();
            }
            Source::SideListener => self.accept_sides(),
            Source::Inotify => self.check_source_files(),
            Source::Side => {
                self.read_side(key);
            }
            Source::Output => self.output_is_readable(key),
        }
    }

    fn take_commands(&mut self) {
        let mut commands = std::mem::take(&mut self.commands);
        let closed = self.shared.commands.drain(&mut commands).is_err();
        for command in commands.drain(..) {
            self.apply(command);
        }
        self.commands = commands;
        self.closing |= closed;
    }

    /// Take in the replies of a worker.
    pub fn read_worker(&mut self, slot: Slot) {
        let mut replies = std::mem::take(&mut self.replies);
        self.workers.receive(slot, &mut replies);
        self.read_output_before(slot, &replies);
        self.take_replies(slot, &mut replies);
    }

    /// Take in what a worker wrote before it replied, so that the output of a run precedes its end.
    ///
    /// Output and replies come by different descriptors, so the kernel keeps no order between them.
    fn read_output_before(&mut self, slot: Slot, replies: &[(RunId, Reply)]) {
        let Some(worker) = self.workers.get_mut(slot).filter(|_| !replies.is_empty()) else {
            return;
        };
        worker.closing.extend(replies.iter().map(|(run, _)| *run));
        if worker.side.is_none() {
            // A worker connects its side socket before it takes its first run, but this epoll may report the reply
            // first.
            self.accept_sides();
        }
        match self.workers.get(slot).and_then(WorkerProcess::serving) {
            // It has begun its next run, and its pipe was empty when it replied: what is there now belongs to that run.
            Some(serving) if !serving.is_idle() => self.read_side_of(slot),
            _ => self.drain_side(slot),
        }
        if let Some(worker) = self.workers.get_mut(slot) {
            worker.closing.clear();
        }
    }

    fn worker_ended(&mut self, slot: Slot) {
        let mut replies = std::mem::take(&mut self.replies);
        // Before the connection closes: closing it ends the runs whose output this still is.
        self.read_final_output(slot);
        self.workers.end(&self.poll, slot, &mut replies);
        self.take_replies(slot, &mut replies);
        self.shared.order(Order::Died { slot });
    }

    fn take_replies(&mut self, slot: Slot, replies: &mut Vec<(RunId, Reply)>) {
        for ((id, attempt), reply) in replies.drain(..) {
            let kept = self.pending.is_some();
            if let Some(outcome) = crate::dispatcher::workers::reply::outcome_of(&reply, kept) {
                let worker = self.workers.get_mut(slot);
                let peak = worker.and_then(WorkerProcess::peak_of_run);
                self.workers.ended(slot, (id, attempt));
                self.machine
                    .finished(self.now, slot, id, attempt, outcome, peak);
            }
        }
        self.replies = std::mem::take(replies);
    }

    /// Perform the machine's actions until none is left: performing one may produce others.
    fn act(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        loop {
            actions.extend(self.machine.actions());
            if actions.is_empty() {
                break;
            }
            for action in actions.drain(..) {
                self.perform(action);
            }
        }
        self.actions = actions;
    }

    /// Flush workers before clients: they compute while clients are notified.
    fn flush(&mut self) {
        self.workers.flush(&self.poll);
        for key in self.clients.flush(&self.poll) {
            self.client_left(key);
        }
        for key in self.clients.take_awaiting_fetch() {
            self.fetch_more(key);
        }
    }

    /// Refuse further work, and send to `reply_to` when nothing runs.
    pub fn drain(&mut self, reply_to: Sender<()>) {
        self.machine.drain(self.now);
        self.machine.retry_store(self.now); // once more: it may have room again
        self.drains.push(reply_to);
    }

    /// Close the listener; the connections close with this driver, and a worker exits when its connection ends.
    pub fn close(&mut self) {
        self.closing = true;
        self.clients.stop_listening(&self.poll);
    }

    /// An unpredictable number by which a worker identifies itself on its side socket.
    pub fn nonce(&self) -> u64 {
        RandomState::new().hash_one(self.now)
    }

    fn run_timers(&mut self) {
        if self.machine.next_tick().is_some_and(|at| at <= self.now) {
            self.machine.tick(self.now);
        }
        let now = Instant::now();
        self.clients.resume_accepting(&self.poll, now);
        for key in self.clients.take_overdue(now) {
            self.client_left(key);
        }
        if let Some(warning) = self.clients.take_warning(now) {
            self.shared.order(Order::Warn(warning));
        }
        self.side_channels.resume_accepting(&self.poll, now);
        if self
            .pending
            .as_mut()
            .is_some_and(|pending| pending.take_retry_due(now))
        {
            self.machine.retry_store(self.now);
        }
        for (slot, ended) in self.workers.overdue(now) {
            self.handle_overdue_worker(slot, ended);
        }
        self.repeat_interrupts(now);
        self.notify_reasons(now);
        if let Some(after) = self.idle_end
            && self.idleness.look(self.machine.is_idle(), now, after)
        {
            // Counting walks every request, so it happens only when nothing runs, and once a second at most.
            match self.machine.figures(self.now).unfinished {
                0 => self.shared.order(Order::Idle),
                _ => self.idleness = Idleness::Busy,
            }
        }
    }

    /// Bind sockets again whose files were removed, or warn: a clean-up of the runtime directory deletes them.
    fn rebind_removed_sockets(&mut self) {
        let clients = self.clients.rebind_if_removed(&self.poll);
        let side_channels = self.side_channels.rebind_if_removed(&self.poll);
        let done = [clients, side_channels];
        if done.contains(&Some(Ok(()))) {
            self.shared.order(Order::Rebound);
        }
        for why in done
            .into_iter()
            .flatten()
            .filter_map(std::result::Result::err)
        {
            self.shared.order(Order::Warn(why));
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if self.clients.has_more() || self.following.has_more() {
            return Some(Duration::ZERO);
        }
        let tick = self.machine.next_tick().map(|at| self.clock.until(at));
        let now = Instant::now();
        let others = [
            self.workers.deadline(),
            self.clients.resumes(),
            self.side_channels.resumes(),
            self.idleness.due(),
            self.interrupts.deadline(),
            self.following.deadline(),
            self.pending.as_ref().and_then(PendingWrites::retry_at),
        ];
        let others = others.into_iter().flatten();
        let others = others.map(|at| at.saturating_duration_since(now));
        others.chain(tick).min()
    }
}

impl Drop for Driver {
    /// Closes the queues also when the thread panicked, so that waiting threads learn that it is gone.
    fn drop(&mut self) {
        self.shared.close();
    }
}
