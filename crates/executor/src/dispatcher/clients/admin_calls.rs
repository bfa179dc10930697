//! Calls that the dispatcher hands on to the server's main thread, by ticket.

use crate::dispatcher::clients::OpenCall;
use crate::dispatcher::clients::answers::plain;
use crate::dispatcher::driver::Driver;
use crate::dispatcher::hash::ByNumber;
use crate::dispatcher::limit::TICKETS_MAX;
use crate::dispatcher::poll::SlotKey;
use crate::dispatcher::supervisor::protocol::AdminCall;
use crate::error::Refusal;

/// Which call is which ticket's.
#[derive(Debug, Default)]
pub struct AdminCalls {
    last: u64,
    calls: ByNumber<u64, (SlotKey, u64)>,
}

impl AdminCalls {
    /// A ticket for a call, unless there are too many.
    fn open(&mut self, client: SlotKey, call: u64) -> Option<u64> {
        if self.calls.len() >= TICKETS_MAX {
            return None;
        }
        self.last += 1;
        self.calls.insert(self.last, (client, call));
        Some(self.last)
    }

    /// The caller has left; the answer will be dropped.
    pub fn forget(&mut self, ticket: u64) {
        self.calls.remove(&ticket);
    }
}

impl Driver {
    /// Hand a call on.
    pub fn forward_to_admin(
        &mut self,
        client: SlotKey,
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

    /// The main thread has answered.
    pub fn answer_ticket(&mut self, ticket: u64, head: Vec<u8>) {
        if let Some((client, call)) = self.admin_calls.calls.remove(&ticket) {
            self.answer(client, call, plain(head));
        }
    }
}
