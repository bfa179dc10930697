//! Applies the commands of the program's threads.

use std::sync::Arc;

use crate::dispatcher::driver::Driver;
use crate::dispatcher::supervisor::local::send_end;
use crate::dispatcher::supervisor::protocol::{Command, LocalSubmission, Order, StartedWorker};
use crate::machine::{Cancelled, Submitted};
use crate::request::{Failure, Outcome, Slot, Status, Submission};

impl Driver {
    pub fn apply(&mut self, command: Command) {
        match command {
            Command::Answer { ticket, head } => self.answer_ticket(ticket, head),
            Command::Submit(local) => self.submit_local(local),
            Command::Ready(slot, started) => self.worker_ready(slot, started),
            Command::Failed(slot, why) => {
                if let Some(worker) = self.workers.remove(&self.poll, slot) {
                    self.reap(slot, &worker);
                    self.machine.worker_failed(self.now, slot, why);
                }
            }
            Command::Died(slot, death) => self.worker_died(slot, death),
            Command::Retry(id, reply_to) => self.retry(id, reply_to),
            Command::Prune(rule, reply_to) => self.prune(rule, reply_to),
            Command::Ask(question) => question(self),
            Command::Close => self.close(),
        }
    }

    fn submit_local(&mut self, local: LocalSubmission) {
        let LocalSubmission {
            ticket,
            name,
            arguments,
            options,
        } = local;
        let submission = Submission {
            name,
            code: self.code.name(),
            submitter: Arc::from(""),
            arguments,
            options,
        };
        match self.machine.submit(self.now, submission) {
            Ok(Submitted::New(id) | Submitted::Known(id)) => self.tickets.begin(ticket, id),
            Err(refusal) => {
                let failure = Failure::Refused(refusal.to_string().into());
                send_end(ticket, &Outcome::Failed(failure), &self.shared.finished);
            }
        }
    }

    /// Cancel the request of a ticket if it has not begun; then no end is sent for it.
    pub fn cancel_ticket(&mut self, ticket: u64) -> bool {
        let Some(id) = self.tickets.request(ticket) else {
            return false;
        };
        let waits = self
            .machine
            .view(id)
            .is_some_and(|view| view.status == Status::Queued);
        let cancelled = waits && self.machine.cancel(self.now, id) == Cancelled::Now;
        if cancelled {
            self.tickets.forget(ticket);
        }
        cancelled
    }

    fn worker_ready(&mut self, slot: Slot, started: StartedWorker) {
        let pid = started.pid;
        match self.workers.adopt(&self.poll, slot, started) {
            Ok(true) => {
                self.measures.gauge.watch(slot, pid);
                self.machine.worker_ready(self.now, slot);
            }
            // The machine has given this worker up meanwhile.
            Ok(false) => self.shared.order(Order::Stop { slot }),
            Err(error) => {
                if let Some(worker) = self.workers.remove(&self.poll, slot) {
                    self.reap(slot, &worker);
                }
                self.shared.order(Order::Stop { slot });
                let why = error.to_string();
                self.machine.worker_failed(self.now, slot, why.into());
            }
        }
    }
}
