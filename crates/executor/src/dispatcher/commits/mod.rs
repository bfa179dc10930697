//! Changes on their way to the store, with what waits for them.
//!
//! The machine's changes of one turn are one batch, and the store answers each of them in their order. Until it has, this
//! part holds what waits for it: runs that the journal has no room for, arguments that go to the disk, and the purpose of
//! each question. The driver takes the answers, and passes each to the part that its purpose names.
//!
//! Without a state directory there is no store: then nothing waits here, and submissions keep their arguments in memory.

mod arguments;
mod pending_writes;
pub(super) mod purpose;
mod recovery;
pub(super) mod refusals;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::dispatcher::commits::pending_writes::PendingWrites;
use crate::dispatcher::commits::purpose::{PendingRun, Purpose};
use crate::dispatcher::commits::refusals::{
    NO_STORE, has_no_store, has_not_ended, has_succeeded, pruned_unread, unknown, unreadable,
};
use crate::dispatcher::context::Context;
use crate::dispatcher::poll::{Poll, Source, watch_only};
use crate::dispatcher::supervisor::protocol::{ReplyTo, RetryReplyTo};
use crate::error::{self, Refusal};
use crate::feed::Exposition;
use crate::id::RequestId;
use crate::machine::{Machine, Submitted};
use crate::op::{Act, Op};
use crate::request::{Ending, Millis, Status, Submission};
use crate::store::{
    Answer, Fetched, PruneRule, Pruned, Question, RetentionAges, StoreConfig, Unread,
};

/// The store, if there is one, and what waits for it.
pub struct Commits {
    pending: Option<PendingWrites>,
}

impl Commits {
    /// Open the store, and hand its contents to the machine. Comes with the time behind which the feed's numbers begin.
    ///
    /// # Errors
    /// `Store`, `System`.
    pub fn open(
        config: Option<StoreConfig>,
        poll: &Poll,
        machine: &mut Machine,
        now: Millis,
    ) -> error::Result<(Self, Millis)> {
        let opened = config
            .map(|config| recovery::open(config, machine, now))
            .transpose()?;
        let (pending, feed_begins) = opened.unzip();
        if let Some(pending) = &pending {
            watch_only(poll, &**pending.store().answers(), Source::Store)?;
        }
        Ok((Self { pending }, feed_begins.unwrap_or(now)))
    }

    /// Whether there is a store.
    pub fn has_store(&self) -> bool {
        self.pending.is_some()
    }

    /// Add how long commits took.
    pub fn expose(&self, to: &mut Exposition) {
        if let Some(pending) = &self.pending {
            let name = "forebay_store_commit_seconds";
            to.histogram(name, &[], pending.commit_times());
        }
    }

    /// Take the store's answers that have come.
    pub fn take_answers(&self, answers: &mut Vec<Answer>) {
        if let Some(pending) = &self.pending {
            // The queue closes with the store alone, which this thread owns.
            drop(pending.store().answers().drain(answers));
        }
    }

    /// Give the batch of this turn to the store.
    pub fn write(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.write();
        }
    }

    /// Try a store again that could not write, if that is due.
    pub fn retry_store_if_due(&mut self, cx: &mut Context, now: Instant) {
        let pending = self.pending.as_mut();
        if pending.is_some_and(|pending| pending.take_retry_due(now)) {
            cx.machine.retry_store(cx.now);
        }
    }

    /// When the store is to be tried again.
    pub fn deadline(&self) -> Option<Instant> {
        self.pending.as_ref().and_then(PendingWrites::retry_at)
    }
}

/// What the machine has decided.
impl Commits {
    /// Add a change to the batch of this turn.
    pub fn add(&mut self, op: Op) {
        if let Some(pending) = &mut self.pending {
            pending.add(op);
        }
    }

    /// Write the result of an end to its file.
    pub fn file(&self, id: RequestId, ending: Arc<Ending>) {
        if let Some(pending) = &self.pending {
            pending.store().file(id, ending);
        }
    }

    /// Remove the file that a run may have left.
    pub fn discard(&self, id: RequestId, attempt: u32) {
        if let Some(pending) = &self.pending {
            pending.store().discard(id, attempt);
        }
    }

    /// Forget the arguments of a request that has ended or was refused.
    pub fn ended(&mut self, id: RequestId) {
        if let Some(pending) = &mut self.pending {
            pending.arguments_mut().forget(id);
        }
    }

    /// Answer the caller of a retry that is on disk or could not be written.
    pub fn retried(&mut self, id: RequestId, done: Result<(), Arc<Refusal>>) {
        let pending = self.pending.as_mut();
        if let Some(reply_to) = pending.and_then(|pending| pending.take_retry(id)) {
            let done = done.map_err(|refusal| Box::new((*refusal).clone()));
            let _ = reply_to.send(done); // fails if the caller no longer waits
        }
    }
}

/// Submissions and questions of clients.
impl Commits {
    /// Give a submission to the machine, without its arguments if they exceed the budget in memory.
    ///
    /// # Errors
    /// Those of [`Machine::submit`].
    pub fn submit(
        &mut self,
        cx: &mut Context,
        mut submission: Submission,
    ) -> Result<Submitted, Box<Refusal>> {
        let bytes = submission.arguments.len();
        let pending = self.pending.as_ref();
        let detached = pending.and_then(|pending| pending.arguments().detach(&mut submission));
        let submitted = cx.machine.submit(cx.now, submission)?;
        if let (Submitted::New(id), Some(pending)) = (submitted, &mut self.pending) {
            pending.arguments_mut().track(id, bytes, detached);
        }
        Ok(submitted)
    }

