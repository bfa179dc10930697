//! The dispatcher: the thread that drives the machine. The design note is the page `docs/concepts/executor.md`.
//!
//! [`Dispatcher`] is its handle, for any thread. A method that only sends a command returns at once; one that asks for
//! an answer waits for the dispatcher's next turn, and one that takes from a mailbox waits for an item.

mod audit;
mod clients;
mod commits;
mod context;
mod driver;
mod handover;
pub mod limit;
mod poll;
mod rebinding;
mod reload;
mod settings;
mod supervisor;
mod workers;

use std::num::NonZeroI32;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_base::Refused;

pub use handover::{Handover, MovedRun, MovedWorker};
pub use settings::Settings;
pub use supervisor::mailbox::{Mailbox, Waited};
pub use supervisor::protocol::{AdminCall, Finished, FinishedKind, Order, StartedWorker};

use crate::clock::Clock;
use crate::dispatcher::audit::AuditLine;
use crate::dispatcher::driver::Driver;
use crate::dispatcher::supervisor::protocol::{Command, CordonOrder, LocalSubmission};
use crate::dispatcher::supervisor::shared::Shared;
use crate::error::{Error, Refusal, Result};
use crate::feed::{Exposition, Happening};
use crate::id::RequestId;
use crate::machine::{Capacity, Figures, Machine, ScheduleView, Why, WorkerView};
use crate::manifest::Manifest;
use crate::request::{Blob, Death, Millis, Options, Slot};
use crate::store::{PruneRule, Pruned};

/// A dispatcher that runs. Dropping it closes it.
pub struct Dispatcher {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    tickets: AtomicU64,
    clock: Clock,
}

