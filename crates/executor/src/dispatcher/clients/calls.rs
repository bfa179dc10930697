//! The calls of clients that the dispatcher itself answers.

use std::sync::Arc;

use forebay_base::slots::Key;
use forebay_transport::Buffer;
use forebay_transport::calls::Call as Received;

use crate::dispatcher::audit::AuditLine;
use crate::dispatcher::clients::Clients;
use crate::dispatcher::clients::actor::{Actor, not_the_gateway};
use crate::dispatcher::clients::connections::plain;
use crate::dispatcher::clients::streams::{StreamKey, Topic};
use crate::dispatcher::clients::waiters::{Awaited, Waiter};
use crate::dispatcher::commits::Commits;
use crate::dispatcher::commits::purpose::{LateSubmission, Purpose};
use crate::dispatcher::commits::refusals::unknown;
use crate::dispatcher::context::Context;
use crate::dispatcher::limit::CALLS_PER_CLIENT_MAX;
use crate::dispatcher::reload::Reload;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::machine::{Cancelled, Submitted};
use crate::message::{self, Call, PROTOCOL, Submit};
use crate::op::Act;
use crate::request::Submission;
use crate::store::{Fetched, Question};

impl Clients {
    /// Take in one call.
    pub(super) fn take_call(
        &mut self,
        cx: &mut Context,
        commits: &mut Commits,
        reload: &mut Reload,
        key: Key,
        received: Received,
    ) {
        let Some(client) = self.connections.get_mut(key) else {
            return;
        };
        let call = received.id;
        if let Some(refusal) = client.refusal() {
            return self.refuse_call(cx, (key, call), received.stream, &refusal);
        }
        let open = client.open_calls();
        if open >= CALLS_PER_CLIENT_MAX {
            let limit = CALLS_PER_CLIENT_MAX as u64;
            let next = "wait for some answers, or use another connection";
            let refusal = Refusal::limit(
                "a client",
                "calls_per_client_max",
                limit,
                open as u64 + 1,
                next,
            );
            return self.refuse_call(cx, (key, call), received.stream, &refusal);
        }
        let segment = received.segments.first().map(Buffer::as_slice);
        let (asked, by) = match Call::read_for(received.head.as_slice(), segment) {
            Ok(asked) => asked,
            Err(error) => {
                let next = "use a client of this version";
                let refusal = Refusal::invalid("a call", "its form", &error.to_string(), next);
                return self.refuse_call(cx, (key, call), received.stream, &refusal);
            }
        };
        let streams = matches!(
            asked,
            Call::Logs { .. } | Call::Events { .. } | Call::Feed { .. } | Call::Items { .. }
        );
        if streams != received.stream {
            let next = "call `logs`, `events`, `feed` and `items` as streams, and nothing else";
            let refusal = Refusal::invalid("a call", "its kind", "another", next);
            return self.refuse_call(cx, (key, call), received.stream, &refusal);
        }
        // A submission token may name a submission that is parked itself.
        let waits = matches!(
            asked,
            Call::Submit(_) | Call::Run(_) | Call::Accepted { .. }
        );
        if waits && reload.code().is_loading() {
            return reload.park(key, received);
        }
        let served = match self.actor(key, by) {
            Ok(by) => self.serve(cx, commits, reload, (key, call), asked, by),
            Err(refusal) => Err(refusal),
        };
        match served {
            Ok(()) => {}
            Err(refusal) => {
                if let Call::Submit(submit) | Call::Run(submit) = asked {
                    cx.submission_refused(submit.name, &refusal);
                }
                self.refuse_call(cx, (key, call), streams, &refusal);
            }
        }
    }

    fn refuse_call(
        &mut self,
        cx: &mut Context,
        (key, call): StreamKey,
        is_stream: bool,
        refusal: &Refusal,
    ) {
        if is_stream {
            self.following
                .refuse(&mut self.connections, &mut cx.feed, (key, call), refusal);
        } else {
            self.connections.refuse(key, call, refusal);
        }
    }

