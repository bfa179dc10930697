//! Doing what the machine has decided.

use std::sync::Arc;

use crate::action::Action;
use crate::dispatcher::commits::keeping::{Asker, Held};
use crate::dispatcher::driver::Driver;
use crate::dispatcher::supervisor::command::Order;
use crate::dispatcher::workers::Serving;
use crate::id::RequestId;
use crate::message;
use crate::op::Op;
use crate::request::{Blob, Lane, Status};
use crate::store::Question;

/// The name of pickled functions: `forebay.Executor` knows no other.
const CALL: &str = "@call";

impl Driver {
    pub fn perform(&mut self, action: Action) {
        match action {
            Action::Dispatch {
                slot,
                id,
                attempt,
                journal,
            } => {
                let run = self.unsent.number(slot, id, attempt);
                self.dispatch(run, journal);
            }
            Action::Store(op) => {
                if let Op::Park { id, attempt, .. } | Op::Unclaim { id, attempt } = &op {
                    self.tell_status(*id, Status::Queued, *attempt);
                }
                if let Op::End { id, ending, .. } = &op {
                    self.spare_ended(*id, &ending.outcome);
                }
                if let Some(keeping) = &mut self.keeping {
                    keeping.add(op);
                }
            }
            Action::File(id, ending) => {
                if let Some(keeping) = &self.keeping {
                    keeping.store.file(id, ending);
                }
            }
            Action::Discard(id, attempt) => {
                if let Some(keeping) = &self.keeping {
                    keeping.store.discard(id, attempt);
                }
            }
            Action::Ended(id, ending) => {
                self.let_go(id);
                self.end_following(id, ending.status, ending.attempts);
                self.tickets.end(id, &ending, &self.shared.finished);
                self.tell_ended(id, &ending);
            }
            Action::Accepted(id) => self.tell_accepted(id),
            Action::Retried(id, done) => self.tell_retried(id, done),
            Action::Refused(id, refusal) => {
                self.let_go(id);
                self.end_following(id, Status::Failed, 0);
                self.tell_refused(id, &refusal);
            }
            Action::Start { slot, lane } => {
                let nonce = self.nonce();
                self.workers.start(slot, lane, nonce);
                self.shared.order(Order::Start { slot, lane, nonce });
            }
            Action::Stop { slot } => {
                self.workers.dismiss(slot);
                self.shared.order(Order::Stop { slot });
            }
            Action::Expel {
                slot,
                peak_bytes,
                limit_bytes,
            } => self.expel(slot, peak_bytes, limit_bytes),
            Action::Interrupt {
                slot,
                id,
                attempt,
                step,
            } => self.interrupt(slot, (id, attempt), step),
            Action::Recall { slot, id, attempt } => self.recall(slot, (id, attempt)),
            Action::Measure { slot } => self.measures.gauge.measure(slot),
        }
    }

    fn let_go(&mut self, id: RequestId) {
        if let Some(keeping) = &mut self.keeping {
            keeping.ended(id);
        }
    }

    /// A run begins: it is noted, its arguments are read where they are on disk, and its worker is told.
    fn dispatch(&mut self, run: Held, journal: bool) {
        if let Some(keeping) = &mut self.keeping {
            if journal && !keeping.note(run) {
                self.unsent.wait(run, false);
                return;
            }
            if keeping.is_on_disk(run.id) {
                self.unsent.wait(run, false);
                keeping.ask(run.id, Question::Arguments, Asker::Run(run));
                return;
            }
            if self.unsent.is_before(run.slot) {
                self.unsent.wait(run, true);
                return;
            }
        }
        self.begin(run, None);
    }

    /// A run has room in the journal now.
    pub fn begin_noted(&mut self, run: Held) {
        match &mut self.keeping {
            // One that is not to begin any more needs none of them.
            Some(keeping) if keeping.is_on_disk(run.id) && self.unsent.has(run) => {
                keeping.ask(run.id, Question::Arguments, Asker::Run(run));
            }
            _ => self.begin_in_turn(run, None),
        }
    }

    /// A run had to wait and need not any more: it begins, unless it is behind another one that has to.
    pub fn begin_in_turn(&mut self, run: Held, arguments: Option<Blob>) {
        for (run, arguments) in self.unsent.ready(run, arguments) {
            self.begin(run, arguments.as_ref());
        }
    }

    /// Tell a worker to run a request; its arguments, if they had to be read.
    fn begin(&mut self, run: Held, arguments: Option<&Blob>) {
        let Held {
            slot, id, attempt, ..
        } = run;
        let standing = self.machine.standing(id);
        let current =
            standing.is_some_and(|seen| (seen.slot, seen.attempt) == (Some(slot), attempt));
        let Some(request) = self.machine.request(id).filter(|_| current) else {
            return; // it has ended meanwhile, or its worker has
        };
        let request = Arc::clone(request);
        let submission = &request.submission;
        let arguments = arguments.unwrap_or(&submission.arguments);
        let message = if &*submission.name == CALL {
            message::pickled(arguments)
        } else {
            message::run(&message::Run {
                name: &submission.name,
                arguments,
                id,
                attempt,
                deadline_ms: submission.options.timeout_ms,
                traceparent: None,
            })
        };
        self.tell_status(id, Status::Running, attempt);
        if let Some(worker) = self.workers.get_mut(slot)
            && (worker.lane == Lane::Async || worker.serving().is_none_or(Serving::is_idle))
        {
            worker.begin();
        }
        if let Err(error) = self.workers.dispatch(slot, (id, attempt), message) {
            self.give_back(run, &format!("its worker could not be told: {error}"));
        }
    }
}