impl Dispatcher {
    /// Start the thread.
    ///
    /// # Errors
    /// `Config` for an invalid socket path, or one at which another process listens; `System`.
    pub fn start(settings: Settings) -> Result<Self> {
        let shared = Arc::new(Shared::new()?);
        let driver = Driver::new(settings, Arc::clone(&shared))?;
        let clock = driver.clock();
        let thread = std::thread::Builder::new()
            .name("forebay-dispatcher".into())
            .spawn(move || driver.run())
            .map_err(Error::system("start a thread"))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
            tickets: AtomicU64::new(0),
            clock,
        })
    }

    /// Submit a request of this process; its end comes from [`Self::finished`] with the ticket.
    ///
    /// # Errors
    /// `Limit` where the dispatcher is too far behind; `Closed`.
    pub fn submit(&self, name: Arc<str>, arguments: Blob, options: Arc<Options>) -> Result<u64> {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed) + 1;
        self.send(Command::Submit(LocalSubmission {
            ticket,
            name,
            arguments,
            options,
        }))?;
        Ok(ticket)
    }

    /// Cancel the request of a ticket if it has not begun: true, and no end will come for it. Waits for the dispatcher.
    ///
    /// # Errors
    /// `Closed`.
    pub fn cancel(&self, ticket: u64) -> Result<bool> {
        self.request(|answer| Command::Cancel(ticket, answer))
    }

    /// Install the code that this manifest describes: submissions are checked against it from now on.
    ///
    /// # Errors
    /// `Config` for an invalid manifest, `Refused` for an invalid schedule, `Closed`.
    pub fn install(&self, manifest: &[u8]) -> Result<()> {
        let manifest = Arc::new(Manifest::parse(manifest)?);
        self.request(|answer| Command::Install(manifest, answer))?
    }

    /// Watch these files; `Order::Sources` says which of them have changed.
    ///
    /// # Errors
    /// `System`, `Closed`.
    pub fn watch_sources(&self, paths: Vec<PathBuf>) -> Result<()> {
        self.request(|answer| Command::Watch(paths, answer))?
    }

    /// The schedules of the newest code.
    ///
    /// # Errors
    /// `Closed`.
    pub fn schedules(&self) -> Result<Vec<ScheduleView>> {
        self.ask(|machine, _| machine.schedules())
    }

    /// Pause a schedule or resume it; false if there is none of that name.
    ///
    /// # Errors
    /// `Closed`.
    pub fn set_schedule(&self, name: String, paused: bool) -> Result<bool> {
        self.ask(move |machine, now| machine.set_schedule(now, &name, paused))
    }

    /// Stop dispatching for this reason and refuse submissions, or resume with `None`. In force when this returns.
    ///
    /// # Errors
    /// `Closed`.
    pub fn hold(&self, reason: Option<Arc<str>>) -> Result<()> {
        self.request(|answer| Command::Hold(reason, answer))
    }

    /// Begin nothing for this reason and accept submissions all the same, or resume with `None`. In force when this
    /// returns.
    ///
    /// # Errors
    /// `Closed`.
    pub fn pause(&self, reason: Option<Arc<str>>) -> Result<()> {
        self.request(|answer| Command::Pause(reason, answer))
    }

    /// Serve, with the socket and the workers that another dispatcher has given: until then nothing of them is touched,
    /// and that one can go on with them. In force when this returns. Without such a socket it does so by itself.
    ///
    /// # Errors
    /// `Closed`.
    pub fn begin(&self) -> Result<()> {
        self.request(Command::Begin)
    }

    /// How many requests run that cannot go over to another server now. In most cases they can a moment later.
    ///
    /// # Errors
    /// `Closed`.
    pub fn unmovable(&self) -> Result<usize> {
        self.request(Command::Unmovable)
    }

    /// Answer what the clients have sent, disconnect them, and close with everything on disk; comes with the clients'
    /// socket, whose files stay, and the workers that run something. Waits at most so long for clients, workers and disk.
    ///
    /// [`Self::pause`] first, and wait until [`Self::unmovable`] says that nothing is in the way.
    ///
    /// # Errors
    /// `Config`: a run cannot go over now, or not everything was on disk in time, and the dispatcher goes on, paused;
    /// `System`: there are not enough descriptors, and no client was disconnected; `Closed`.
    pub fn give(&self, within: Duration) -> Result<Handover> {
        let given = self.request(|given| Command::Give(within, given))??;
        self.close(); // it closes by itself: its store is free once the thread has ended
        Ok(given)
    }

    /// Take no submissions for this person and reason, until [`Self::uncordon`]; what was accepted is dispatched or not.
    /// In force when this returns.
    ///
    /// # Errors
    /// `Closed`.
    pub fn cordon(&self, by: Arc<str>, reason: Arc<str>, dispatches: bool) -> Result<()> {
        let order = CordonOrder {
            by,
            reason,
            dispatches,
        };
        self.request(|answer| Command::Cordon(order, answer))
    }

    /// Take submissions again; whether there was a cordon. In force when this returns.
    ///
    /// # Errors
    /// `Closed`.
    pub fn uncordon(&self) -> Result<bool> {
        self.request(Command::Uncordon)
    }

    /// Dispatch for another capacity from now on: the cluster has grown, or lost nodes. In force when this returns.
    ///
    /// # Errors
    /// `Closed`.
    pub fn set_capacity(&self, capacity: Capacity) -> Result<()> {
        self.ask(move |machine, now| machine.set_capacity(now, capacity))
    }

    /// Take the connections of this process for the gateway's from now on: it alone may say for whom it submits,
    /// cancels and asks. In force when this returns.
    ///
    /// The process is known by the kernel's word for the other end of a connection. A secret would need a message, and
    /// would prove no more: whoever could use the number of the process is of the same user, and reads its memory.
    ///
    /// # Errors
    /// `Closed`.
    pub fn set_gateway(&self, pid: Option<NonZeroI32>) -> Result<()> {
        self.request(|answer| Command::Gateway(pid, answer))
    }

    /// Write a line into the audit log: what was done, by whom, and to which request or what else.
    ///
    /// # Errors
    /// `Closed`, `Limit`.
    pub fn audit(
        &self,
        act: String,
        by: Arc<str>,
        id: Option<RequestId>,
        object: String,
    ) -> Result<()> {
        self.send(Command::Audit(AuditLine {
            at: self.clock.now(),
            act: act.into(),
            by,
            id,
            object: object.into(),
        }))
    }

    /// Hand over a worker that has started: from now on the dispatcher reads its connection.
    ///
    /// # Errors
    /// `Closed`.
    pub fn worker_ready(&self, slot: Slot, started: StartedWorker) -> Result<()> {
        self.send(Command::Ready(slot, started))
    }

    /// Report that a worker could not be started.
    ///
    /// # Errors
    /// `Closed`.
    pub fn worker_failed(&self, slot: Slot, why: Arc<str>) -> Result<()> {
        self.send(Command::Failed(slot, why))
    }

    /// Report how a worker ended, as its keeper knows it.
    ///
    /// # Errors
    /// `Closed`.
    pub fn worker_died(&self, slot: Slot, death: Death) -> Result<()> {
        self.send(Command::Died(slot, death))
    }

    /// Milliseconds since 1970 by the dispatcher's clock, from which delays count.
    pub fn now(&self) -> Millis {
        self.clock.now()
    }

    /// Every metric of the server. Cost: the same with a million requests as with none.
    ///
    /// # Errors
    /// `Closed`.
    pub fn metrics(&self) -> Result<Exposition> {
        self.request(Command::Metrics)
    }

    /// Append an event to the feed that the program knows of.
    ///
    /// # Errors
    /// `Limit` where the dispatcher is too far behind; `Closed`.
    pub fn note(&self, happening: Happening) -> Result<()> {
        self.send(Command::Note(happening))
    }

    /// The machine's figures. Cost: a look at each worker.
    ///
    /// # Errors
    /// `Closed`.
    pub fn figures(&self) -> Result<Figures> {
        self.ask(|machine, now| machine.figures(now))
    }

    /// What workers use of pool, tensor, blockio, arena and transport, with the transport of this process.
    pub fn usage(&self) -> Exposition {
        self.shared.usage().expose(&forebay_transport::totals())
    }

    /// Every worker.
    ///
    /// # Errors
    /// `Closed`.
    pub fn workers(&self) -> Result<Vec<WorkerView>> {
        self.ask(|machine, _| machine.workers())
    }

    /// Why an unfinished request is where it is; `None` if no unfinished request has this id.
    ///
    /// # Errors
    /// `Closed`.
    pub fn why(&self, id: RequestId) -> Result<Option<Why>> {
        self.ask(move |machine, now| machine.why(now, id))
    }

    /// Run ended requests again, for this person if there is a name. Waits until that is on disk; an error says why one
    /// was refused or could not be written.
    ///
    /// All are sent before the first answer is awaited, so that they may share a commit.
    ///
    /// # Errors
    /// `Limit` where the dispatcher is too far behind, `Closed`.
    pub fn retry(
        &self,
        ids: &[RequestId],
        by: &Arc<str>,
    ) -> Result<Vec<std::result::Result<(), Box<Refusal>>>> {
        let ask = |id: &RequestId| {
            let (reply_to, done) = mpsc::channel();
            self.send(Command::Retry(*id, Arc::clone(by), reply_to))
                .map(|()| done)
        };
        let replies: Vec<_> = ids.iter().map(ask).collect::<Result<_>>()?;
        let done = replies.into_iter();
        done.map(|done| done.recv().map_err(|_| Error::Closed))
            .collect()
    }

    /// Remove ended requests with their results and logs. Waits for the store; the inner error is a message for a
    /// person.
    ///
    /// # Errors
    /// `Closed`.
    pub fn prune(&self, rule: PruneRule) -> Result<std::result::Result<Pruned, String>> {
        self.request(|reply_to| Command::Prune(rule, reply_to))
    }

    /// Dispatch nothing more and refuse submissions; what runs continues.
    ///
    /// # Errors
    /// `Closed`.
    pub fn drain(&self) -> Result<Drained> {
        let (drained, reply) = mpsc::channel();
        self.request(|begun| Command::Drain { begun, drained })?;
        Ok(Drained(reply))
    }

    /// Wait for orders to the supervisor, at most for a time.
    ///
    /// # Errors
    /// `System`.
    pub fn orders(&self, timeout: Option<Duration>) -> Result<Waited<Order>> {
        self.shared.take_orders(timeout)
    }

    /// See [`Mailbox::fileno`], for [`Self::orders`].
    pub fn orders_fileno(&self) -> RawFd {
        self.shared.orders_fileno()
    }

    /// Calls for the server's main thread; each is answered once.
    pub fn admin_calls(&self) -> &Mailbox<AdminCall> {
        &self.shared.admin_calls
    }

    /// Answer a call of [`Self::admin_calls`]; the head is msgpack, `[0, value]` or `[1, refusal]`. The answer is
    /// dropped if the caller has left.
    ///
    /// # Errors
    /// `Closed`.
    pub fn answer(&self, ticket: u64, head: Vec<u8>) -> Result<()> {
        self.send(Command::Answer { ticket, head })
    }

    /// Ends of requests that this process submitted.
    pub fn finished(&self) -> &Mailbox<Finished> {
        &self.shared.finished
    }

    /// Make every thread that waits on a mailbox return.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// Close now: release workers and clients. Idempotent; waits for the thread.
    pub fn close(&self) {
        // An error means that it is closed already; otherwise the thread handles earlier commands first.
        drop(self.send(Command::Close));
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
    }

    fn send(&self, command: Command) -> Result<()> {
        self.shared
            .commands
            .push(command)
            .map_err(|refused| match refused {
                Refused::Full { limit, .. } => Error::Limit {
                    limit: "commands_max",
                    maximum: limit as u64,
                    value: limit as u64 + 1,
                    next: "submit more slowly, or wait for some to finish",
                },
                _ => Error::Closed,
            })
    }

    /// Send a command with a channel for its answer, and wait for that.
    fn request<R>(&self, command: impl FnOnce(mpsc::Sender<R>) -> Command) -> Result<R> {
        let (answer, answered) = mpsc::channel();
        self.send(command(answer))?;
        answered.recv().map_err(|_| Error::Closed)
    }

    /// Run a closure on the machine in the dispatcher's thread, and wait for its result.
    fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Machine, Millis) -> R + Send + 'static,
    ) -> Result<R> {
        self.request(|answer| {
            Command::Ask(Box::new(move |machine, now| {
                drop(answer.send(question(machine, now)));
            }))
        })
    }
}

/// The end of a drain.
pub struct Drained(mpsc::Receiver<()>);

impl Drained {
    /// Wait until nothing runs, at most for a time: true, or `None` on timeout; false if the dispatcher was closed.
    pub fn wait(&mut self, timeout: Duration) -> Option<bool> {
        match self.0.recv_timeout(timeout) {
            Ok(()) => Some(true),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            Err(mpsc::RecvTimeoutError::Disconnected) => Some(false),
        }
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.close();
    }
}
