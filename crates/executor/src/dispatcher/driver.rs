//! The dispatcher's thread: what it owns, and its turns.
//!
//! A turn takes in what has come from workers, clients, the store and the program's threads, lets the machine decide,
//! does what it decided in its order, and hands what is to be said to the kernel: once for each connection, so that a
//! thousand requests in flight cost few system calls. Nothing here waits but the epoll, and nothing attaches to Python.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use forebay_transport::call::Outcome as Reply;

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
use crate::dispatcher::poll::{Poll, Ready, Token};
use crate::dispatcher::reload::code::Code;
use crate::dispatcher::reload::source_files::SourceFiles;
use crate::dispatcher::settings::Settings;
use crate::dispatcher::supervisor::local::Tickets;
use crate::dispatcher::supervisor::protocol::{Command, Order};
use crate::dispatcher::workers::dispatch_queue::DispatchQueue;
use crate::dispatcher::workers::interrupts::Interrupts;
use crate::dispatcher::workers::measures::Measures;
use crate::dispatcher::workers::output::SideChannels;
use crate::dispatcher::workers::{Run, WorkerProcess, WorkerProcesses};
use crate::error::{Error, Result};
use crate::logs::Logs;
use crate::machine::Machine;
use crate::request::{Millis, Slot};
use crate::store::Answer;

/// What the thread owns.
pub(super) struct Driver {
    pub poll: Poll,
    pub clock: Clock,
    /// Of this turn.
    pub now: Millis,
    pub shared: Arc<Shared>,
    pub machine: Machine,
    pub workers: WorkerProcesses,
    pub clients: Clients,
    pub tickets: Tickets,
    pub waiters: Waiters,
    pub admin_calls: AdminCalls,
    /// The store, where there is one.
    pub pending: Option<PendingWrites>,
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
    replies: Vec<(Run, Reply)>,
    closing: bool,
}

impl Driver {
    pub fn new(settings: Settings, shared: Arc<Shared>) -> Result<Self> {
        let poll = Poll::new().map_err(Error::system("epoll_create"))?;
        poll.watch_for_good(&shared.commands, Token::Commands)?;
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
            poll.watch_for_good(&**pending.store.answers(), Token::Store)?;
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
        // Nobody is let in before everything that was accepted is known.
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
                break; // its own descriptor is no epoll any more
            }
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.now = self.clock.now();
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
                let _ = drained.send(()); // refused where nobody waits for it any more
            }
        }
    }

    fn handle(&mut self, token: Token, ready: Ready) {
        match token {
            Token::Commands => self.take_commands(),
            Token::ClientListener => {
                for key in self.clients.accept(&self.poll) {
                    self.read_client(key);
                }
            }
            Token::Client(key) if ready.read => self.read_client(key),
            Token::Client(key) => {
                self.clients.flush_now(key);
                self.pump_client(key);
            }
            Token::Worker(key) => {
                if let Some(slot) = self.workers.slot_of(key) {
                    if ready.write {
                        self.workers.touch(slot);
                    }
                    if ready.read {
                        self.read_worker(slot);
                    }
                }
            }
            Token::Death(key) => {
                if let Some(slot) = self.workers.slot_of(key) {
                    self.worker_ended(slot);
                }
            }
            Token::Store => self.take_store_answers(),
            Token::Gauge => {
                self.take_readings();
                self.rebind_removed_sockets();
            }
            Token::SideListener => self.accept_sides(),
            Token::SourceFiles => self.check_source_files(),
            Token::Side(key) => {
                self.read_side(key);
            }
            Token::Output(key) => self.output_is_readable(key),
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

    /// What a worker has replied.
    pub fn read_worker(&mut self, slot: Slot) {
        let mut replies = std::mem::take(&mut self.replies);
        self.workers.receive(slot, &mut replies);
        self.read_output_before(slot, &replies);
        self.take_replies(slot, &mut replies);
    }

    /// What a worker wrote before it replied comes before the end of its runs.
    fn read_output_before(&mut self, slot: Slot, replies: &[(Run, Reply)]) {
        let Some(worker) = self.workers.get_mut(slot).filter(|_| !replies.is_empty()) else {
            return;
        };
        worker.closing.extend(replies.iter().map(|(run, _)| *run));
        if worker.side.is_none() {
            // It connects before it takes its first run, and may have been heard on the other socket first.
            self.accept_sides();
        }
        match self.workers.get(slot).and_then(WorkerProcess::serving) {
            // It has begun the next one, and had nothing left in its pipe before it replied.
            Some(serving) if !serving.is_idle() => self.read_side_of(slot),
            _ => self.drain_side(slot),
        }
        if let Some(worker) = self.workers.get_mut(slot) {
            worker.closing.clear();
        }
    }

    fn worker_ended(&mut self, slot: Slot) {
        let mut replies = std::mem::take(&mut self.replies);
        self.read_final_output(slot);
        self.workers.end(&self.poll, slot, &mut replies);
        self.take_replies(slot, &mut replies);
        self.shared.order(Order::Died { slot });
    }

    fn take_replies(&mut self, slot: Slot, replies: &mut Vec<(Run, Reply)>) {
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

    /// Do what the machine has decided, until nothing is left to do.
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

    /// WorkerProcesses first: they compute while clients are told.
    fn flush(&mut self) {
        self.workers.flush(&self.poll);
        for key in self.clients.flush(&self.poll) {
            self.client_left(key);
        }
        for key in self.clients.take_awaiting_fetch() {
            self.fetch_more(key);
        }
    }

    /// Take no more, and tell when nothing runs.
    pub fn drain(&mut self, tell: Sender<()>) {
        self.machine.drain(self.now);
        self.machine.retry_store(self.now); // once more: it may have room again
        self.drains.push(tell);
    }

    /// Let go of workers, which leave when their connection ends, and of clients.
    pub fn close(&mut self) {
        self.closing = true;
        self.clients.stop_listening(&self.poll);
    }

    /// A number that nobody can guess, by which a worker names itself.
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
            // Looking at each request is done once a second at most.
            match self.machine.figures(self.now).unfinished {
                0 => self.shared.order(Order::Idle),
                _ => self.idleness = Idleness::Busy,
            }
        }
    }

    /// A clean-up of the runtime directory takes sockets with it: they are made again, or a person is told.
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
    /// Also where the thread panicked: whoever waits for it is told that it is gone.
    fn drop(&mut self) {
        self.shared.close();
    }
}