    fn serve(
        &mut self,
        cx: &mut Context,
        commits: &mut Commits,
        reload: &Reload,
        (client, call): (Key, u64),
        asked: Call<'_>,
        by: Actor<'_>,
    ) -> Result<(), Refusal> {
        let waiter = |wants| Waiter {
            client,
            call,
            wants,
        };
        match asked {
            Call::Hello { protocol } => {
                self.connections.greet(client, protocol)?;
                let ours = message::protocol(PROTOCOL);
                self.connections.answer(client, call, plain(ours));
                Ok(())
            }
            Call::Submit(submit) => {
                self.submit(cx, commits, reload, &submit, waiter(Awaited::Accepted), by)
            }
            Call::Run(submit) => {
                self.submit(cx, commits, reload, &submit, waiter(Awaited::End), by)
            }
            Call::Accepted { token } => self.find_token(cx, token, waiter(Awaited::Accepted)),
            Call::Wait { id, whole } => {
                let question = if whole {
                    Question::Whole
                } else {
                    Question::Ending
                };
                self.wait(cx, commits, id, waiter(Awaited::End), question)
            }
            Call::Taken { id } => {
                self.result_read(commits, client, id);
                self.connections
                    .answer(client, call, plain(message::answered(None)));
                Ok(())
            }
            Call::Cancel { id } => self.cancel(cx, commits, id, waiter(Awaited::Cancelled), by),
            Call::Other { method, arguments } => {
                let mailbox = &cx.shared.admin_calls;
                let (call, asked) = ((client, call), (method, arguments));
                self.admin_calls
                    .forward(&mut self.connections, mailbox, call, asked, by.name())
            }
            Call::Logs { .. } | Call::Events { .. } | Call::Items { .. } => {
                let Some((id, topic)) = topic_of(asked) else {
                    return Ok(());
                };
                self.follow(cx, commits, (client, call), id, topic)
            }
            Call::Feed { filter, cursor } => {
                let filter = message::filter(filter)?;
                let key = (client, call);
                self.following
                    .read(&mut self.connections, &mut cx.feed, key, filter, cursor)
            }
        }
    }

    fn submit(
        &mut self,
        cx: &mut Context,
        commits: &mut Commits,
        reload: &Reload,
        submit: &Submit<'_>,
        waiter: Waiter,
        by: Actor<'_>,
    ) -> Result<(), Refusal> {
        let bytes = submit.arguments.len();
        if bytes > self.arguments_bytes_max {
            let next = "put large data into a file, and submit its path";
            let (limit, value) = (self.arguments_bytes_max as u64, bytes as u64);
            return Err(Refusal::limit(
                submit.name,
                "max_argument_bytes",
                limit,
                value,
                next,
            ));
        }
        let now = cx.now;
        let checked = || {
            reload
                .code()
                .check(submit, now)
                .and_then(|it| by.signed(it))
        };
        let submission = reload.code().sealed(&cx.secrets, checked()?)?;
        let Err(refusal) = self.enter(cx, commits, submission, waiter, submit.token) else {
            return Ok(());
        };
        if refusal.code != "unknown" {
            return Err(refusal); // no request before it is what was missing: it need not be sealed again
        }
        let submission = reload.code().sealed(&cx.secrets, checked()?)?;
        self.fetch_predecessors(cx, commits, refusal, submission, (waiter, submit.token))
    }

    /// Give a submission to the machine, and register what its call waits for.
    fn enter(
        &mut self,
        cx: &mut Context,
        commits: &mut Commits,
        submission: Submission,
        waiter: Waiter,
        token: Option<u64>,
    ) -> Result<(), Refusal> {
        let signed = submission.options.by.clone();
        let signed = signed.map(|by| (by, Arc::clone(&submission.name)));
        match commits.submit(cx, submission).map_err(|refusal| *refusal)? {
            Submitted::New(id) => {
                if let Some((by, name)) = signed {
                    self.audit_act(cx, "submit", by, id, name);
                }
                self.wait_with(id, waiter, token);
            }
            Submitted::Known(id) if waiter.wants == Awaited::Accepted => {
                self.answer_id(cx, id, waiter);
            }
            // A client that sends it again after its server was killed asks for it by its submission token as before.
            Submitted::Known(id) if cx.machine.view(id).is_some() => {
                self.wait_with(id, waiter, token);
            }
            Submitted::Known(id) => self.wait(cx, commits, id, waiter, Question::Ending)?,
        }
        Ok(())
    }

    /// Fetch how the requests ended that a submission comes after. The machine remembers the latest ends; only the
    /// store has those of long ago.
    fn fetch_predecessors(
        &mut self,
        cx: &Context,
        commits: &mut Commits,
        refusal: Refusal,
        submission: Submission,
        (waiter, token): (Waiter, Option<u64>),
    ) -> Result<(), Refusal> {
        let mut left = submission.options.after.clone();
        left.retain(|id| cx.machine.view(*id).is_none());
        let (Some(first), true) = (left.pop(), commits.has_store()) else {
            return Err(refusal);
        };
        let late = LateSubmission {
            submission,
            waiter,
            token,
            left,
        };
        commits.fetch(first, Question::Ending, Purpose::After(Box::new(late)));
        self.connections.await_store(waiter.client, waiter.call);
        Ok(())
    }

