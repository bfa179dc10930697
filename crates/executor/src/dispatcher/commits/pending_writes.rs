//! What the dispatcher has given to the store, and what it asked it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use crate::dispatcher::clients::streams::{Key, StreamKind};
use crate::dispatcher::clients::waiters::Waiter;
use crate::dispatcher::hash::{ByNumber, Numbers};
use crate::dispatcher::limit::{STORE_AGAIN_MS, WRITING_BYTES_MAX};
use crate::id::RequestId;
use crate::op::Op;
use crate::request::{Blob, Request, Slot, Submission};
use crate::store::{Keyed, Pruned, Question, Store};

/// Whoever wants to know what became of an order to the store.
pub type ReplyTo<T> = Sender<std::result::Result<T, String>>;

/// A run whose worker has not heard of it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingRun {
    pub slot: Slot,
    pub id: RequestId,
    pub attempt: u32,
    /// Which dispatch it is: the number of an attempt that never began is used again.
    pub dispatch: u64,
}

/// A submission that comes after requests that have ended long ago: how they ended is read one by one.
pub struct LateSubmission {
    pub submission: Submission,
    pub waiter: Waiter,
    pub token: Option<u64>,
    pub left: Vec<RequestId>,
}

/// What a question to the store is for.
pub enum Purpose {
    /// A client waits for the end.
    End(Waiter),
    /// A client cancels what has ended.
    Cancel(Waiter),
    /// A client follows it.
    Follow(Key, StreamKind),
    /// A run is to begin.
    Run(PendingRun),
    After(Box<LateSubmission>),
    Retry(ReplyTo<()>),
    Prune(ReplyTo<Pruned>),
}

/// The store, and what is on its way to it.
pub struct PendingWrites {
    pub store: Store,
    batch: Vec<Op>,
    /// Changes that were ever given, and those that were answered.
    given: u64,
    answered: u64,
    purposes: ByNumber<u64, Purpose>,
    /// Who wants these requests run again, until that is on disk.
    retries: ByNumber<RequestId, ReplyTo<()>>,
    last_ticket: u64,
    /// Requests whose arguments are on disk alone.
    on_disk: Numbers<RequestId>,
    /// Arguments that go to the disk with their request's row, and are forgotten then.
    arguments_to_write: ByNumber<RequestId, Blob>,
    /// Bytes of arguments that are held, by request.
    arguments_bytes: ByNumber<RequestId, usize>,
    held_bytes: usize,
    /// Bytes of arguments that are on their way to the disk alone, each with the change that has them.
    writing: VecDeque<(u64, usize)>,
    writing_bytes: usize,
    queue_bytes_max: usize,
    /// Idempotency keys of requests that are kept.
    keys: ByNumber<RequestId, Arc<str>>,
    /// The journal has no room for these: they begin when so many changes were answered.
    waiting_for_journal: Vec<(u64, PendingRun)>,
    /// It took nothing; it is tried again then.
    retry_at: Option<Instant>,
}

impl PendingWrites {
    /// What the last server left: `held` are the bytes of the arguments that were read, `on_disk` who has none here.
    pub fn new(
        store: Store,
        held: Vec<(RequestId, usize)>,
        on_disk: Vec<RequestId>,
        known: &[Keyed],
    ) -> Self {
        let queue_bytes_max = usize::try_from(store.config().queue_bytes_max);
        let known = known.iter().map(|(key, id, _)| (*id, Arc::clone(key)));
        Self {
            store,
            batch: Vec::new(),
            given: 0,
            answered: 0,
            purposes: ByNumber::default(),
            retries: ByNumber::default(),
            last_ticket: 0,
            on_disk: on_disk.into_iter().collect(),
            arguments_to_write: ByNumber::default(),
            held_bytes: held.iter().map(|(_, bytes)| bytes).sum(),
            arguments_bytes: held.into_iter().collect(),
            writing: VecDeque::new(),
            writing_bytes: 0,
            queue_bytes_max: queue_bytes_max.unwrap_or(usize::MAX),
            keys: known.collect(),
            waiting_for_journal: Vec::new(),
            retry_at: None,
        }
    }

    /// Add a change to the batch of this turn.
    pub fn add(&mut self, op: Op) {
        self.given += 1;
        let op = match op {
            Op::Accept(request) => Op::Accept(self.complete(request)),
            other => other,
        };
        self.batch.push(op);
    }

    /// Give the batch of this turn to the store.
    pub fn write(&mut self) {
        if !self.batch.is_empty() {
            self.store.write(std::mem::take(&mut self.batch));
        }
    }

    /// Keep the arguments of a submission in memory, or with its row alone where they are too many. They are left out
    /// of it then, and to be told by [`Self::took`] once it has an id.
    pub fn detach_arguments(&self, submission: &mut Submission) -> Option<Blob> {
        let bytes = submission.arguments.len();
        let fits = self.held_bytes + bytes <= self.queue_bytes_max;
        (!fits && bytes > 0).then(|| std::mem::replace(&mut submission.arguments, Blob::from([])))
    }

