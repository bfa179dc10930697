//! Notifies clients of what became of their requests.

use std::sync::Arc;

use forebay_base::slots::Key;

use crate::dispatcher::clients::Clients;
use crate::dispatcher::clients::connections::plain;
use crate::dispatcher::clients::streams::{StreamKey, Topic};
use crate::dispatcher::clients::waiters::{Awaited, Waiter};
use crate::dispatcher::commits::Commits;
use crate::dispatcher::commits::refusals::unreadable;
use crate::dispatcher::context::Context;
use crate::dispatcher::limit::ANSWER_BYTES_SMALL;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::message::{self, Message};
use crate::op::Op;
use crate::request::{Ending, Outcome, Status};
use crate::store::{Fetched, Payload};

/// What the machine has decided.
impl Clients {
    /// Answer the calls that wait for this submission to be on disk.
    pub fn accepted(&mut self, id: RequestId) {
        for waiter in self.waiters.accepted(id) {
            self.answer(waiter, plain(message::accepted(id)));
        }
    }

    /// A change goes to the store.
    pub fn stored(&mut self, commits: &Commits, op: &Op) {
        // Before the store has it: from its commit on, the retention may remove the result.
        if let Op::End { id, ending, .. } = op {
            self.protect_result_of(commits, *id, &ending.outcome);
        }
    }

    /// Keep a result from the retention until the clients that wait for it have read it.
    fn protect_result_of(&mut self, commits: &Commits, id: RequestId, outcome: &Outcome) {
        let is_separate = match outcome {
            Outcome::InFile(_) => true,
            Outcome::Succeeded(result) => result.len() > ANSWER_BYTES_SMALL,
            Outcome::Failed(_) | Outcome::Cancelled => false,
        };
        if is_separate {
            for client in self.waiters.for_end(id) {
                self.protect_result(commits, client, id);
            }
        }
    }

    /// Answer the calls that wait for this end, which is on disk.
    pub fn ended(&mut self, commits: &Commits, id: RequestId, ending: &Arc<Ending>) {
        for waiter in self.waiters.ended(id) {
            let answer = match waiter.wants {
                Awaited::End => match &ending.outcome {
                    Outcome::InFile(bytes) => in_file(commits, id, ending.status, *bytes),
                    Outcome::Succeeded(result)
                        if !self.sends(commits, waiter.client, result.len()) =>
                    {
                        plain(message::ended_without(id, ending.status))
                    }
                    _ => {
                        self.result_read(commits, waiter.client, id);
                        message::ended(id, ending)
                    }
                },
                Awaited::Cancelled => plain(message::cancelled("now")),
                Awaited::Accepted => plain(message::accepted(id)),
            };
            self.answer(waiter, answer);
        }
    }

    /// Whether a result is sent with the end of its request. A large one is not while its client has earlier ones
    /// unread: it is on disk, and the client fetches it when it wants it.
    fn sends(&mut self, commits: &Commits, client: Key, bytes: usize) -> bool {
        bytes <= ANSWER_BYTES_SMALL
            || !commits.has_store()
            || self.connections.takes_results(client)
    }

    /// Answer the calls of a submission that could not be written, and end the streams about it.
    pub fn refused(
        &mut self,
        cx: &mut Context,
        commits: &Commits,
        id: RequestId,
        refusal: &Refusal,
    ) {
        self.end_logs(cx, id);
        for waiter in self.waiters.ended(id) {
            self.result_read(commits, waiter.client, id);
            self.refuse(waiter, refusal);
        }
    }
}

/// What the store has found.
impl Clients {
    /// Answer a call that waits for an end which the store was asked for.
    pub fn found(&mut self, commits: &Commits, id: RequestId, waiter: Waiter, found: Fetched) {
        self.connections.fetched(waiter.client);
        self.answer_found(commits, id, waiter, found);
    }

    /// Answer a call that cancels a request which is not unfinished.
    pub fn found_to_cancel(
        &mut self,
        commits: &Commits,
        id: RequestId,
        waiter: Waiter,
        found: Fetched,
    ) {
        match found {
            Fetched::Ending(_) => self.answer(waiter, plain(message::cancelled("ended"))),
            other => self.answer_found(commits, id, waiter, other),
        }
    }

    /// Begin a stream about a request that has ended, or refuse one about no request.
    pub fn found_to_follow(
        &mut self,
        cx: &mut Context,
        stream: (StreamKey, Topic),
        id: RequestId,
        found: &Fetched,
    ) {
        self.following
            .follow_ended(&mut self.connections, &mut cx.feed, stream, id, found);
    }

    fn answer_found(&mut self, commits: &Commits, id: RequestId, waiter: Waiter, found: Fetched) {
        match found {
            Fetched::Ending(ending) => {
                if !matches!(ending.payload, Payload::File(_)) {
                    self.result_read(commits, waiter.client, id); // of a file it says so itself
                }
                let reply = match ending.payload {
                    Payload::Result(result) => message::stood(id, ending.status, result),
                    Payload::File(bytes) => in_file(commits, id, ending.status, bytes),
                    Payload::Failure(json) => {
                        message::stood(id, ending.status, json.into_bytes().into())
                    }
                };
                self.answer(waiter, reply);
            }
            Fetched::Failed(why) => self.refuse(waiter, &unreadable(id, &why)),
            _ => {
                let refusal = commits.missing(id);
                self.result_read(commits, waiter.client, id);
                self.refuse(waiter, &refusal);
            }
        }
    }
}

/// For the calls.
impl Clients {
    pub(super) fn answer(&mut self, waiter: Waiter, message: Message) {
        self.connections.answer(waiter.client, waiter.call, message);
    }

    pub(super) fn refuse(&mut self, waiter: Waiter, refusal: &Refusal) {
        self.connections.refuse(waiter.client, waiter.call, refusal);
    }

    /// Keep a result from the retention, since this client may still fetch it.
    pub(super) fn protect_result(&mut self, commits: &Commits, client: Key, id: RequestId) {
        if let Some(unread) = commits.unread() {
            self.connections.protect_result(client, id, unread);
        }
    }

    /// A client has a result, or there is none.
    pub(super) fn result_read(&mut self, commits: &Commits, client: Key, id: RequestId) {
        if let Some(unread) = commits.unread() {
            self.connections.result_read(client, id, unread);
        }
    }
}

/// Answer with the path of a result's file: clients run as this user on this machine. A client that cannot see the
/// path, such as one in a container, asks for the whole result instead.
fn in_file(commits: &Commits, id: RequestId, status: Status, bytes: u64) -> Message {
    message::in_file(id, status, &commits.result_path(id), bytes)
}
