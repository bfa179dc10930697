//! Handles the answers of the store.

use std::sync::Arc;

use crate::dispatcher::clients::answers::plain;
use crate::dispatcher::clients::waiters::Waiter;
use crate::dispatcher::commits::pending_writes::{LateSubmission, PendingRun, Purpose, ReplyTo};
use crate::dispatcher::driver::Driver;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::limit::UNREAD_RETENTION_TIMES;
use crate::message;
use crate::request::{Failure, Outcome, Status};
use crate::store::{Answer, Fetched, Payload, PruneRule, Pruned, Question};

const NO_STORE: &str = "the server stores no requests: it has no state directory";

impl Driver {
    /// Take in the answers that have come.
    pub fn take_store_answers(&mut self) {
        let mut answers = std::mem::take(&mut self.answers);
        if let Some(pending) = &self.pending {
            // The queue closes with the store alone, which this thread owns.
            drop(pending.store.answers().drain(&mut answers));
        }
        for answer in answers.drain(..) {
            self.take_answer(answer);
        }
        self.answers = answers;
    }

    fn take_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Committed(count) => {
                self.machine.committed(self.now, count);
                self.begin_waiting_runs(count, true);
            }
            Answer::NotCommitted {
                count,
                why,
                permanent,
            } => {
                self.machine.not_committed(self.now, count, &why, permanent);
                self.begin_waiting_runs(count, false);
            }
            Answer::Filed { id, unfit } => self.machine.filed(self.now, id, unfit.as_deref()),
            Answer::Fetched { ticket, id, found } => self.take_fetched(ticket, id, found),
            Answer::Pruned { ticket, done } => {
                let purpose = self
                    .pending
                    .as_mut()
                    .and_then(|pending| pending.take_purpose(ticket));
                if let Some(Purpose::Prune(reply_to)) = purpose {
                    let _ = reply_to.send(done); // fails if the caller no longer waits
                }
            }
            Answer::Forgotten(ids) => {
                for id in ids {
                    let key = self
                        .pending
                        .as_mut()
                        .and_then(|pending| pending.take_key(id));
                    if let Some(key) = key {
                        self.machine.forget(&key);
                    }
                }
            }
        }
    }

    fn begin_waiting_runs(&mut self, count: usize, on_disk: bool) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        let dispatch_queue = &self.dispatch_queue;
        for run in pending.take_answered(count, on_disk, |run| dispatch_queue.contains(run)) {
            self.begin_noted(run);
        }
        if self
            .pending
            .as_ref()
            .is_some_and(|pending| !pending.is_behind())
        {
            self.clients.resume();
        }
    }

    fn take_fetched(&mut self, ticket: u64, id: RequestId, found: Fetched) {
        let Some(purpose) = self
            .pending
            .as_mut()
            .and_then(|pending| pending.take_purpose(ticket))
        else {
            return;
        };
        match purpose {
            Purpose::End(waiter) => {
                self.clients.fetched(waiter.client);
                self.answer_found(id, waiter, found);
            }
            Purpose::Cancel(waiter) => match found {
                Fetched::Ending(_) => {
                    let ended = plain(message::cancelled("ended"));
                    self.answer(waiter.client, waiter.call, ended);
                }
                other => self.answer_found(id, waiter, other),
            },
            Purpose::Follow(key, kind) => self.follow_found(key, id, kind, &found),
            Purpose::Run(run) => self.begin_with_arguments(run, found),
            Purpose::After(late) => self.submit_late(*late, id, &found),
            Purpose::Retry(reply_to) => match (self.retry_found(id, found), &mut self.pending) {
                (Ok(()), Some(pending)) => pending.add_retry(id, reply_to),
                (done, _) => drop(reply_to.send(done)), // fails if the caller no longer waits
            },
            Purpose::Prune(_) => {}
        }
    }

    fn answer_found(&mut self, id: RequestId, waiter: Waiter, found: Fetched) {
        match found {
            Fetched::Ending(ending) => {
                if !matches!(ending.payload, Payload::File(_)) {
                    self.result_read(waiter.client, id); // of a file it says so itself
                }
                let reply_to = match ending.payload {
                    Payload::Result(result) => message::stood(id, ending.status, result),
                    Payload::File(bytes) => self.in_file(id, ending.status, bytes),
                    Payload::Failure(json) => {
                        message::stood(id, ending.status, json.into_bytes().into())
                    }
                };
                self.answer(waiter.client, waiter.call, reply_to);
            }
            Fetched::Failed(why) => {
                let refusal = unreadable(id, &why);
                self.refuse(waiter.client, waiter.call, &refusal);
            }
            _ => {
                let refusal = self.missing(id);
                self.result_read(waiter.client, id);
                self.refuse(waiter.client, waiter.call, &refusal);
            }
        }
    }

    /// Why the store has no such request, as far as that is known.
    fn missing(&self, id: RequestId) -> Refusal {
        let store = self.pending.as_ref().map(|pending| &pending.store);
        match store.filter(|store| store.unread().is_lost(id)) {
            Some(store) => pruned_unread(id, store.config().retention_bytes),
            None => unknown(id),
        }
    }

    /// Begin a run whose arguments were read.
    fn begin_with_arguments(&mut self, run: PendingRun, found: Fetched) {
        match found {
            Fetched::Arguments(arguments) => self.begin_in_turn(run, Some(arguments)),
            // It was withdrawn meanwhile, and may be another worker's now: the runs behind it may begin.
            _ if !self.dispatch_queue.contains(run) => self.begin_in_turn(run, None),
            Fetched::Failed(why) => self.fail_run(run, &why),
            _ => self.fail_run(run, "its arguments are not in the store any more"),
        }
    }

    /// End a run that cannot begin.
    pub fn fail_run(&mut self, run: PendingRun, why: &str) {
        let outcome = Outcome::Failed(Failure::Refused(why.into()));
        let PendingRun {
            slot, id, attempt, ..
        } = run;
        self.machine
            .finished(self.now, slot, id, attempt, outcome, None);
        if self.dispatch_queue.has_runs(slot) {
            self.begin_in_turn(run, None); // it has ended, so those behind it may begin
        }
    }

    /// Take in how one predecessor of a submission ended, then fetch the next or submit.
    fn submit_late(&mut self, mut late: LateSubmission, id: RequestId, found: &Fetched) {
        if let Fetched::Ending(ending) = found {
            self.machine.remember(id, ending.status);
        }
        if let (Some(next), Some(pending)) = (late.left.pop(), &mut self.pending) {
            pending.fetch(next, Question::Ending, Purpose::After(Box::new(late)));
            return;
        }
        let waiter = late.waiter;
        if let Err(refusal) = self.enter(late.submission, waiter, late.token) {
            self.refuse(waiter.client, waiter.call, &refusal);
        }
    }

    /// Run an ended request again, for an operator.
    pub fn retry(&mut self, id: RequestId, reply_to: ReplyTo<()>) {
        match &mut self.pending {
            Some(pending) => pending.fetch(id, Question::Row, Purpose::Retry(reply_to)),
            None => drop(reply_to.send(Err(NO_STORE.into()))),
        }
    }

    /// Answer the caller of a retry that is on disk or could not be written.
    pub fn notify_retried(&mut self, id: RequestId, done: Result<(), Arc<Refusal>>) {
        let reply_to = self.pending.as_mut();
        if let Some(reply_to) = reply_to.and_then(|pending| pending.take_retry(id)) {
            let done = done.map_err(|refusal| refusal.to_string());
            let _ = reply_to.send(done); // fails if the caller no longer waits
        }
    }

    /// Remove ended requests.
    pub fn prune(&mut self, rule: PruneRule, reply_to: ReplyTo<Pruned>) {
        match &mut self.pending {
            Some(pending) => {
                let ticket = pending.ticket_for(Purpose::Prune(reply_to));
                pending.store.prune(rule, ticket);
            }
            None => drop(reply_to.send(Err(NO_STORE.into()))),
        }
    }

    fn retry_found(&mut self, id: RequestId, found: Fetched) -> Result<(), String> {
        let row = match found {
            Fetched::Row(row) => *row,
            Fetched::Failed(why) => return Err(unreadable(id, &why).to_string()),
            _ => return Err(unknown(id).to_string()),
        };
        if row.status == Status::Succeeded {
            return Err(format!(
                "request {id} succeeded; to run it once more, submit it again"
            ));
        }
        let ended = row.status.has_ended();
        let mut again = row.restored();
        let submission = &mut again.request.submission;
        let bytes = submission.arguments.len();
        let pending = self.pending.as_ref();
        let detached = pending.and_then(|pending| pending.detach_arguments(submission));
        let reply_to = |refusal: Box<Refusal>| refusal.to_string();
        if !ended || !self.machine.retry(self.now, again).map_err(reply_to)? {
            return Err(format!(
                "request {id} has not ended; wait for it, or cancel it"
            ));
        }
        if let Some(pending) = &mut self.pending {
            match detached {
                Some(_) => pending.keep_on_disk(id),
                None => pending.track_arguments(id, bytes, None),
            }
        }
        Ok(())
    }
}

/// The refusal for an id that no request has.
pub fn unknown(id: RequestId) -> Refusal {
    let next = "see `forebay ps --all`; ended requests are pruned after a while";
    Refusal::unknown("request", &id.to_string(), next)
}

/// The refusal for a result that the retention removed before it was read.
fn pruned_unread(id: RequestId, retention_bytes: u64) -> Refusal {
    Refusal {
        code: "limit",
        message: format!(
            "the result of request {id} was removed before it was read: retention_bytes is {retention_bytes}, and with \
             unread results the server's directory may take {UNREAD_RETENTION_TIMES} times as much"
        ),
        object: id.to_string(),
        limit: "retention_bytes".into(),
        value: String::new(),
        next: "raise executor.retention_bytes, or read results earlier, and submit it again".into(),
    }
}

fn unreadable(id: RequestId, why: &str) -> Refusal {
    Refusal {
        code: "store",
        message: format!("request {id} cannot be read: {why}"),
        object: id.to_string(),
        limit: String::new(),
        value: String::new(),
        next: "see the disk of the state directory".into(),
    }
}
