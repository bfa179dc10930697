//! The dispatcher's thread, which runs in turns.
//!
//! A turn takes in what workers, clients, the store and the program's threads have sent, lets the machine decide,
//! performs its actions in their order, and flushes each connection once, so that a thousand requests in flight cost
//! few system calls. Only the epoll blocks, and nothing here attaches to Python.
//!
//! [`Driver`] only passes on: an event to the part that owns its data, an action of the machine to the part that performs
//! it, an answer of the store to the part that asked. A part that needs another one takes it as an argument: workers that
//! of clients and commits, clients that of commits and reload, never the other way.
//!
//! Order within a turn is part of the design. Input comes before time, because a reply that has arrived must count
//! before the time-out of its run. Actions run until none is left, because performing one may let the machine decide
//! more. The store's batch is written before the flush, so that a commit is on its way while the kernel takes the
//! bytes. Workers are flushed before clients, because they compute while clients are notified.
//!
//! With the loops of the transport's and the tensor servers only the walk over events is the same: here a connection is
//! answered at the end of a turn, no handshake has a deadline, and each part knows what is due in it.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use forebay_base::Queue;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::action::Action;
use crate::clock::Clock;
use crate::dispatcher::audit::AuditLog;
use crate::dispatcher::clients::Clients;
use crate::dispatcher::commits::Commits;
use crate::dispatcher::commits::purpose::Purpose;
use crate::dispatcher::context::Context;
use crate::dispatcher::handover::{Handover, MovedWorker, PendingHandover, SpareDescriptors};
use crate::dispatcher::poll::{Poll, Ready, Source, Token, watch_only};
use crate::dispatcher::reload::{Parked, Reload};
use crate::dispatcher::settings::Settings;
use crate::dispatcher::supervisor::Supervisor;
use crate::dispatcher::supervisor::protocol::{Command, Order};
use crate::dispatcher::supervisor::shared::Shared;
use crate::dispatcher::workers::{Workers, moving};
use crate::error::{Error, Result};
use crate::feed::{Exposition, Feed, FeedBounds};
use crate::id::RequestId;
use crate::items::Items;
use crate::logs::Logs;
use crate::machine::Machine;
use crate::request::Slot;
use crate::secret::Secrets;
use crate::store::{Answer, Fetched, StoreConfig};

