//! What clients ask, as far as the dispatcher answers it.

use forebay_transport::{Buffer, Call as Received};

use crate::dispatcher::clients::answers::plain;
use crate::dispatcher::clients::streams::What;
use crate::dispatcher::clients::waiting::{For, Waiter};
use crate::dispatcher::commits::keeping::{Asker, Keeping, Late};
use crate::dispatcher::commits::stored::unknown;
use crate::dispatcher::driver::Driver;
use crate::dispatcher::limit::CALLS_PER_CLIENT_MAX;
use crate::dispatcher::poll::Place;
use crate::error::Refusal;
use crate::id::RequestId;
use crate::machine::{Cancelled, Submitted};
use crate::message::{self, Call, Submit};
use crate::request::Submission;
use crate::store::Question;

impl Driver {
    /// Take in a turn's worth of what a client has sent.
    pub fn read_client(&mut self, place: Place) {
        let input = self.clients.receive(place);
        // What changed before a submission was sent is seen before it is taken.
        if self.reloads && !input.calls.is_empty() {
            self.look_at_files();
        }
        let called = !input.calls.is_empty();
        for call in input.calls {
            self.take_call(place, call);
        }
        if called && self.keeping.as_ref().is_some_and(Keeping::is_behind) {
            self.clients.pause(place);
        }
        for call in input.cancelled {
            let client = self.clients.get_mut(place);
            if let Some(open) = client.and_then(|client| client.close(call)) {
                self.give_up(place, call, open);
            }
        }
        for call in input.granted {
            self.pump((place, call));
        }
        if input.over {
            self.client_left(place);
        }
    }

    /// Take in one call.
    pub fn take_call(&mut self, place: Place, received: Received) {
        let Some(client) = self.clients.get_mut(place) else {
            return;
        };
        let call = received.id;
        if let Some(refusal) = client.refusal() {
            return self.refuse(place, call, &refusal);
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
            return self.refuse(place, call, &refusal);
        }
        let segment = received.segments.first().map(Buffer::as_slice);
        let asked = match Call::read(received.head.as_slice(), segment) {
            Ok(asked) => asked,
            Err(error) => {
                let next = "use a client of this version";
                let refusal = Refusal::invalid("a call", "its form", &error.to_string(), next);
                return self.refuse(place, call, &refusal);
            }
        };
        let streams = matches!(asked, Call::Logs { .. } | Call::Events { .. });
        if streams != received.stream {
            let next = "call `logs` and `events` as streams, and nothing else";
            let refusal = Refusal::invalid("a call", "its kind", "another", next);
            return self.refuse(place, call, &refusal);
        }
        // A token names a submission that may be waiting itself.
        let waits = matches!(
            asked,
            Call::Submit(_) | Call::Run(_) | Call::Accepted { .. }
        );
        if waits && self.code.is_loading() {
            return self.code.park(place, received);
        }
        match self.serve(place, call, asked) {
            Ok(()) => {}
            Err(refusal) if streams => self.refuse_stream((place, call), &refusal),
            Err(refusal) => self.refuse(place, call, &refusal),
        }
    }

