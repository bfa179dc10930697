//! Performs what the machine has decided.

use std::sync::Arc;

use crate::action::Action;
use crate::dispatcher::commits::pending_writes::{PendingRun, Purpose};
use crate::dispatcher::driver::Driver;
use crate::dispatcher::supervisor::protocol::Order;
use crate::dispatcher::workers::Serving;
use crate::id::RequestId;
use crate::message;
use crate::op::Op;
use crate::request::{Blob, Lane, Status};
use crate::store::Question;

/// The name of pickled functions, the only one that `forebay.Executor` uses.
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
                let run = self.dispatch_queue.next_dispatch(slot, id, attempt);
                self.dispatch(run, journal);
            }
            Action::Store(op) => self.store(op),
            Action::File(id, ending) => {
                if let Some(pending) = &self.pending {
                    pending.store.file(id, ending);
                }
            }
            Action::Discard(id, attempt) => {
                if let Some(pending) = &self.pending {
                    pending.store.discard(id, attempt);
                }
            }
            Action::Ended(id, ending) => {
                self.forget_request(id);
                self.end_following(id, ending.status, ending.attempts);
                self.tickets.end(id, &ending, &self.shared.finished);
                self.notify_ended(id, &ending);
            }
            Action::Accepted(id) => self.notify_accepted(id),
            Action::Retried(id, done) => self.notify_retried(id, done),
            Action::Refused(id, refusal) => {
                self.forget_request(id);
                self.end_following(id, Status::Failed, 0);
                self.notify_refused(id, &refusal);
            }
            Action::Start { slot, lane } => {
                // A new one for each worker, so that a late side socket of the slot's last worker is not taken for this
                // one's.
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

    fn store(&mut self, op: Op) {
        if let Op::Park { id, attempt, .. } | Op::Unclaim { id, attempt } = &op {
            self.notify_status(*id, Status::Queued, *attempt);
        }
        // Before the store has it: from its commit on, the retention may remove the result.
        if let Op::End { id, ending, .. } = &op {
            self.protect_result_of(*id, &ending.outcome);
        }
        if let Some(pending) = &mut self.pending {
            pending.add(op);
        }
    }

    fn forget_request(&mut self, id: RequestId) {
        if let Some(pending) = &mut self.pending {
            pending.ended(id);
        }
    }

    /// Begin a run: note it in the journal, read its arguments if they are on disk, then send it to its worker.
    ///
    /// A run that may not be repeated must be in the journal before its worker receives it: a server that dies in
    /// between would otherwise run it twice.
    fn dispatch(&mut self, run: PendingRun, journal: bool) {
        if let Some(pending) = &mut self.pending {
            if journal && !pending.note_in_journal(run) {
                self.dispatch_queue.push(run, false);
                return;
            }
            if pending.is_on_disk(run.id) {
                self.dispatch_queue.push(run, false);
                pending.fetch(run.id, Question::Arguments, Purpose::Run(run));
                return;
            }
            // The run itself need not wait, but those before it must be sent first.
            if self.dispatch_queue.has_runs(run.slot) {
                self.dispatch_queue.push(run, true);
                return;
            }
        }
        self.begin(run, None);
    }

    /// Continue with a run that is in the journal now.
    pub fn begin_noted(&mut self, run: PendingRun) {
        match &mut self.pending {
            // A run that was withdrawn needs no arguments.
            Some(pending) if pending.is_on_disk(run.id) && self.dispatch_queue.contains(run) => {
                pending.fetch(run.id, Question::Arguments, Purpose::Run(run));
            }
            _ => self.begin_in_turn(run, None),
        }
    }

    /// Begin a run that no longer waits, unless an earlier run of its worker still does.
    pub fn begin_in_turn(&mut self, run: PendingRun, arguments: Option<Blob>) {
        for (run, arguments) in self.dispatch_queue.ready(run, arguments) {
            self.begin(run, arguments.as_ref());
        }
    }

    /// Send a run to its worker, with `arguments` if they had to be read.
    fn begin(&mut self, run: PendingRun, arguments: Option<&Blob>) {
        let PendingRun {
            slot, id, attempt, ..
        } = run;
        let view = self.machine.view(id);
        let current = view.is_some_and(|seen| (seen.slot, seen.attempt) == (Some(slot), attempt));
        let Some(request) = self.machine.request(id).filter(|_| current) else {
            return; // the run or its worker has ended meanwhile
        };
        let request = Arc::clone(request);
        let submission = &request.submission;
        let arguments = arguments.unwrap_or(&submission.arguments);
        let message = if &*submission.name == CALL {
            message::pickled(arguments)
        } else {
            message::run(&message::RunMessage {
                name: &submission.name,
                arguments,
                id,
                attempt,
                deadline_ms: submission.options.timeout_ms,
                traceparent: None,
            })
        };
        self.notify_status(id, Status::Running, attempt);
        // A handed run begins later: until then measurements and output belong to the run before it.
        if let Some(worker) = self.workers.get_mut(slot)
            && (worker.lane == Lane::Async || worker.serving().is_none_or(Serving::is_idle))
        {
            worker.begin();
        }
        if let Err(error) = self.workers.dispatch(slot, (id, attempt), message) {
            self.fail_run(run, &format!("it could not be sent to its worker: {error}"));
        }
    }
}