/// What the thread owns.
pub(super) struct Driver {
    clock: Clock,
    cx: Context,
    workers: Workers,
    clients: Clients,
    commits: Commits,
    supervisor: Supervisor,
    reload: Reload,
    /// Scratch space, as are `answers` and `actions`: kept so that a turn allocates nothing.
    commands: Vec<Command>,
    answers: Vec<Answer>,
    actions: Vec<Action>,
    giving: Option<PendingHandover>,
    /// Another server has given its sockets and workers, and may have to go on with them: until [`Command::Begin`] nobody
    /// is accepted and nothing of a worker is read.
    waits: bool,
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
        let memory = settings.memory();
        let mut machine = Machine::new(settings.whole_policy(), now);
        machine.keep_news();
        let waits = settings.passed.is_some();
        let moved = settings.moved;
        let adopted: Vec<_> = moved.iter().map(MovedWorker::adopted).collect();
        let slots = machine.adopt(now, &adopted);
        let state = settings.store.as_ref().map(|store| store.directory.clone());
        let directory = state.as_ref().map(|state| state.join("logs"));
        let running = moved.iter().flat_map(|worker| &worker.runs);
        let running = running
            .map(|moved| (moved.run.id, moved.run.attempt))
            .collect();
        let store = settings.store.map(|store| StoreConfig { running, ..store });
        let (commits, feed_begins) = Commits::open(store, &poll, &mut machine, now)?;
        let bounds = match &settings.socket {
            Some(_) => FeedBounds::default(),
            None => FeedBounds::NOTHING, // nobody can read it
        };
        let feed = Feed::new(feed_begins, bounds);
        let logs = directory
            .map(|directory| Logs::open(&directory, settings.log_bytes_max))
            .transpose()?;
        let side = settings.side_socket.as_deref();
        let workers = Workers::new(&poll, side, memory, memory_limit, commits.has_store())?;
        // Clients connect last: until the store was read, no id, submission token or idempotency key of theirs
        // could be recognized.
        let audit = state.as_deref().map(AuditLog::new);
        let items = state.as_deref().map(Items::new);
        let mut clients = Clients::new((logs, items), audit, settings.arguments_bytes_max);
        if let Some(path) = &settings.socket {
            clients.inherit_gateway(settings.gateway);
            clients.listen(&poll, path, settings.passed)?;
        }
        let driver = Self {
            clock,
            cx: Context {
                poll,
                now,
                machine,
                feed,
                shared,
                secrets: Secrets::new(state),
            },
            clients,
            workers,
            commits,
            supervisor: Supervisor::new(settings.idle_end),
            reload: Reload::new(settings.reload),
            commands: Vec::new(),
            answers: Vec::new(),
            actions: Vec::new(),
            giving: None,
            waits,
            closing: false,
        };
        driver.go_on_with(slots, moved)
    }

    /// Go on with workers of the server before, once that has let go of them.
    fn go_on_with(mut self, slots: Vec<Slot>, moved: Vec<MovedWorker>) -> Result<Self> {
        for (slot, worker) in slots.into_iter().zip(moved) {
            moving::resume(&mut self.workers, &mut self.cx, slot, worker)?;
        }
        if self.waits {
            let reason = "the server before gives its place";
            self.cx.machine.pause(self.cx.now, Some(reason.into()));
        }
        Ok(self)
    }

    /// The server before has let go of everything.
    fn begin(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.clients.own_socket();
            self.cx.machine.pause(self.cx.now, None);
        }
    }

    /// The clock of the turns.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Serve until the owner closes.
    pub fn run(mut self) {
        while self.waits && !self.closing {
            if wait_for(&self.cx.shared.commands).is_err() {
                return;
            }
            self.cx.now = self.clock.now();
            self.take_commands();
            self.act();
            self.commits.write();
            self.supervisor.report_drained(&self.cx);
        }
        while !self.closing {
            let timeout = self.timeout();
            if self.cx.poll.wait(timeout).is_err() {
                break; // only an invalid epoll descriptor fails
            }
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.cx.now = self.clock.now();
        // Before any event: a schedule that is due by the wall clock must not fire by a time that the clock no longer
        // shows.
        self.cx.machine.set_wall(self.cx.now, self.clock.wall());
        for index in 0.. {
            let Some((token, ready)) = self.cx.poll.event(index) else {
                break;
            };
            self.handle(token, ready);
        }
        self.clients
            .take_more(&mut self.cx, &mut self.commits, &mut self.reload);
        self.run_timers();
        self.act();
        self.workers.pace(!self.cx.machine.is_idle());
        self.commits.write();
        // Workers before clients: they compute while clients are notified.
        self.workers.flush(&self.cx.poll);
        self.clients.pump_readers(&mut self.cx);
        self.clients.flush(&mut self.cx, &mut self.commits);
        self.supervisor.report_drained(&self.cx);
        self.go_on_giving();
    }

    fn handle(&mut self, token: Token, ready: Ready) {
        let Token { kind, key } = token;
        let Self {
            cx,
            clients,
            workers,
            commits,
            reload,
            ..
        } = self;
        match kind {
            Source::Commands => self.take_commands(),
            Source::ClientListener => clients.accept(cx, commits, reload),
            Source::Client if ready.read => clients.read(cx, commits, reload, key),
            Source::Client => clients.is_writable(cx, key),
            Source::Worker => workers.is_ready(cx, clients, key, ready),
            Source::Death => workers.ended(cx, clients, key),
            Source::Store => self.take_store_answers(),
            Source::Gauge => {
                workers.take_readings(cx);
                self.rebind_removed_sockets();
            }
            Source::SideListener => workers.accept_sides(cx, clients),
            Source::Inotify => reload.check_source_files(cx),
            Source::Side => workers.read_side(cx, clients, key),
            Source::Output => workers.read_output(cx, clients, key),
        }
    }

    fn run_timers(&mut self) {
        let Self {
            cx,
            clients,
            workers,
            commits,
            supervisor,
            ..
        } = self;
        if cx.machine.next_tick().is_some_and(|at| at <= cx.now) {
            cx.machine.tick(cx.now);
        }
        let now = Instant::now();
        clients.run_timers(cx, commits, now);
        commits.retry_store_if_due(cx, now);
        workers.run_timers(cx, clients, now);
        clients.notify_reasons(cx, now);
        supervisor.report_idle(cx, now);
    }

    fn timeout(&self) -> Option<Duration> {
        if self.clients.has_more() {
            return Some(Duration::ZERO);
        }
        let tick = self.cx.machine.next_tick().map(|at| self.clock.until(at));
        let now = Instant::now();
        let others = [
            self.workers.deadline(),
            self.clients.deadline(),
            self.supervisor.deadline(),
            self.commits.deadline(),
            self.giving.as_ref().map(PendingHandover::until),
        ];
        let others = others.into_iter().flatten();
        let others = others.map(|at| at.saturating_duration_since(now));
        others.chain(tick).min()
    }

    /// Bind sockets again whose files were removed, or warn: a clean-up of the runtime directory deletes them.
    fn rebind_removed_sockets(&mut self) {
        let clients = self.clients.rebind_if_removed(&self.cx.poll);
        let workers = self.workers.rebind_if_removed(&self.cx.poll);
        let done = [clients, workers];
        if done.contains(&Some(Ok(()))) {
            self.cx.shared.order(Order::Rebound);
        }
        for why in done
            .into_iter()
            .flatten()
            .filter_map(std::result::Result::err)
        {
            self.cx.shared.order(Order::Warn(why));
        }
    }
}