    fn serve(&mut self, client: Place, call: u64, asked: Call<'_>) -> Result<(), Refusal> {
        let waiter = |wants| Waiter {
            client,
            call,
            wants,
        };
        match asked {
            Call::Submit(submit) => self.submit(&submit, waiter(For::Accepted)),
            Call::Run(submit) => self.submit(&submit, waiter(For::End)),
            Call::Accepted { token } => self.find_token(token, waiter(For::Accepted)),
            Call::Wait { id, whole: false } => self.wait(id, waiter(For::End), Question::Ending),
            Call::Wait { id, whole: true } => self.wait(id, waiter(For::End), Question::Whole),
            Call::Taken { id } => {
                self.taken(client, id);
                self.answer(client, call, plain(message::answered(None)));
                Ok(())
            }
            Call::Cancel { id } => self.cancel(id, waiter(For::Cancelled)),
            Call::Other { method, arguments } => self.ask_server(client, call, method, arguments),
            Call::Logs { id, offset, follow } => {
                self.follow((client, call), id, What::Logs { offset, follow })
            }
            Call::Events { id } => self.follow((client, call), id, What::events()),
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
            .or_else(|refusal| self.ask_for_ends(refusal, submit, waiter))
    }

    /// Give a submission to the machine, and its call what it waits for.
    pub fn enter(
        &mut self,
        mut submission: Submission,
        waiter: Waiter,
        token: Option<u64>,
    ) -> Result<(), Refusal> {
        let bytes = submission.arguments.len();
        let keeping = self.keeping.as_ref();
        let parted = keeping.and_then(|keeping| keeping.part(&mut submission));
        match self
            .machine
            .submit(self.now, submission)
            .map_err(|refusal| *refusal)?
        {
            Submitted::New(id) => {
                if let Some(keeping) = &mut self.keeping {
                    keeping.took(id, bytes, parted);
                }
                self.wait_with(id, waiter, token);
            }
            Submitted::Known(id) if waiter.wants == For::Accepted => self.tell_id(id, waiter),
            // Sent again after its server was killed, it is asked about by its token as before.
            Submitted::Known(id) if self.machine.standing(id).is_some() => {
                self.wait_with(id, waiter, token);
            }
            Submitted::Known(id) => self.wait(id, waiter, Question::Ending)?,
        }
        Ok(())
    }

    /// A submission may come after requests that ended long ago: only the store knows how.
    fn ask_for_ends(
        &mut self,
        refusal: Refusal,
        submit: &Submit<'_>,
        waiter: Waiter,
    ) -> Result<(), Refusal> {
        let submission = self.code.check(submit, self.now)?;
        let mut left = submission.options.after.clone();
        left.retain(|id| self.machine.standing(*id).is_none());
        let (Some(first), Some(keeping), "unknown") = (left.pop(), &mut self.keeping, refusal.code)
        else {
            return Err(refusal);
        };
        let late = Late {
            submission,
            waiter,
            token: submit.token,
            left,
        };
        keeping.ask(first, Question::Ending, Asker::After(Box::new(late)));
        self.clients.owes(waiter.client, waiter.call);
        Ok(())
    }

    /// Tell an id as soon as its row is on disk.
    fn tell_id(&mut self, id: RequestId, waiter: Waiter) {
        let standing = self.machine.standing(id);
        if standing.is_some_and(|standing| !standing.accepted) {
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
        self.tell_id(id, waiter);
        Ok(())
    }

    fn wait(&mut self, id: RequestId, waiter: Waiter, question: Question) -> Result<(), Refusal> {
        self.spare(waiter.client, id); // it may end, and go, before it is told
        if self.machine.standing(id).is_some() {
            self.wait_for(id, waiter);
            return Ok(());
        }
        if self.keeping.is_none() {
            return Err(unknown(id));
        }
        self.clients
            .fetch_later(waiter.client, waiter.call, id, question);
        Ok(())
    }

    /// Ask the store for what a client may be sent now.
    pub fn fetch_more(&mut self, client: Place) {
        let Some(keeping) = &mut self.keeping else {
            return;
        };
        while let Some((call, id, question)) = self.clients.next_fetch(client) {
            let waiter = Waiter {
                client,
                call,
                wants: For::End,
            };
            keeping.ask(id, question, Asker::End(waiter));
        }
    }

    fn cancel(&mut self, id: RequestId, waiter: Waiter) -> Result<(), Refusal> {
        let told = match self.machine.cancel(self.now, id) {
            // Told when it is on disk: until then a restart would run it.
            Cancelled::Now => {
                self.wait_for(id, waiter);
                return Ok(());
            }
            Cancelled::Asked => "asked",
            Cancelled::AlreadyEnded => "ended",
            Cancelled::Unknown => {
                return self.ask_store(id, Question::Ending, Asker::Cancel(waiter), waiter);
            }
        };
        self.answer(waiter.client, waiter.call, plain(message::cancelled(told)));
        Ok(())
    }

    /// What is not unfinished may be in the store.
    fn ask_store(
        &mut self,
        id: RequestId,
        question: Question,
        asker: Asker,
        waiter: Waiter,
    ) -> Result<(), Refusal> {
        let keeping = self.keeping.as_mut().ok_or_else(|| unknown(id))?;
        keeping.ask(id, question, asker);
        self.clients.owes(waiter.client, waiter.call);
        Ok(())
    }
}