    /// Take in how one predecessor of a submission ended, then fetch the next or submit.
    pub fn submit_late(
        &mut self,
        cx: &mut Context,
        commits: &mut Commits,
        mut late: LateSubmission,
        id: RequestId,
        found: &Fetched,
    ) {
        if let Fetched::Ending(ending) = found {
            cx.machine.remember(id, ending.status);
        }
        if let Some(next) = late.left.pop() {
            commits.fetch(next, Question::Ending, Purpose::After(Box::new(late)));
            return;
        }
        let waiter = late.waiter;
        let name = Arc::clone(&late.submission.name);
        if let Err(refusal) = self.enter(cx, commits, late.submission, waiter, late.token) {
            cx.submission_refused(&name, &refusal);
            self.refuse(waiter, &refusal);
        }
    }

    /// Answer with an id as soon as its row is on disk.
    fn answer_id(&mut self, cx: &Context, id: RequestId, waiter: Waiter) {
        let view = cx.machine.view(id);
        if view.is_some_and(|view| !view.accepted) {
            self.wait_with(id, waiter, None);
        } else {
            self.answer(waiter, plain(message::accepted(id)));
        }
    }

    fn find_token(&mut self, cx: &Context, token: u64, waiter: Waiter) -> Result<(), Refusal> {
        let client = self.connections.get_mut(waiter.client);
        let known = client.and_then(|client| client.submitted(token));
        let id = known.ok_or_else(|| {
            let next = "it was answered already, or came by another connection";
            Refusal::unknown("submission with the token", &token.to_string(), next)
        })?;
        if cx.machine.view(id).is_none() {
            // It has ended or was refused in this turn: the machine's action, which follows, answers this call too.
            self.wait_with(id, waiter, None);
        } else {
            self.answer_id(cx, id, waiter);
        }
        Ok(())
    }

    fn wait(
        &mut self,
        cx: &Context,
        commits: &Commits,
        id: RequestId,
        waiter: Waiter,
        question: Question,
    ) -> Result<(), Refusal> {
        // The retention may remove it before the answer is sent.
        self.protect_result(commits, waiter.client, id);
        if cx.machine.view(id).is_some() {
            self.wait_with(id, waiter, None);
            return Ok(());
        }
        if !commits.has_store() {
            return Err(unknown(id));
        }
        self.connections
            .fetch_later(waiter.client, waiter.call, id, question);
        Ok(())
    }

    /// Ask the store for the answers that a client can take now.
    pub(super) fn fetch_more(&mut self, commits: &mut Commits, client: Key) {
        while let Some((call, id, question)) = self.connections.next_fetch(client) {
            let waiter = Waiter {
                client,
                call,
                wants: Awaited::End,
            };
            commits.fetch(id, question, Purpose::End(waiter));
        }
    }

    fn cancel(
        &mut self,
        cx: &mut Context,
        commits: &mut Commits,
        id: RequestId,
        waiter: Waiter,
        by: Actor<'_>,
    ) -> Result<(), Refusal> {
        let cancelled = cx.machine.cancel(cx.now, id);
        if matches!(cancelled, Cancelled::Now | Cancelled::Asked) && cx.machine.first_cancel(id) {
            self.note_cancel(cx, id, by.name());
        }
        let how = match cancelled {
            // Answered once the end is on disk: until then a restart would run the request.
            Cancelled::Now => {
                self.wait_with(id, waiter, None);
                return Ok(());
            }
            Cancelled::Asked => "asked",
            Cancelled::AlreadyEnded => "ended",
            Cancelled::Unknown => {
                let call = (waiter.client, waiter.call);
                return self.ask_store(commits, id, Purpose::Cancel(waiter), call);
            }
        };
        self.answer(waiter, plain(message::cancelled(how)));
        Ok(())
    }

    /// Keep who has cancelled a request, with it and in the audit log.
    fn note_cancel(&mut self, cx: &mut Context, id: RequestId, by: Arc<str>) {
        let request = cx.machine.request(id);
        let name = request.map(|request| Arc::clone(&request.submission.name));
        cx.machine.acted(cx.now, id, Act::Cancel, Arc::clone(&by));
        self.audit_act(cx, "cancel", by, id, name.unwrap_or_default());
    }

