//! Calls that the server's main thread answers, forwarded by ticket.

use forebay_base::slots::Key;

use crate::dispatcher::clients::OpenCall;
use crate::dispatcher::clients::answers::plain;
use crate::dispatcher::driver::Driver;
use crate::dispatcher::hash::ByNumber;
use crate::dispatcher::limit::TICKETS_MAX;
use crate::dispatcher::supervisor::protocol::AdminCall;
use crate::error::Refusal;

/// The forwarded calls by ticket.
#[derive(Debug, Default)]
pub struct AdminCalls {
    last: u64,
    calls: ByNumber<u64, (Key, u64)>,
}

impl AdminCalls {
    /// A ticket for a call, unless too many are open.
    fn open(&mut self, client: Key, call: u64) -> Option<u64> {
        if self.calls.len() >= TICKETS_MAX {
            return None;
        }
        self.last += 1;
        self.calls.insert(self.last, (client, call));
        Some(self.last)
    }

    /// Drop a ticket whose caller has left; the answer is dropped when it comes.
    pub fn forget(&mut self, ticket: u64) {
        self.calls.remove(&ticket);
    }
}

impl Driver {
    /// Forward a call to the main thread.
    pub fn forward_to_admin(
        &mut self,
        client: Key,
        call: u64,
        method: &str,
        arguments: &[u8],
    ) -> Result<(), Refusal> {
        let busy = || {
            let limit = TICKETS_MAX as u64;
            Refusal::limit(method, "tickets_max", limit, limit + 1, "ask again later")
        };
        let ticket = self.admin_calls.open(client, call).ok_or_else(busy)?;
        let admin_call = AdminCall {
            ticket,
            method: method.to_owned(),
            arguments: arguments.to_vec(),
        };
        if !self.shared.admin_calls.push(admin_call) {
            self.admin_calls.forget(ticket);
            return Err(busy());
        }
        if let Some(client) = self.clients.get_mut(client) {
            client.open.insert(call, OpenCall::Ticket(ticket));
        }
        Ok(())
    }

    /// Pass the main thread's answer on.
    pub fn answer_ticket(&mut self, ticket: u64, head: Vec<u8>) {
        if let Some((client, call)) = self.admin_calls.calls.remove(&ticket) {
            self.answer(client, call, plain(head));
        }
    }
}
