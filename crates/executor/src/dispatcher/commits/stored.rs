//! What the store answers.

use std::sync::Arc;

use crate::dispatcher::clients::answers::plain;
use crate::dispatcher::clients::waiting::Waiter;
use crate::dispatcher::commits::keeping::{Asker, Held, Late, Told};
use crate::dispatcher::driver::Driver;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::limit::UNREAD_RETENTION_TIMES;
use crate::message;
use crate::request::{Failure, Outcome, Status};
use crate::store::{Answer, Fetched, Payload, PruneRule, Pruned, Question};

const NO_STORE: &str = "requests are kept nowhere: the server has no state directory";

impl Driver {
    /// Take in what the store has done.
    pub fn take_stored(&mut self) {
        let mut answers = std::mem::take(&mut self.answers);
        if let Some(keeping) = &self.keeping {
            // Closed only with the store, which is this thread's.
            drop(keeping.store.answers().drain(&mut answers));
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
                self.begin_held(count, true);
            }
            Answer::NotCommitted {
                count,
                why,
                permanent,
            } => {
                self.machine.not_committed(self.now, count, &why, permanent);
                self.begin_held(count, false);
            }
            Answer::Filed { id, unfit } => self.machine.filed(self.now, id, unfit.as_deref()),
            Answer::Fetched { ticket, id, found } => self.take_found(ticket, id, found),
            Answer::Pruned { ticket, done } => {
                let asker = self
                    .keeping
                    .as_mut()
                    .and_then(|keeping| keeping.asker(ticket));
                if let Some(Asker::Prune(told)) = asker {
                    let _ = told.send(done); // refused where nobody waits any more
                }
            }
            Answer::Forgotten(ids) => {
                for id in ids {
                    let key = self
                        .keeping
                        .as_mut()
                        .and_then(|keeping| keeping.forgotten(id));
                    if let Some(key) = key {
                        self.machine.forget(&key);
                    }
                }
            }
        }
    }

    fn begin_held(&mut self, count: usize, on_disk: bool) {
        let Some(keeping) = &mut self.keeping else {
            return;
        };
        let unsent = &self.unsent;
        for run in keeping.answered(count, on_disk, |run| unsent.has(run)) {
            self.begin_noted(run);
        }
        if self
            .keeping
            .as_ref()
            .is_some_and(|keeping| !keeping.is_behind())
        {
            self.clients.resume();
        }
    }

    fn take_found(&mut self, ticket: u64, id: RequestId, found: Fetched) {
        let Some(asker) = self
            .keeping
            .as_mut()
            .and_then(|keeping| keeping.asker(ticket))
        else {
            return;
        };
        match asker {
            Asker::End(waiter) => {
                self.clients.fetched(waiter.client);
                self.tell_found(id, waiter, found);
            }
            Asker::Cancel(waiter) => match found {
                Fetched::Ending(_) => {
                    let ended = plain(message::cancelled("ended"));
                    self.answer(waiter.client, waiter.call, ended);
                }
                other => self.tell_found(id, waiter, other),
            },
            Asker::Follow(key, what) => self.follow_found(key, id, what, &found),
            Asker::Run(run) => self.begin_found(run, found),
            Asker::After(late) => self.submit_late(*late, id, &found),
            Asker::Retry(told) => match (self.retry_found(id, found), &mut self.keeping) {
                (Ok(()), Some(keeping)) => keeping.retries(id, told),
                (done, _) => drop(told.send(done)), // refused where nobody waits any more
            },
            Asker::Prune(_) => {}
        }
    }

    fn tell_found(&mut self, id: RequestId, waiter: Waiter, found: Fetched) {
        match found {
            Fetched::Ending(ending) => {
                if !matches!(ending.payload, Payload::File(_)) {
                    self.taken(waiter.client, id); // of a file it says so itself
                }
                let told = match ending.payload {
                    Payload::Result(result) => message::stood(id, ending.status, result),
                    Payload::File(bytes) => self.in_file(id, ending.status, bytes),
                    Payload::Failure(json) => {
                        message::stood(id, ending.status, json.into_bytes().into())
                    }
                };
                self.answer(waiter.client, waiter.call, told);
            }
            Fetched::Failed(why) => {
                let refusal = unreadable(id, &why);
                self.refuse(waiter.client, waiter.call, &refusal);
            }
            _ => {
                let refusal = self.missing(id);
                self.taken(waiter.client, id);
                self.refuse(waiter.client, waiter.call, &refusal);
            }
        }
    }

    /// Why a request is not there, as far as that is known.
    fn missing(&self, id: RequestId) -> Refusal {
        let store = self.keeping.as_ref().map(|keeping| &keeping.store);
        match store.filter(|store| store.unread().is_lost(id)) {
            Some(store) => pruned_unread(id, store.config().retention_bytes),
            None => unknown(id),
        }
    }

    /// The arguments of a run were read, if it is still to begin.
    fn begin_found(&mut self, run: Held, found: Fetched) {
        match found {
            Fetched::Arguments(arguments) => self.begin_in_turn(run, Some(arguments)),
            // It was taken back meanwhile, and may be another worker's: those behind it may begin.
            _ if !self.unsent.has(run) => self.begin_in_turn(run, None),
            Fetched::Failed(why) => self.give_back(run, &why),
            _ => self.give_back(run, "its arguments are not in the store any more"),
        }
    }

    /// A run cannot begin.
    pub fn give_back(&mut self, run: Held, why: &str) {
        let outcome = Outcome::Failed(Failure::Refused(why.into()));
        let Held {
            slot, id, attempt, ..
        } = run;
        self.machine
            .finished(self.now, slot, id, attempt, outcome, None);
        if self.unsent.is_before(slot) {
            self.begin_in_turn(run, None); // it has ended; those behind it may begin
        }
    }

    /// How a request ended that a submission comes after.
    fn submit_late(&mut self, mut late: Late, id: RequestId, found: &Fetched) {
        if let Fetched::Ending(ending) = found {
            self.machine.remember(id, ending.status);
        }
        if let (Some(next), Some(keeping)) = (late.left.pop(), &mut self.keeping) {
            keeping.ask(next, Question::Ending, Asker::After(Box::new(late)));
            return;
        }
        let waiter = late.waiter;
        if let Err(refusal) = self.enter(late.submission, waiter, late.token) {
            self.refuse(waiter.client, waiter.call, &refusal);
        }
    }

    /// An operator wants an ended request run again.
    pub fn retry(&mut self, id: RequestId, told: Told<()>) {
        match &mut self.keeping {
            Some(keeping) => keeping.ask(id, Question::Row, Asker::Retry(told)),
            None => drop(told.send(Err(NO_STORE.into()))),
        }
    }

    /// A retry is on disk, or is not.
    pub fn tell_retried(&mut self, id: RequestId, done: Result<(), Arc<Refusal>>) {
        let told = self.keeping.as_mut();
        if let Some(told) = told.and_then(|keeping| keeping.retried(id)) {
            let done = done.map_err(|refusal| refusal.to_string());
            let _ = told.send(done); // refused where nobody waits any more
        }
    }

    /// Give up ended requests.
    pub fn prune(&mut self, rule: PruneRule, told: Told<Pruned>) {
        match &mut self.keeping {
            Some(keeping) => {
                let ticket = keeping.ticket(Asker::Prune(told));
                keeping.store.prune(rule, ticket);
            }
            None => drop(told.send(Err(NO_STORE.into()))),
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
        let keeping = self.keeping.as_ref();
        let parted = keeping.and_then(|keeping| keeping.part(submission));
        let told = |refusal: Box<Refusal>| refusal.to_string();
        if !ended || !self.machine.retry(self.now, again).map_err(told)? {
            return Err(format!(
                "request {id} has not ended; wait for it, or cancel it"
            ));
        }
        if let Some(keeping) = &mut self.keeping {
            match parted {
                Some(_) => keeping.stays(id),
                None => keeping.took(id, bytes, None),
            }
        }
        Ok(())
    }
}

/// There is no request of this id.
pub fn unknown(id: RequestId) -> Refusal {
    let next = "see `forebay ps --all`; ended requests are pruned after a while";
    Refusal::unknown("request", &id.to_string(), next)
}

/// There was too much that nobody has read.
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