    fn audit_act(
        &mut self,
        cx: &Context,
        act: &'static str,
        by: Arc<str>,
        id: RequestId,
        object: Arc<str>,
    ) {
        self.audit(AuditLine {
            at: cx.now,
            act: act.into(),
            by,
            id: Some(id),
            object,
        });
    }

    /// Who makes a call.
    ///
    /// # Errors
    /// `forbidden`: it says for whom, and is not the gateway.
    fn actor<'a>(&self, client: Key, by: Option<&'a str>) -> Result<Actor<'a>, Refusal> {
        match by {
            _ if self.connections.is_gateway(client) => Ok(Actor::Gateway(by)),
            None => Ok(Actor::User),
            Some(name) => Err(not_the_gateway(name)),
        }
    }

    /// Begin a stream about a request.
    fn follow(
        &mut self,
        cx: &mut Context,
        commits: &mut Commits,
        key: StreamKey,
        id: RequestId,
        topic: Topic,
    ) -> Result<(), Refusal> {
        let Some(view) = cx.machine.view(id) else {
            return self.ask_store(commits, id, Purpose::Follow(key, topic), key);
        };
        self.following
            .follow(&mut self.connections, cx, (key, topic), id, view);
        Ok(())
    }

    /// Ask the store how a request ended that is not unfinished.
    fn ask_store(
        &mut self,
        commits: &mut Commits,
        id: RequestId,
        purpose: Purpose,
        (client, call): (Key, u64),
    ) -> Result<(), Refusal> {
        if !commits.fetch(id, Question::Ending, purpose) {
            return Err(unknown(id));
        }
        self.connections.await_store(client, call);
        Ok(())
    }

    /// Let a call wait for an event of a request. Other calls may name a submission by its token until it is answered.
    fn wait_with(&mut self, id: RequestId, waiter: Waiter, token: Option<u64>) {
        if let Some(client) = self.connections.get_mut(waiter.client) {
            client.await_request(waiter.call, id, token);
            self.waiters.add(id, waiter);
        }
    }
}

/// What a call follows of which request.
fn topic_of(asked: Call<'_>) -> Option<(RequestId, Topic)> {
    Some(match asked {
        Call::Logs { id, offset, follow } => (id, Topic::Logs { offset, follow }),
        Call::Events { id, cursor } => {
            // No event has the number 0: who names it had none.
            let cursor = cursor.filter(|number| *number > 0);
            (id, Topic::Events { cursor })
        }
        Call::Items {
            id,
            epoch,
            after,
            follow,
        } => {
            let topic = Topic::Items {
                epoch,
                after,
                follow,
            };
            (id, topic)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::action::Action;
    use crate::dispatcher::poll::Poll;
    use crate::dispatcher::supervisor::shared::Shared;
    use crate::feed::{Feed, FeedBounds};
    use crate::machine::{Machine, Policy};
    use crate::request::Options;
    use crate::secret::Secrets;

    fn context() -> Context {
        Context {
            poll: Poll::new().expect("an epoll"),
            now: 1,
            machine: Machine::new(Policy::default(), 1),
            feed: Feed::new(1, FeedBounds::default()),
            shared: Arc::new(Shared::new().expect("queues")),
            secrets: Secrets::default(),
        }
    }

    #[test]
    fn a_submission_that_was_refused_in_this_turn_does_not_count_as_accepted() {
        let mut cx = context();
        let mut clients = Clients::new((None, None), None, usize::MAX);
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let client = clients.connections.add(&cx.poll, ours.into(), None);
        let client = client.expect("a client");
        let waiter = |call, wants| Waiter {
            client,
            call,
            wants,
        };
        let submission = Submission {
            name: Arc::from("work"),
            code: Arc::from("code"),
            submitter: Arc::from(""),
            arguments: Vec::new().into(),
            options: Arc::new(Options::default()),
        };
        let Ok(Submitted::New(id)) = cx.machine.submit(cx.now, submission) else {
            panic!("it was not taken");
        };
        let (run, accepted) = (waiter(1, Awaited::End), waiter(2, Awaited::Accepted));
        clients.wait_with(id, run, Some(7));
        let given = cx.machine.actions().count();
        cx.machine
            .not_committed(cx.now, given, "the disk is full", false);
        // The client asks before the driver has performed the refusal.
        assert!(clients.find_token(&cx, 7, accepted).is_ok());
        let mut actions = cx.machine.actions();
        assert!(actions.any(|action| matches!(action, Action::Refused(one, _) if one == id)));
        assert_eq!(clients.waiters.ended(id), [run, accepted]);
    }
}
