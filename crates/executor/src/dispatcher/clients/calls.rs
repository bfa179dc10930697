//! The calls of clients that the dispatcher itself answers.

use forebay_base::slots::Key;
use forebay_transport::Buffer;
use forebay_transport::calls::Call as Received;

use crate::dispatcher::clients::answers::plain;
use crate::dispatcher::clients::streams::StreamKind;
use crate::dispatcher::clients::waiters::{Awaited, Waiter};
use crate::dispatcher::commits::pending_writes::{LateSubmission, PendingWrites, Purpose};
use crate::dispatcher::commits::store_answers::unknown;
use crate::dispatcher::driver::Driver;
use crate::dispatcher::limit::CALLS_PER_CLIENT_MAX;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::machine::{Cancelled, Submitted};
use crate::message::{self, Call, Submit};
use crate::request::Submission;
use crate::store::Question;

impl Driver {
    /// Take in a turn's worth of a client's input.
    pub fn read_client(&mut self, key: Key) {
        let input = self.clients.receive(key);
        // A source change that preceded a submission must be noticed before the submission is accepted.
        if self.reloads && !input.calls.is_empty() {
            self.check_source_files();
        }
        let called = !input.calls.is_empty();
        for call in input.calls {
            self.take_call(key, call);
        }
        // After the calls, which were read already: back-pressure applies to the next ones.
        if called && self.pending.as_ref().is_some_and(PendingWrites::is_behind) {
            self.clients.pause(key);
        }
        for call in input.cancelled {
            let client = self.clients.get_mut(key);
            if let Some(open) = client.and_then(|client| client.close(call)) {
                self.abandon(key, call, open);
            }
        }
        for call in input.granted {
            self.pump((key, call));
        }
        if input.over {
            self.client_left(key);
        }
    }