/// Commands of the program's threads.
impl Driver {
    fn take_commands(&mut self) {
        let mut commands = std::mem::take(&mut self.commands);
        let closed = self.cx.shared.commands.drain(&mut commands).is_err();
        for command in commands.drain(..) {
            self.apply(command);
        }
        self.commands = commands;
        self.closing |= closed;
    }

    /// Apply a command, and answer it. An answer is dropped if its caller no longer waits.
    fn apply(&mut self, command: Command) {
        let Self {
            cx,
            clients,
            workers,
            commits,
            supervisor,
            reload,
            ..
        } = self;
        match command {
            Command::Answer { ticket, head } => clients.answer_ticket(ticket, head),
            Command::Submit(local) => supervisor.submit(cx, local, reload.code().name()),
            Command::Cancel(ticket, answer) => drop(answer.send(supervisor.cancel(cx, ticket))),
            Command::Ready(slot, started) => workers.ready(cx, slot, started),
            Command::Failed(slot, why) => workers.failed(cx, slot, why),
            Command::Died(slot, death) => workers.died(cx, clients, slot, death),
            Command::Retry(id, by, reply_to) => commits.retry(id, by, reply_to),
            Command::Prune(rule, reply_to) => commits.prune(rule, reply_to),
            Command::Install(manifest, answer) => {
                let ages = manifest.ages();
                let installed = reload.install(cx, manifest);
                if installed.is_ok() {
                    commits.retain(ages);
                }
                drop(answer.send(installed.map(|parked| self.take_parked(parked))));
            }
            Command::Watch(paths, answer) => drop(answer.send(reload.watch(cx, paths))),
            Command::Pause(reason, answer) => {
                cx.machine.pause(cx.now, reason);
                let _ = answer.send(());
            }
            Command::Begin(answer) => {
                self.begin();
                let _ = answer.send(());
            }
            Command::Unmovable(answer) => drop(answer.send(self.unmovable())),
            Command::Give(within, given) => self.begin_to_give(within, given),
            Command::Hold(reason, answer) => {
                let parked = reload.hold(cx, reason);
                self.take_parked(parked);
                let _ = answer.send(());
            }
            Command::Cordon(order, answer) => {
                cx.cordon(order);
                let _ = answer.send(());
            }
            Command::Uncordon(answer) => drop(answer.send(cx.uncordon())),
            Command::Gateway(pid, answer) => {
                clients.set_gateway(pid);
                let _ = answer.send(());
            }
            Command::Audit(line) => clients.audit(line),
            Command::Drain { begun, drained } => {
                supervisor.drain(cx, drained);
                let _ = begun.send(());
            }
            Command::Ask(question) => question(&mut cx.machine, cx.now),
            Command::Note(happening) => cx.note(happening),
            Command::Metrics(answer) => {
                let _ = answer.send(self.expose());
            }
            Command::Close => self.close(),
        }
    }

