//! Calls that the server's main thread answers, forwarded by ticket.

use std::sync::Arc;

use forebay_base::slots::Key;

use crate::dispatcher::clients::connections::{Connections, OpenCall};
use crate::dispatcher::limit::TICKETS_MAX;
use crate::dispatcher::supervisor::mailbox::Mailbox;
use crate::dispatcher::supervisor::protocol::AdminCall;
use crate::error::Refusal;
use crate::hash::ByNumber;

/// The forwarded calls by ticket.
#[derive(Debug, Default)]
pub struct AdminCalls {
    last: u64,
    calls: ByNumber<u64, (Key, u64)>,
}

impl AdminCalls {
    /// Forward a call to the main thread.
    ///
    /// # Errors
    /// Too many are open.
    pub fn forward(
        &mut self,
        connections: &mut Connections,
        mailbox: &Mailbox<AdminCall>,
        (client, call): (Key, u64),
        (method, arguments): (&str, &[u8]),
        by: Arc<str>,
    ) -> Result<(), Refusal> {
        let busy = || {
            let limit = TICKETS_MAX as u64;
            Refusal::limit(method, "tickets_max", limit, limit + 1, "ask again later")
        };
        let ticket = self.open(client, call).ok_or_else(busy)?;
        let admin_call = AdminCall {
            ticket,
            method: method.to_owned(),
            arguments: arguments.to_vec(),
            by,
        };
        if !mailbox.push(admin_call) {
            self.forget(ticket);
            return Err(busy());
        }
        if let Some(client) = connections.get_mut(client) {
            client.open(call, OpenCall::Ticket(ticket));
        }
        Ok(())
    }

    /// The call of a ticket, which the main thread has answered.
    pub fn take(&mut self, ticket: u64) -> Option<(Key, u64)> {
        self.calls.remove(&ticket)
    }

    /// Drop a ticket whose caller has left; the answer is dropped when it comes.
    pub fn forget(&mut self, ticket: u64) {
        self.calls.remove(&ticket);
    }

    /// A ticket for a call, unless too many are open.
    fn open(&mut self, client: Key, call: u64) -> Option<u64> {
        if self.calls.len() >= TICKETS_MAX {
            return None;
        }
        self.last += 1;
        self.calls.insert(self.last, (client, call));
        Some(self.last)
    }
}