    /// Take in one call.
    pub fn take_call(&mut self, key: Key, received: Received) {
        let Some(client) = self.clients.get_mut(key) else {
            return;
        };
        let call = received.id;
        if let Some(refusal) = client.refusal() {
            return self.refuse(key, call, &refusal);
        }
        let open = client.open.len();
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
            return self.refuse(key, call, &refusal);
        }
        let segment = received.segments.first().map(Buffer::as_slice);
        let asked = match Call::read(received.head.as_slice(), segment) {
            Ok(asked) => asked,
            Err(error) => {
                let next = "use a client of this version";
                let refusal = Refusal::invalid("a call", "its form", &error.to_string(), next);
                return self.refuse(key, call, &refusal);
            }
        };
        let streams = matches!(asked, Call::Logs { .. } | Call::Events { .. });
        if streams != received.stream {
            let next = "call `logs` and `events` as streams, and nothing else";
            let refusal = Refusal::invalid("a call", "its kind", "another", next);
            return self.refuse(key, call, &refusal);
        }
        // A submission token may name a submission that is parked itself.
        let waits = matches!(
            asked,
            Call::Submit(_) | Call::Run(_) | Call::Accepted { .. }
        );
        if waits && self.code.is_loading() {
            return self.code.park(key, received);
        }
        match self.serve(key, call, asked) {
            Ok(()) => {}
            Err(refusal) if streams => self.refuse_stream((key, call), &refusal),
            Err(refusal) => self.refuse(key, call, &refusal),
        }
    }

    fn serve(&mut self, client: Key, call: u64, asked: Call<'_>) -> Result<(), Refusal> {
        let waiter = |wants| Waiter {
            client,
            call,
            wants,
        };
        match asked {
            Call::Submit(submit) => self.submit(&submit, waiter(Awaited::Accepted)),
            Call::Run(submit) => self.submit(&submit, waiter(Awaited::End)),
            Call::Accepted { token } => self.find_token(token, waiter(Awaited::Accepted)),
            Call::Wait { id, whole: false } => {
                self.wait(id, waiter(Awaited::End), Question::Ending)
            }
            Call::Wait { id, whole: true } => self.wait(id, waiter(Awaited::End), Question::Whole),
            Call::Taken { id } => {
                self.result_read(client, id);
                self.answer(client, call, plain(message::answered(None)));
                Ok(())
            }
            Call::Cancel { id } => self.cancel(id, waiter(Awaited::Cancelled)),
            Call::Other { method, arguments } => {
                self.forward_to_admin(client, call, method, arguments)
            }
            Call::Logs { id, offset, follow } => {
                self.follow((client, call), id, StreamKind::Logs { offset, follow })
            }
            Call::Events { id } => self.follow((client, call), id, StreamKind::events()),
        }
    }

    fn submit(&mut self, submit: &Submit<'_>, waiter: Waiter) -> Result<(), Refusal> {
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
        let submission = self.code.check(submit, self.now)?;
        self.enter(submission, waiter, submit.token)
            .or_else(|refusal| self.fetch_predecessors(refusal, submit, waiter))
    }

    /// Give a submission to the machine, and register what its call waits for.
    pub fn enter(
        &mut self,
        mut submission: Submission,
        waiter: Waiter,
        token: Option<u64>,
    ) -> Result<(), Refusal> {
        let bytes = submission.arguments.len();
        let pending = self.pending.as_ref();
        let detached = pending.and_then(|pending| pending.detach_arguments(&mut submission));
        match self
            .machine
            .submit(self.now, submission)
            .map_err(|refusal| *refusal)?
        {
            Submitted::New(id) => {
                if let Some(pending) = &mut self.pending {
                    pending.track_arguments(id, bytes, detached);
                }
                self.wait_with(id, waiter, token);
            }
            Submitted::Known(id) if waiter.wants == Awaited::Accepted => self.answer_id(id, waiter),
            // A client that sends it again after its server was killed asks for it by its submission token as before.
            Submitted::Known(id) if self.machine.view(id).is_some() => {
                self.wait_with(id, waiter, token);
            }
            Submitted::Known(id) => self.wait(id, waiter, Question::Ending)?,
        }
        Ok(())
    }

    /// Fetch how the requests ended that a submission comes after. The machine remembers the latest ends; only the
    /// store has those of long ago.
    fn fetch_predecessors(
        &mut self,
        refusal: Refusal,
        submit: &Submit<'_>,
        waiter: Waiter,
    ) -> Result<(), Refusal> {
        let submission = self.code.check(submit, self.now)?;
        let mut left = submission.options.after.clone();
        left.retain(|id| self.machine.view(*id).is_none());
        let (Some(first), Some(pending), "unknown") = (left.pop(), &mut self.pending, refusal.code)
        else {
            return Err(refusal);
        };
        let late = LateSubmission {
            submission,
            waiter,
            token: submit.token,
            left,
        };
        pending.fetch(first, Question::Ending, Purpose::After(Box::new(late)));
        self.clients.await_store(waiter.client, waiter.call);
        Ok(())
    }

    /// Answer with an id as soon as its row is on disk.
    fn answer_id(&mut self, id: RequestId, waiter: Waiter) {
        let view = self.machine.view(id);
        if view.is_some_and(|view| !view.accepted) {
            self.wait_for(id, waiter);
        } else {
            self.answer(waiter.client, waiter.call, plain(message::accepted(id)));
        }
    }

    fn find_token(&mut self, token: u64, waiter: Waiter) -> Result<(), Refusal> {
        let client = self.clients.get_mut(waiter.client);
        let known = client.and_then(|client| client.tokens.get(&token).copied());
        let id = known.ok_or_else(|| {
            let next = "it was answered already, or came by another connection";
            Refusal::unknown("submission with the token", &token.to_string(), next)
        })?;
        self.answer_id(id, waiter);
        Ok(())
    }

    fn wait(&mut self, id: RequestId, waiter: Waiter, question: Question) -> Result<(), Refusal> {
        self.spare(waiter.client, id); // the retention may remove it before the answer is sent
        if self.machine.view(id).is_some() {
            self.wait_for(id, waiter);
            return Ok(());
        }
        if self.pending.is_none() {
            return Err(unknown(id));
        }
        self.clients
            .fetch_later(waiter.client, waiter.call, id, question);
        Ok(())
    }

    /// Ask the store for the answers that a client can take now.
    pub fn fetch_more(&mut self, client: Key) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        while let Some((call, id, question)) = self.clients.next_fetch(client) {
            let waiter = Waiter {
                client,
                call,
                wants: Awaited::End,
            };
            pending.fetch(id, question, Purpose::End(waiter));
        }
    }

    fn cancel(&mut self, id: RequestId, waiter: Waiter) -> Result<(), Refusal> {
        let how = match self.machine.cancel(self.now, id) {
            // Answered once the end is on disk: until then a restart would run the request.
            Cancelled::Now => {
                self.wait_for(id, waiter);
                return Ok(());
            }
            Cancelled::Asked => "asked",
            Cancelled::AlreadyEnded => "ended",
            Cancelled::Unknown => {
                return self.ask_store(id, Question::Ending, Purpose::Cancel(waiter), waiter);
            }
        };
        self.answer(waiter.client, waiter.call, plain(message::cancelled(how)));
        Ok(())
    }

    /// Ask the store about a request that is not unfinished.
    fn ask_store(
        &mut self,
        id: RequestId,
        question: Question,
        purpose: Purpose,
        waiter: Waiter,
    ) -> Result<(), Refusal> {
        let pending = self.pending.as_mut().ok_or_else(|| unknown(id))?;
        pending.fetch(id, question, purpose);
        self.clients.await_store(waiter.client, waiter.call);
        Ok(())
    }
}
