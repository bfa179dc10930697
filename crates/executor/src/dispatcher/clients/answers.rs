//! Notifies clients of what became of their requests.

use std::sync::Arc;

use forebay_base::slots::Key;

use crate::dispatcher::clients::OpenCall;
use crate::dispatcher::clients::waiters::{Awaited, Waiter};
use crate::dispatcher::driver::Driver;
use crate::dispatcher::limit::{ANSWER_BYTES_SMALL, UNREAD_RESULTS_PER_CLIENT_MAX};
use crate::error::Refusal;
use crate::id::RequestId;
use crate::message::{self, Message};
use crate::request::{Ending, Outcome, Status};

impl Driver {
    /// Let a call wait for an event of a request.
    pub fn wait_for(&mut self, id: RequestId, waiter: Waiter) {
        self.wait_with(id, waiter, None);
    }

    /// The same for a submission, which other calls may name by its submission token until it is answered.
    pub fn wait_with(&mut self, id: RequestId, waiter: Waiter, token: Option<u64>) {
        if let Some(client) = self.clients.get_mut(waiter.client) {
            client
                .open
                .insert(waiter.call, OpenCall::Request(id, token));
            client.tokens.extend(token.map(|token| (token, id)));
            self.waiters.add(id, waiter);
        }
    }

    /// Answer the calls that wait for this submission to be on disk.
    pub fn notify_accepted(&mut self, id: RequestId) {
        for waiter in self.waiters.accepted(id) {
            self.answer(waiter.client, waiter.call, plain(message::accepted(id)));
        }
    }

    /// Before an end is written: keep its result from the retention until the clients that wait for it have read it.
    pub fn protect_result_of(&mut self, id: RequestId, outcome: &Outcome) {
        let is_separate = match outcome {
            Outcome::InFile(_) => true,
            Outcome::Succeeded(result) => result.len() > ANSWER_BYTES_SMALL,
            Outcome::Failed(_) | Outcome::Cancelled => false,
        };
        if is_separate {
            for client in self.waiters.for_end(id) {
                self.spare(client, id);
            }
        }
    }

    /// Answer the calls that wait for this end, which is on disk.
    pub fn notify_ended(&mut self, id: RequestId, ending: &Arc<Ending>) {
        for waiter in self.waiters.ended(id) {
            let answer = match waiter.wants {
                Awaited::End => match &ending.outcome {
                    Outcome::InFile(bytes) => self.in_file(id, ending.status, *bytes),
                    Outcome::Succeeded(result) if !self.sends(waiter.client, result.len()) => {
                        plain(message::ended_without(id, ending.status))
                    }
                    _ => {
                        self.result_read(waiter.client, id);
                        message::ended(id, ending)
                    }
                },
                Awaited::Cancelled => plain(message::cancelled("now")),
                Awaited::Accepted => plain(message::accepted(id)),
            };
            self.answer(waiter.client, waiter.call, answer);
        }
    }

    /// Whether a result is sent with the end of its request. A large one is not while its client has earlier ones
    /// unread: it is on disk, and the client fetches it when it wants it.
    pub fn sends(&mut self, client: Key, bytes: usize) -> bool {
        bytes <= ANSWER_BYTES_SMALL || self.pending.is_none() || self.clients.takes_results(client)
    }

    /// Answer with the path of a result's file: clients run as this user on this machine. A client that cannot see the
    /// path, such as one in a container, asks for the whole result instead.
    pub fn in_file(&self, id: RequestId, status: Status, bytes: u64) -> Message {
        let pending = self.pending.as_ref();
        let path = pending.map(|pending| pending.store.result_path(id));
        message::in_file(id, status, &path.unwrap_or_default(), bytes)
    }

    /// Keep a result from the retention, since this client may still fetch it.
    pub fn spare(&mut self, client: Key, id: RequestId) {
        let (Some(pending), Some(client)) = (&self.pending, self.clients.get_mut(client)) else {
            return;
        };
        let (unread, all) = (&mut client.unread, pending.store.unread());
        if unread.contains(&id) {
            return;
        }
        let added = unread.len() < UNREAD_RESULTS_PER_CLIENT_MAX && all.add(id);
        // At the limit its oldest makes room: the retention removes the oldest first in any case.
        let oldest = if added { None } else { unread.pop_first() };
        if let Some(oldest) = oldest {
            all.remove(oldest);
        }
        if added || (oldest.is_some() && all.add(id)) {
            unread.insert(id);
        }
    }

    /// A client has a result, or there is none.
    pub fn result_read(&mut self, client: Key, id: RequestId) {
        if let (Some(pending), Some(client)) = (&self.pending, self.clients.get_mut(client))
            && client.unread.remove(&id)
        {
            pending.store.unread().remove(id);
        }
    }

    /// Answer the calls of a submission that could not be written.
    pub fn notify_refused(&mut self, id: RequestId, refusal: &Refusal) {
        for waiter in self.waiters.ended(id) {
            self.result_read(waiter.client, id);
            self.refuse(waiter.client, waiter.call, refusal);
        }
    }

    pub fn answer(&mut self, client: Key, call: u64, message: Message) {
        self.clients.answer(client, call, message);
    }

    pub fn refuse(&mut self, client: Key, call: u64, refusal: &Refusal) {
        self.answer(client, call, plain(message::refused(refusal)));
    }

    /// Remove a client that has gone or is to be disconnected: its calls end, its requests continue.
    pub fn client_left(&mut self, key: Key) {
        let Some(client) = self.clients.remove(&self.poll, key) else {
            return;
        };
        if let Some(pending) = &self.pending {
            let unread = pending.store.unread();
            client.unread.iter().for_each(|id| unread.remove(*id));
        }
        for (call, open) in client.open {
            self.abandon(key, call, open);
        }
    }

    /// Drop what an abandoned call waits for.
    pub fn abandon(&mut self, client: Key, call: u64, open: OpenCall) {
        match open {
            OpenCall::Request(id, _) => self.waiters.leave(id, client, call),
            OpenCall::Ticket(ticket) => self.admin_calls.forget(ticket),
            OpenCall::Stored | OpenCall::Fetching | OpenCall::Later => {} // its answer is dropped when it comes
            OpenCall::Stream => self.leave_stream((client, call)),
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