    /// Take in the submissions that waited for the code.
    fn take_parked(&mut self, parked: Parked) {
        self.clients
            .take_parked(&mut self.cx, &mut self.commits, &mut self.reload, parked);
    }

    /// The metrics of this moment.
    fn expose(&self) -> Exposition {
        let mut exposition = Exposition::default();
        self.cx.feed.expose(&mut exposition);
        self.cx.machine.figures(self.cx.now).expose(&mut exposition);
        self.clients.expose(&mut exposition);
        self.commits.expose(&mut exposition);
        exposition
    }

    /// Have the clients answered and disconnected, where there are descriptors for what is to be given.
    fn begin_to_give(&mut self, within: Duration, given: Sender<Result<Handover>>) {
        match SpareDescriptors::new(self.workers.busy().count()) {
            Ok(spares) => {
                self.clients.shut(&self.cx.poll);
                let until = Instant::now() + within;
                self.giving = Some(PendingHandover::new(until, given, spares));
            }
            Err(error) => drop(given.send(Err(error))),
        }
    }

    /// Give the clients' socket away once every client has its answers and everything is on disk.
    fn go_on_giving(&mut self) {
        let Some(giving) = self.giving.take() else {
            return;
        };
        // Before it is looked whether everything is written: a reply that has come makes a change.
        self.workers.read_all(&mut self.cx, &mut self.clients);
        self.act();
        self.commits.write();
        let are_movable = self.unmovable() == 0;
        let Self {
            cx,
            clients,
            commits,
            reload,
            workers,
            ..
        } = self;
        let is_over = Instant::now() >= giving.until();
        // In this order: what a client has sent may be on its way to the disk.
        let is_read = clients.has_read_all() && !reload.parks();
        let is_ready = is_read && cx.machine.is_written() && are_movable;
        if is_ready {
            clients.answer_with_ids();
            clients.flush(cx, commits);
        }
        if is_ready && (is_over || clients.is_answered()) {
            self.closing = giving.give(|| give(cx, clients, workers));
            if !self.closing {
                clients.leave_all(cx, commits);
            }
        } else if is_over {
            clients.leave_all(cx, commits);
            giving.fail(Error::Config(
                "not everything could be written, not every client was read, or a worker is stopped within a frame"
                    .into(),
            ));
        } else {
            self.giving = Some(giving);
        }
    }

    /// How many requests run that cannot go over to another server now.
    fn unmovable(&self) -> usize {
        let count = moving::unmovable(&self.workers) + usize::from(self.reload.parks());
        if count == 0 && !self.cx.machine.runs_undisturbed() {
            return 1; // it is being ended, or waits in its worker's inbox
        }
        count
    }

    /// Close the listener; the connections close with this driver, and a worker exits when its connection ends.
    fn close(&mut self) {
        self.closing = true;
        self.clients.stop_listening(&self.cx.poll);
    }
}

/// What the machine has decided.
impl Driver {
    /// Perform the machine's actions until none is left: performing one may produce others.
    fn act(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        loop {
            actions.extend(self.cx.machine.actions());
            self.cx.append_news();
            if actions.is_empty() {
                break;
            }
            for action in actions.drain(..) {
                self.perform(action);
            }
        }
        self.actions = actions;
    }