    /// Whether too many bytes are on their way to the disk to accept more.
    pub fn is_behind(&self) -> bool {
        let pending = self.pending.as_ref();
        pending.is_some_and(|pending| pending.arguments().are_behind())
    }

    /// Ask the store about a request. False if there is no store.
    pub fn fetch(&mut self, id: RequestId, question: Question, purpose: Purpose) -> bool {
        let Some(pending) = &mut self.pending else {
            return false;
        };
        pending.fetch(id, question, purpose);
        true
    }

    /// The purpose of a question that the store has answered.
    pub fn take_purpose(&mut self, ticket: u64) -> Option<Purpose> {
        self.pending.as_mut()?.take_purpose(ticket)
    }

    /// The results that the retention keeps for clients.
    pub fn unread(&self) -> Option<&Unread> {
        Some(self.pending.as_ref()?.store().unread())
    }

    /// The path of a result's file.
    pub fn result_path(&self, id: RequestId) -> PathBuf {
        let pending = self.pending.as_ref();
        let path = pending.map(|pending| pending.store().result_path(id));
        path.unwrap_or_default()
    }

    /// Why the store has no such request, as far as that is known.
    pub fn missing(&self, id: RequestId) -> Refusal {
        let store = self.pending.as_ref().map(PendingWrites::store);
        match store.filter(|store| store.unread().is_lost(id)) {
            Some(store) => pruned_unread(id, store.config().retention_bytes),
            None => unknown(id),
        }
    }
}

/// Runs that are to begin.
impl Commits {
    /// Note a run in the journal. False if there is no room: then it waits here until its claim is on disk.
    pub fn note_in_journal(&mut self, run: PendingRun) -> bool {
        let pending = self.pending.as_mut();
        pending.is_none_or(|pending| pending.note_in_journal(run))
    }

    /// Read the arguments of a run if they are on disk alone. False if they are in memory.
    pub fn fetch_arguments(&mut self, run: PendingRun) -> bool {
        let Some(pending) = &mut self.pending else {
            return false;
        };
        let fetches = pending.arguments().are_on_disk(run.id);
        if fetches {
            pending.fetch(run.id, Question::Arguments, Purpose::Run(run));
        }
        fetches
    }

    /// Count answered changes; see [`PendingWrites::take_answered`].
    pub fn take_answered(
        &mut self,
        count: usize,
        on_disk: bool,
        waits: impl Fn(PendingRun) -> bool,
    ) -> Vec<PendingRun> {
        let pending = self.pending.as_mut();
        let runs = pending.map(|pending| pending.take_answered(count, on_disk, waits));
        runs.unwrap_or_default()
    }
}

/// Orders of an operator.
impl Commits {
    /// Run an ended request again.
    pub fn retry(&mut self, id: RequestId, by: Arc<str>, reply_to: RetryReplyTo) {
        match &mut self.pending {
            Some(pending) => pending.fetch(id, Question::Row, Purpose::Retry(by, reply_to)),
            None => drop(reply_to.send(Err(has_no_store(id).into()))),
        }
    }

    /// Give the row of a request that is to run again to the machine.
    pub fn retry_found(
        &mut self,
        cx: &mut Context,
        id: RequestId,
        found: Fetched,
        (by, reply_to): (Arc<str>, RetryReplyTo),
    ) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        match restart(pending, cx, id, found) {
            Ok(()) => {
                pending.add_retry(id, reply_to);
                if !by.is_empty() {
                    cx.machine.acted(cx.now, id, Act::Retry, by);
                }
            }
            refused => drop(reply_to.send(refused)), // fails if the caller no longer waits
        }
    }

    /// Remove ended requests.
    pub fn prune(&mut self, rule: PruneRule, reply_to: ReplyTo<Pruned>) {
        match &mut self.pending {
            Some(pending) => {
                let ticket = pending.ticket_for(Purpose::Prune(reply_to));
                pending.store().prune(rule, ticket);
            }
            None => drop(reply_to.send(Err(NO_STORE.into()))),
        }
    }

    /// Keep ended requests of these names for so long.
    pub fn retain(&self, ages: RetentionAges) {
        if let Some(pending) = &self.pending {
            pending.store().retain(ages);
        }
    }

    /// Answer the caller of a prune.
    pub fn pruned(&mut self, ticket: u64, done: Result<Pruned, String>) {
        if let Some(Purpose::Prune(reply_to)) = self.take_purpose(ticket) {
            let _ = reply_to.send(done); // fails if the caller no longer waits
        }
    }

    /// Requests were removed from the store: their idempotency keys may be used again.
    pub fn forgotten(&mut self, cx: &mut Context, ids: Vec<RequestId>) {
        for id in ids {
            let pending = self.pending.as_mut();
            if let Some(key) = pending.and_then(|pending| pending.take_key(id)) {
                cx.machine.forget(&key);
            }
        }
    }
}

/// Submit a request again by its row.
fn restart(
    pending: &mut PendingWrites,
    cx: &mut Context,
    id: RequestId,
    found: Fetched,
) -> Result<(), Box<Refusal>> {
    let row = match found {
        Fetched::Row(row) => *row,
        Fetched::Failed(why) => return Err(unreadable(id, &why).into()),
        _ => return Err(unknown(id).into()),
    };
    if row.status == Status::Succeeded {
        return Err(has_succeeded(id).into());
    }
    let ended = row.status.has_ended();
    let mut again = row.restored();
    let submission = &mut again.request.submission;
    let bytes = submission.arguments.len();
    let detached = pending.arguments().detach(submission);
    if !ended || !cx.machine.retry(cx.now, again)? {
        return Err(has_not_ended(id).into());
    }
    match detached {
        Some(_) => pending.arguments_mut().keep_on_disk(id),
        None => pending.arguments_mut().track(id, bytes, None),
    }
    Ok(())
}
