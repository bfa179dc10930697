//! Doing what the machine has decided.

use std::sync::Arc;

use crate::action::Action;
use crate::dispatcher::command::Order;
use crate::dispatcher::driver::Driver;
use crate::id::RequestId;
use crate::message;
use crate::request::{Failure, Outcome, Slot};

impl Driver {
    pub fn perform(&mut self, action: Action) {
        match action {
            Action::Dispatch {
                slot, id, attempt, ..
            } => self.dispatch(slot, id, attempt),
            Action::Ended(id, ending) => {
                self.tickets.end(id, &ending, &self.shared.finished);
                self.tell_ended(id, &ending);
            }
            Action::Accepted(id) => self.tell_accepted(id),
            Action::Refused(id, refusal) => self.tell_refused(id, &refusal),
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
            Action::Store(_) | Action::Measure { .. } => {}
        }
    }

    fn dispatch(&mut self, slot: Slot, id: RequestId, attempt: u32) {
        let Some(request) = self.machine.request(id) else {
            return;
        };
        let request = Arc::clone(request);
        let submission = &request.submission;
        let message = if self.tickets.contains(id) {
            message::pickled(&submission.arguments)
        } else {
            message::run(&message::Run {
                name: &submission.name,
                arguments: &submission.arguments,
                id,
                attempt,
                deadline_ms: submission.options.timeout_ms,
                traceparent: None,
            })
        };
        if let Err(error) = self.workers.dispatch(slot, (id, attempt), message) {
            let why = format!("its worker could not be told: {error}");
            let outcome = Outcome::Failed(Failure::Refused(why.into()));
            self.machine
                .finished(self.now, slot, id, attempt, outcome, None);
        }
    }
}