    /// The machine has taken a submission.
    pub fn track_arguments(&mut self, id: RequestId, bytes: usize, detached: Option<Blob>) {
        if let Some(arguments) = detached {
            self.arguments_to_write.insert(id, arguments);
        } else if bytes > 0 {
            self.held_bytes += bytes;
            self.arguments_bytes.insert(id, bytes);
        }
    }

    /// The arguments of a request stay on the disk alone, where they are.
    pub fn keep_on_disk(&mut self, id: RequestId) {
        self.on_disk.insert(id);
    }

    /// Whether as much as may be is on its way to the disk.
    pub fn is_behind(&self) -> bool {
        self.writing_bytes > WRITING_BYTES_MAX
    }

    /// A request has ended, or was refused.
    pub fn ended(&mut self, id: RequestId) {
        self.held_bytes -= self.arguments_bytes.remove(&id).unwrap_or(0);
        self.on_disk.remove(&id);
        self.arguments_to_write.remove(&id);
    }

    /// Whether the arguments of a request are to be read before it runs.
    pub fn is_on_disk(&self, id: RequestId) -> bool {
        self.on_disk.contains(&id)
    }

    /// Read something of a request for somebody.
    pub fn fetch(&mut self, id: RequestId, question: Question, purpose: Purpose) {
        let ticket = self.ticket_for(purpose);
        self.store.fetch(id, question, ticket);
    }

    /// A number for who asks.
    pub fn ticket_for(&mut self, purpose: Purpose) -> u64 {
        self.last_ticket += 1;
        self.purposes.insert(self.last_ticket, purpose);
        self.last_ticket
    }

    /// Who asked.
    pub fn take_purpose(&mut self, ticket: u64) -> Option<Purpose> {
        self.purposes.remove(&ticket)
    }

    /// A retry was given to the machine.
    pub fn add_retry(&mut self, id: RequestId, reply_to: ReplyTo<()>) {
        self.retries.insert(id, reply_to);
    }

    /// It is on disk, or could not be written: who wanted it, unless that was told already.
    pub fn take_retry(&mut self, id: RequestId) -> Option<ReplyTo<()>> {
        self.retries.remove(&id)
    }

    /// Note a run in the journal. False where there is no room: it is held until its claim is on disk.
    pub fn note_in_journal(&mut self, run: PendingRun) -> bool {
        let noted = self.store.journal().note(run.id, run.attempt);
        if !noted {
            self.waiting_for_journal.push((self.given, run));
        }
        noted
    }

    /// So many changes were answered: the runs that were held for that, and may begin. Those that are not to begin any
    /// more (`waits`) are among them, and are not noted: after the death of the server they would count as begun.
    pub fn take_answered(
        &mut self,
        count: usize,
        on_disk: bool,
        waits: impl Fn(PendingRun) -> bool,
    ) -> Vec<PendingRun> {
        self.answered += count as u64;
        while let Some((at, bytes)) = self.writing.front()
            && *at <= self.answered
        {
            self.writing_bytes -= bytes;
            self.writing.pop_front();
        }
        if !on_disk {
            // The claim of any of them may be among what failed: only the journal lets them begin.
            let retry_at = Duration::from_millis(STORE_AGAIN_MS);
            self.retry_at = Instant::now().checked_add(retry_at);
            for (due, _) in &mut self.waiting_for_journal {
                *due = u64::MAX;
            }
        }
        let (answered, journal) = (self.answered, self.store.journal());
        let begin = |(due, run): &mut (u64, PendingRun)| {
            *due <= answered || !waits(*run) || journal.note(run.id, run.attempt)
        };
        let may: Vec<_> = self.waiting_for_journal.extract_if(.., begin).collect();
        may.into_iter().map(|(_, run)| run).collect()
    }

    /// When the store is to be tried again.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Whether it is to be tried again at `now`; then that is done.
    pub fn take_retry_due(&mut self, now: Instant) -> bool {
        self.retry_at.take_if(|retry_at| *retry_at <= now).is_some()
    }

    /// A request that is no longer kept: its key is free.
    pub fn take_key(&mut self, id: RequestId) -> Option<Arc<str>> {
        self.keys.remove(&id)
    }

    /// The request as it is to be written.
    fn complete(&mut self, request: Arc<Request>) -> Arc<Request> {
        if let Some(key) = &request.submission.options.idempotency {
            self.keys.insert(request.id, Arc::clone(key));
        }
        let Some(arguments) = self.arguments_to_write.remove(&request.id) else {
            return request;
        };
        self.on_disk.insert(request.id);
        self.writing.push_back((self.given, arguments.len()));
        self.writing_bytes += arguments.len();
        let mut whole = Request::clone(&request);
        whole.submission.arguments = arguments;
        Arc::new(whole)
    }
}
