//! Calls that the dispatcher hands on to the server's main thread, by ticket.

use crate::dispatcher::clients::Open;
use crate::dispatcher::clients::answers::plain;
use crate::dispatcher::driver::Driver;
use crate::dispatcher::hash::ByNumber;
use crate::dispatcher::limit::TICKETS_MAX;
use crate::dispatcher::poll::Place;
use crate::dispatcher::supervisor::command::Asked;
use crate::error::Refusal;

/// Which call is which ticket's.
#[derive(Debug, Default)]
pub struct Desk {
    last: u64,
    calls: ByNumber<u64, (Place, u64)>,
}

impl Desk {
    /// A ticket for a call, unless there are too many.
    fn open(&mut self, client: Place, call: u64) -> Option<u64> {
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
    pub fn ask_server(
        &mut self,
        client: Place,
        call: u64,
        method: &str,
        arguments: &[u8],
    ) -> Result<(), Refusal> {
        let busy = || {
            let limit = TICKETS_MAX as u64;
            Refusal::limit(method, "tickets_max", limit, limit + 1, "ask again later")
        };
        let ticket = self.desk.open(client, call).ok_or_else(busy)?;
        let asked = Asked {
            ticket,
            method: method.to_owned(),
            arguments: arguments.to_vec(),
        };
        if !self.shared.asked.push(asked) {
            self.desk.forget(ticket);
            return Err(busy());
        }
        if let Some(client) = self.clients.get_mut(client) {
            client.open.insert(call, Open::Ticket(ticket));
        }
        Ok(())
    }

    /// The main thread has answered.
    pub fn answer_ticket(&mut self, ticket: u64, head: Vec<u8>) {
        if let Some((client, call)) = self.desk.calls.remove(&ticket) {
            self.answer(client, call, plain(head));
        }
    }
}
