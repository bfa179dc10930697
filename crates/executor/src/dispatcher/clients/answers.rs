//! Telling clients what became of requests.

use std::sync::Arc;

use crate::dispatcher::clients::Open;
use crate::dispatcher::clients::waiting::{For, Waiter};
use crate::dispatcher::driver::Driver;
use crate::dispatcher::limit::{ANSWER_BYTES_SMALL, UNREAD_RESULTS_PER_CLIENT_MAX};
use crate::dispatcher::poll::Place;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::message::{self, Message};
use crate::request::{Ending, Outcome, Status};

impl Driver {
    /// A call waits for something of a request from now on.
    pub fn wait_for(&mut self, id: RequestId, waiter: Waiter) {
        self.wait_with(id, waiter, None);
    }

    /// The same for a submission, which other calls may name by its token until it is answered.
    pub fn wait_with(&mut self, id: RequestId, waiter: Waiter, token: Option<u64>) {
        if let Some(client) = self.clients.get_mut(waiter.client) {
            client.open.insert(waiter.call, Open::Request(id, token));
            client.tokens.extend(token.map(|token| (token, id)));
            self.waiting.add(id, waiter);
        }
    }

    /// A submission is on disk.
    pub fn tell_accepted(&mut self, id: RequestId) {
        for waiter in self.waiting.accepted(id) {
            self.answer(waiter.client, waiter.call, plain(message::accepted(id)));
        }
    }

    /// The end of a request goes to the disk, where its result stays until those who wait have it.
    pub fn spare_ended(&mut self, id: RequestId, outcome: &Outcome) {
        let told_apart = match outcome {
            Outcome::InFile(_) => true,
            Outcome::Succeeded(result) => result.len() > ANSWER_BYTES_SMALL,
            Outcome::Failed(_) | Outcome::Cancelled => false,
        };
        if told_apart {
            for client in self.waiting.for_end(id) {
                self.spare(client, id);
            }
        }
    }

    /// The end of a request is on disk.
    pub fn tell_ended(&mut self, id: RequestId, ending: &Arc<Ending>) {
        for waiter in self.waiting.ended(id) {
            let answer = match waiter.wants {
                For::End => match &ending.outcome {
                    Outcome::InFile(bytes) => self.in_file(id, ending.status, *bytes),
                    Outcome::Succeeded(result) if !self.sends(waiter.client, result.len()) => {
                        plain(message::ended_without(id, ending.status))
                    }
                    _ => {
                        self.taken(waiter.client, id);
                        message::ended(id, ending)
                    }
                },
                For::Cancelled => plain(message::cancelled("now")),
                For::Accepted => plain(message::accepted(id)),
            };
            self.answer(waiter.client, waiter.call, answer);
        }
    }

    /// Whether a result is sent with the end of its request. One that lies on disk is not where its client has not taken
    /// those before: it asks for it when it is wanted.
    pub fn sends(&mut self, client: Place, bytes: usize) -> bool {
        bytes <= ANSWER_BYTES_SMALL || self.keeping.is_none() || self.clients.takes_results(client)
    }

    /// Who asks for a result that lies in a file is told where: clients are this user's, on this machine. One that
    /// does not see it there, from a container, asks for the whole of it.
    pub fn in_file(&self, id: RequestId, status: Status, bytes: u64) -> Message {
        let keeping = self.keeping.as_ref();
        let path = keeping.map(|keeping| keeping.store.result_path(id));
        message::in_file(id, status, &path.unwrap_or_default(), bytes)
    }

    /// A client may have to come for a result: it stays meanwhile.
    pub fn spare(&mut self, client: Place, id: RequestId) {
        let (Some(keeping), Some(client)) = (&self.keeping, self.clients.get_mut(client)) else {
            return;
        };
        let (unread, all) = (&mut client.unread, keeping.store.unread());
        if unread.contains(&id) {
            return;
        }
        let added = unread.len() < UNREAD_RESULTS_PER_CLIENT_MAX && all.add(id);
        // Where there is no room, its oldest makes some: the oldest go first in any case.
        let oldest = if added { None } else { unread.pop_first() };
        if let Some(oldest) = oldest {
            all.remove(oldest);
        }
        if added || (oldest.is_some() && all.add(id)) {
            unread.insert(id);
        }
    }

    /// A client has a result, or there is none.
    pub fn taken(&mut self, client: Place, id: RequestId) {
        if let (Some(keeping), Some(client)) = (&self.keeping, self.clients.get_mut(client))
            && client.unread.remove(&id)
        {
            keeping.store.unread().remove(id);
        }
    }

    /// A submission could not be written.
    pub fn tell_refused(&mut self, id: RequestId, refusal: &Refusal) {
        for waiter in self.waiting.ended(id) {
            self.taken(waiter.client, id);
            self.refuse(waiter.client, waiter.call, refusal);
        }
    }

    pub fn answer(&mut self, client: Place, call: u64, message: Message) {
        self.clients.answer(client, call, message);
    }

    pub fn refuse(&mut self, client: Place, call: u64, refusal: &Refusal) {
        self.answer(client, call, plain(message::refused(refusal)));
    }

    /// A client is gone, or is to go: its waits end, its requests go on.
    pub fn client_left(&mut self, place: Place) {
        let Some(client) = self.clients.dismiss(&self.poll, place) else {
            return;
        };
        if let Some(keeping) = &self.keeping {
            let unread = keeping.store.unread();
            client.unread.iter().for_each(|id| unread.remove(*id));
        }
        for (call, open) in client.open {
            self.give_up(place, call, open);
        }
    }

    /// Nobody waits for the answer to this call any more.
    pub fn give_up(&mut self, client: Place, call: u64, open: Open) {
        match open {
            Open::Request(id, _) => self.waiting.leave(id, client, call),
            Open::Ticket(ticket) => self.desk.forget(ticket),
            Open::Stored | Open::Fetching | Open::Later => {} // its answer will be dropped
            Open::Stream => self.leave_stream((client, call)),
        }
    }
}

/// A head without a blob beside it.
pub fn plain(head: Vec<u8>) -> Message {
    Message {
        head,
        segment: None,
    }
}