    fn perform(&mut self, action: Action) {
        let Self {
            cx,
            clients,
            workers,
            commits,
            supervisor,
            ..
        } = self;
        match action {
            Action::Dispatch {
                slot,
                id,
                attempt,
                journal,
            } => workers.dispatch(cx, commits, slot, (id, attempt), journal),
            Action::Store(op) => {
                clients.stored(commits, &op);
                commits.add(op);
            }
            Action::File(id, ending) => commits.file(id, ending),
            Action::Discard(id, attempt) => commits.discard(id, attempt),
            Action::Ended(id, ending) => {
                commits.ended(id);
                clients.end_logs(cx, id);
                supervisor.ended(cx, id, &ending);
                clients.ended(commits, id, &ending);
            }
            Action::Accepted(id) => clients.accepted(id),
            Action::Retried(id, done) => commits.retried(id, done),
            Action::Refused(id, refusal) => {
                commits.ended(id);
                let name = refusal.object.as_str().into();
                cx.feed.refused(cx.now, &name, Some(id), refusal.code);
                clients.refused(cx, commits, id, &refusal);
            }
            Action::Start { slot, lane } => workers.start(cx, slot, lane),
            Action::Stop { slot } => workers.stop(cx, slot),
            Action::Expel {
                slot,
                peak_bytes,
                limit_bytes,
            } => workers.expel(cx, slot, peak_bytes, limit_bytes),
            Action::Interrupt {
                slot,
                id,
                attempt,
                step,
            } => workers.interrupt(cx, clients, slot, (id, attempt), step),
            Action::Recall { slot, id, attempt } => workers.recall(cx, slot, (id, attempt)),
            Action::Measure { slot } => workers.measure(slot),
        }
    }
}

/// What the store has answered.
impl Driver {
    fn take_store_answers(&mut self) {
        let mut answers = std::mem::take(&mut self.answers);
        self.commits.take_answers(&mut answers);
        for answer in answers.drain(..) {
            self.take_answer(answer);
        }
        self.answers = answers;
    }

    fn take_answer(&mut self, answer: Answer) {
        let Self { cx, commits, .. } = self;
        match answer {
            Answer::Committed(count) => {
                cx.machine.committed(cx.now, count);
                self.begin_waiting_runs(count, true);
            }
            Answer::NotCommitted {
                count,
                why,
                permanent,
            } => {
                cx.machine.not_committed(cx.now, count, &why, permanent);
                self.begin_waiting_runs(count, false);
            }
            Answer::Filed { id, unfit } => cx.machine.filed(cx.now, id, unfit.as_deref()),
            Answer::Fetched { ticket, id, found } => self.take_fetched(ticket, id, found),
            Answer::Pruned { ticket, done } => commits.pruned(ticket, done),
            Answer::Forgotten(ids) => commits.forgotten(cx, ids),
        }
    }

    fn begin_waiting_runs(&mut self, count: usize, on_disk: bool) {
        let Self {
            cx,
            clients,
            workers,
            commits,
            ..
        } = self;
        for run in commits.take_answered(count, on_disk, |run| workers.awaits(run)) {
            workers.begin_noted(cx, commits, run);
        }
        if !commits.is_behind() {
            clients.resume();
        }
    }

    fn take_fetched(&mut self, ticket: u64, id: RequestId, found: Fetched) {
        let Self {
            cx,
            clients,
            workers,
            commits,
            ..
        } = self;
        let Some(purpose) = commits.take_purpose(ticket) else {
            return;
        };
        match purpose {
            Purpose::End(waiter) => clients.found(commits, id, waiter, found),
            Purpose::Cancel(waiter) => clients.found_to_cancel(commits, id, waiter, found),
            Purpose::Follow(key, topic) => {
                clients.found_to_follow(cx, (key, topic), id, &found);
            }
            Purpose::Run(run) => workers.begin_with_arguments(cx, run, found),
            Purpose::After(late) => clients.submit_late(cx, commits, *late, id, &found),
            Purpose::Retry(by, reply_to) => commits.retry_found(cx, id, found, (by, reply_to)),
            Purpose::Prune(_) => {}
        }
    }
}

/// What the next server is to have. On an error nobody has let go of anything.
fn give(cx: &Context, clients: &mut Clients, workers: &mut Workers) -> Result<Handover> {
    let moved = moving::duplicate(workers, cx)?;
    let clients = clients.give_listener()?;
    moving::leave(workers, &cx.poll, &moved);
    Ok(Handover {
        clients,
        workers: moved,
    })
}

/// Wait until there are commands, or the queue is closed.
fn wait_for(commands: &Queue<Command>) -> Result<()> {
    let mut ready = [PollFd::new(commands, PollFlags::IN)];
    loop {
        match poll(&mut ready, None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::system("poll")(errno)),
        }
    }
}

impl Drop for Driver {
    /// Closes the queues also when the thread panicked, so that waiting threads learn that it is gone.
    fn drop(&mut self) {
        self.cx.shared.close();
    }
}
