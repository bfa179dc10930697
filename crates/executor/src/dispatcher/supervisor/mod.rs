//! What the program's own threads wait for: the ends of the requests that they submitted, the end of a drain, idleness.
//!
//! Commands come in by the queues of [`shared`]; orders, calls and ends go out by them. The supervisor itself, which
//! starts and ends workers, is one of these threads. Each ticket is answered once, by its request's end or by a refusal,
//! unless its request was cancelled before it began.

mod idle;
mod local;
pub(super) mod mailbox;
pub(super) mod protocol;
pub(super) mod shared;

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use crate::dispatcher::context::Context;
use crate::dispatcher::supervisor::idle::Idleness;
use crate::dispatcher::supervisor::local::{Tickets, send_end};
use crate::dispatcher::supervisor::protocol::{LocalSubmission, Order};
use crate::feed::ServerState;
use crate::id::RequestId;
use crate::machine::{Cancelled, Submitted};
use crate::request::{Ending, Failure, Outcome, Status, Submission};

/// The waits of the program's threads.
pub struct Supervisor {
    tickets: Tickets,
    /// The callers of `drain`, until nothing runs.
    drains: Vec<Sender<()>>,
    idleness: Idleness,
    /// How long the server is idle before that is reported; `None`: never.
    idle_end: Option<Duration>,
}

impl Supervisor {
    pub fn new(idle_end: Option<Duration>) -> Self {
        Self {
            tickets: Tickets::default(),
            drains: Vec::new(),
            idleness: Idleness::Busy,
            idle_end,
        }
    }

    /// Submit a request of this process, by the code of this name.
    pub fn submit(&mut self, cx: &mut Context, local: LocalSubmission, code: Arc<str>) {
        let LocalSubmission {
            ticket,
            name,
            arguments,
            options,
        } = local;
        let submitted = Arc::clone(&name);
        let submission = Submission {
            name,
            code,
            submitter: Arc::from(""),
            arguments,
            options,
        };
        match cx.machine.submit(cx.now, submission) {
            Ok(Submitted::New(id) | Submitted::Known(id)) => self.tickets.begin(ticket, id),
            Err(refusal) => {
                cx.submission_refused(&submitted, &refusal);
                let failure = Failure::Refused(refusal.to_string().into());
                send_end(ticket, &Outcome::Failed(failure), &cx.shared.finished);
            }
        }
    }

    /// Cancel the request of a ticket if it has not begun; then no end is sent for it.
    pub fn cancel(&mut self, cx: &mut Context, ticket: u64) -> bool {
        let Some(id) = self.tickets.request(ticket) else {
            return false;
        };
        let view = cx.machine.view(id);
        let waits = view.is_some_and(|view| view.status == Status::Queued);
        let cancelled = waits && cx.machine.cancel(cx.now, id) == Cancelled::Now;
        if cancelled {
            self.tickets.forget(ticket);
        }
        cancelled
    }

    /// Send the end of a request, if a ticket submitted it.
    pub fn ended(&mut self, cx: &Context, id: RequestId, ending: &Ending) {
        self.tickets.end(id, ending, &cx.shared.finished);
    }

    /// Refuse further work, and send to `drained` when nothing runs.
    pub fn drain(&mut self, cx: &mut Context, drained: Sender<()>) {
        cx.machine.drain(cx.now);
        cx.note_server(ServerState::Draining, None);
        cx.machine.retry_store(cx.now); // once more: it may have room again
        self.drains.push(drained);
    }

    /// Notify the callers of `drain` if nothing runs.
    pub fn report_drained(&mut self, cx: &Context) {
        if !self.drains.is_empty() && (cx.machine.is_idle() || cx.machine.is_stuck()) {
            for drained in self.drains.drain(..) {
                let _ = drained.send(()); // fails if the caller no longer waits
            }
        }
    }

    /// Order an end of the server if it has been idle for long enough.
    pub fn report_idle(&mut self, cx: &Context, now: Instant) {
        let Some(after) = self.idle_end else {
            return;
        };
        // The next server would have no cordon.
        let is_idle = cx.machine.is_idle() && cx.machine.cordoned().is_none();
        if self.idleness.look(is_idle, now, after) {
            match cx.machine.figures(cx.now).unfinished {
                0 => cx.shared.order(Order::Idle),
                _ => self.idleness = Idleness::Busy,
            }
        }
    }

    /// When idleness is to be reported.
    pub fn deadline(&self) -> Option<Instant> {
        self.idleness.due()
    }
}
