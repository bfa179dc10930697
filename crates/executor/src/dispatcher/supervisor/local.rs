//! Requests that this process submits to its own dispatcher, by ticket.

use std::sync::Arc;

use crate::dispatcher::supervisor::mailbox::Mailbox;
use crate::dispatcher::supervisor::protocol::{Finished, FinishedKind};
use crate::hash::ByNumber;
use crate::id::RequestId;
use crate::message::{cause_json, failure_json};
use crate::request::{Blob, Ending, Failure, Outcome};

/// Tickets and requests, each found by the other.
#[derive(Default)]
pub struct Tickets {
    tickets: ByNumber<RequestId, u64>,
    requests: ByNumber<u64, RequestId>,
}

impl Tickets {
    /// The request of `ticket` was accepted.
    pub fn begin(&mut self, ticket: u64, id: RequestId) {
        self.tickets.insert(id, ticket);
        self.requests.insert(ticket, id);
    }

    /// The unfinished request of a ticket.
    pub fn request(&self, ticket: u64) -> Option<RequestId> {
        self.requests.get(&ticket).copied()
    }

    /// Drop a ticket whose end is no longer wanted.
    pub fn forget(&mut self, ticket: u64) {
        if let Some(id) = self.requests.remove(&ticket) {
            self.tickets.remove(&id);
        }
    }

    /// Send the end of a request that a ticket submitted.
    pub fn end(&mut self, id: RequestId, ending: &Ending, to: &Mailbox<Finished>) {
        let Some(ticket) = self.tickets.remove(&id) else {
            return;
        };
        self.requests.remove(&ticket);
        send_end(ticket, &ending.outcome, to);
    }
}

/// Send the end of a ticket's request, also of one that never began.
pub fn send_end(ticket: u64, outcome: &Outcome, to: &Mailbox<Finished>) {
    let (kind, payload) = match outcome {
        Outcome::Succeeded(result) => (FinishedKind::Result, Arc::clone(result)),
        Outcome::Failed(Failure::Raised(described)) => {
            (FinishedKind::Raised, Arc::clone(described))
        }
        Outcome::Cancelled => (FinishedKind::Cancelled, Blob::from([])),
        Outcome::InFile(_) => {
            let why = "its result is a file, which a call by its ticket does not fetch";
            let failure = failure_json(&Failure::Refused(why.into()));
            (FinishedKind::Failure, failure.into_bytes().into())
        }
        Outcome::Failed(_) => (
            FinishedKind::Failure,
            cause_json(outcome).into_bytes().into(),
        ),
    };
    // Fails only once closed, when no thread waits, or beyond a limit that `queued_max` stays below.
    to.push(Finished {
        ticket,
        kind,
        payload,
    });
}
