//! What the dispatcher has given to the store, with what it asked of it.
//!
//! The machine's changes of one turn are one batch, so that the store's writer can commit the batches of several turns
//! as one transaction. Changes are counted, not named: the store answers them in their order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::dispatcher::commits::arguments::Arguments;
use crate::dispatcher::commits::purpose::{PendingRun, Purpose};
use crate::dispatcher::limit::STORE_AGAIN_MS;
use crate::dispatcher::supervisor::protocol::RetryReplyTo;
use crate::feed::{COMMIT_BOUNDS_US, Histogram};
use crate::hash::ByNumber;
use crate::id::RequestId;
use crate::op::Op;
use crate::store::{Keyed, Question, Store};

const MICROS_PER_SECOND: f64 = 1e6;

/// The store, with what is on its way to it.
pub struct PendingWrites {
    store: Store,
    batch: Vec<Op>,
    /// Changes given to the store so far; `answered` is how many of them it has answered.
    given: u64,
    answered: u64,
    /// When each batch that it has not answered was given to it, with the number of its last change.
    batches: VecDeque<(u64, Instant)>,
    /// How long changes took to be on disk.
    commit_times: Histogram,
    purposes: ByNumber<u64, Purpose>,
    /// The callers of `retry`, until their retry is on disk.
    retries: ByNumber<RequestId, RetryReplyTo>,
    last_ticket: u64,
    arguments: Arguments,
    /// Idempotency keys of the requests in the store.
    keys: ByNumber<RequestId, Arc<str>>,
    /// Runs for which the journal had no room: each begins when this many changes were answered, its claim among them.
    waiting_for_journal: Vec<(u64, PendingRun)>,
    /// When a store that could not write is tried again.
    retry_at: Option<Instant>,
}

impl PendingWrites {
    /// The state after a restart: `known` are the requests in the store that have an idempotency key.
    pub fn new(store: Store, arguments: Arguments, known: &[Keyed]) -> Self {
        let known = known.iter().map(|(key, id, _)| (*id, Arc::clone(key)));
        Self {
            store,
            batch: Vec::new(),
            given: 0,
            answered: 0,
            batches: VecDeque::new(),
            commit_times: Histogram::new(COMMIT_BOUNDS_US, MICROS_PER_SECOND),
            purposes: ByNumber::default(),
            retries: ByNumber::default(),
            last_ticket: 0,
            arguments,
            keys: known.collect(),
            waiting_for_journal: Vec::new(),
            retry_at: None,
        }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    pub fn arguments_mut(&mut self) -> &mut Arguments {
        &mut self.arguments
    }

    /// Add a change to the batch of this turn.
    pub fn add(&mut self, op: Op) {
        self.given += 1;
        let op = match op {
            Op::Accept(request) => {
                if let Some(key) = &request.submission.options.idempotency {
                    self.keys.insert(request.id, Arc::clone(key));
                }
                Op::Accept(self.arguments.attach(request, self.given))
            }
            other => other,
        };
        self.batch.push(op);
    }

    /// Give the batch of this turn to the store.
    pub fn write(&mut self) {
        if !self.batch.is_empty() {
            self.batches.push_back((self.given, Instant::now()));
            self.store.write(std::mem::take(&mut self.batch));
        }
    }

    /// Ask the store about a request.
    pub fn fetch(&mut self, id: RequestId, question: Question, purpose: Purpose) {
        let ticket = self.ticket_for(purpose);
        self.store.fetch(id, question, ticket);
    }

    /// A ticket by which the answer finds its purpose.
    pub fn ticket_for(&mut self, purpose: Purpose) -> u64 {
        self.last_ticket += 1;
        self.purposes.insert(self.last_ticket, purpose);
        self.last_ticket
    }

    /// The purpose of a ticket.
    pub fn take_purpose(&mut self, ticket: u64) -> Option<Purpose> {
        self.purposes.remove(&ticket)
    }

    /// Remember the caller of a retry that the machine has accepted.
    pub fn add_retry(&mut self, id: RequestId, reply_to: RetryReplyTo) {
        self.retries.insert(id, reply_to);
    }

    /// The caller of a retry that is on disk or could not be written; `None` if it was answered already.
    pub fn take_retry(&mut self, id: RequestId) -> Option<RetryReplyTo> {
        self.retries.remove(&id)
    }

    /// Note a run in the journal. If there is no room, it waits here until its claim is on disk, and this returns
    /// false.
    pub fn note_in_journal(&mut self, run: PendingRun) -> bool {
        let noted = self.store.journal().note(run.id, run.attempt);
        if !noted {
            self.waiting_for_journal.push((self.given, run));
        }
        noted
    }

    /// Count answered changes; the runs that may begin now. They include runs that were withdrawn (`waits` is false):
    /// those are not noted, because after the death of the server a note counts as a run that began.
    pub fn take_answered(
        &mut self,
        count: usize,
        on_disk: bool,
        waits: impl Fn(PendingRun) -> bool,
    ) -> Vec<PendingRun> {
        self.answered += count as u64;
        self.observe_commits(on_disk);
        self.arguments.written(self.answered);
        if !on_disk {
            // The claim of any of them may be among the changes that failed, so only room in the journal lets them begin.
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

    /// Note how long the batches took that are answered now. One that failed has taken no time to be on disk.
    fn observe_commits(&mut self, on_disk: bool) {
        let answered = self.answered;
        let Some(now) = self.batches.front().map(|_| Instant::now()) else {
            return;
        };
        while let Some((last, given_at)) = self.batches.front().copied()
            && last <= answered
        {
            self.batches.pop_front();
            if on_disk {
                let took = now.saturating_duration_since(given_at).as_micros();
                self.commit_times
                    .observe(u64::try_from(took).unwrap_or(u64::MAX));
            }
        }
    }

    /// How long changes took to be on disk.
    pub fn commit_times(&self) -> &Histogram {
        &self.commit_times
    }

    /// When the store is to be tried again.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Whether the store is to be tried again at `now`; true once.
    pub fn take_retry_due(&mut self, now: Instant) -> bool {
        self.retry_at.take_if(|retry_at| *retry_at <= now).is_some()
    }

    /// The idempotency key of a request that was removed from the store.
    pub fn take_key(&mut self, id: RequestId) -> Option<Arc<str>> {
        self.keys.remove(&id)
    }
}
