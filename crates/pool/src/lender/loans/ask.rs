//! From a question to a lease: at once, after a wait, or by a start.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use super::Loans;
use crate::client::Answer;
use crate::clock::now_ms;
use crate::confine::Limits;
use crate::death::Cause;
use crate::error::{Error, Result};
use crate::lender::BorrowerId;
use crate::lender::ledger::{Admission, Asked, Question};
use crate::limit::COPIES_MAX;
use crate::machine;
use crate::wire::shared::{Lent, QuestionId, Reply};
use crate::wire::{Deadlines, Handle, Launch};

impl Loans {
    /// A program asks for a service.
    pub(super) fn ask(&mut self, question: Question) -> Result<()> {
        let Question {
            program,
            ticket,
            key,
            ..
        } = question;
        if key >= self.kinds.count() {
            self.borrowers
                .fail(program, ticket, "an unknown kind was asked for");
            return Ok(());
        }
        // What shares a service is within the limit of what its program holds, and behind what waits because of it.
        if self.kinds.get(key).leases > 1
            && !self.ledger.has_parked(program)
            && let Some(handle) = self.pool.join(key, question.caller_group())?
        {
            self.join(question, handle);
            return Ok(());
        }
        match self.ledger.admit_question(question) {
            Admission::Ask => self.ask_pool(question),
            Admission::Parked => Ok(()),
            Admission::Refused => {
                self.refuse_waiter(program, ticket);
                Ok(())
            }
        }
    }

    fn ask_pool(&mut self, question: Question) -> Result<()> {
        let Question {
            program,
            ticket,
            key,
            ..
        } = question;
        let group = question.caller_group();
        while let Some(handle) = self.pool.take(key, group)? {
            if self.lend(program, ticket, handle, false)? {
                return Ok(());
            }
        }
        self.unsettled = true; // the pool may end an idle service to make room
        loop {
            match self.pool.ask(key, group)? {
                Answer::Lent { handle, quiet, .. } => {
                    if self.lend(program, ticket, handle, quiet)? {
                        return Ok(());
                    }
                }
                Answer::Joined { handle } => {
                    self.join(question, handle);
                    return Ok(());
                }
                Answer::Start { handle } => {
                    return self.grant_start(program, ticket, key, handle);
                }
                Answer::Wait {
                    ticket: asked,
                    grace_ms,
                } => return self.wait_for(question, asked, grace_ms),
            }
        }
    }

    fn wait_for(
        &mut self,
        question: Question,
        asked: machine::Ticket,
        grace_ms: u64,
    ) -> Result<()> {
        let waiting = Asked {
            question,
            hurry_ms: (grace_ms > 0).then(|| now_ms() + grace_ms),
        };
        if !self.ledger.wait(asked, waiting) {
            self.pool.leave(asked)?;
            self.refuse_waiter(question.program, question.ticket);
            return Ok(());
        }
        self.pool.await_on(asked, &self.queue)
    }

    /// The pool has something for a ticket.
    pub(super) fn granted(&mut self, asked: machine::Ticket) -> Result<()> {
        let Some(Asked { question, .. }) = self.ledger.question(asked) else {
            return Ok(()); // it left
        };
        let Question {
            program,
            ticket,
            key,
            ..
        } = question;
        if !self.ledger.knows(program) {
            self.ledger.answered(asked);
            return self.pool.leave(asked); // nobody is there to have it
        }
        let Some(answer) = self.pool.collect(asked)? else {
            return self.pool.await_on(asked, &self.queue);
        };
        self.ledger.answered(asked);
        match answer {
            Answer::Lent { handle, quiet, .. } => {
                if !self.lend(program, ticket, handle, quiet)? {
                    self.ask_pool(question)?;
                }
            }
            Answer::Joined { handle } => self.join(question, handle),
            Answer::Start { handle } => self.grant_start(program, ticket, key, handle)?,
            Answer::Wait { .. } => {}
        }
        self.unpark(program) // where it was refused, it has room for the next one
    }

    /// Tell a program that it shares a service that it holds.
    fn join(&mut self, question: Question, handle: Handle) {
        let Question {
            program,
            ticket,
            key,
            group,
        } = question;
        let reply = Reply::Joined {
            ticket,
            handle,
            key,
            group,
        };
        self.borrowers.reply(program, &reply, &[]);
        self.kinds.note_lease(key);
    }

    /// Let the parked questions share a service, where one has room now.
    pub(in crate::lender) fn join_parked(&mut self) -> Result<()> {
        let mut failed = None;
        let (kinds, pool) = (&self.kinds, &self.pool);
        let joined = self.ledger.unpark_joined(|question| {
            if kinds.get(question.key).leases <= 1 {
                return None;
            }
            let joined = pool.join(question.key, question.caller_group());
            joined.unwrap_or_else(|error| {
                failed = Some(error);
                None
            })
        });
        for (question, handle) in joined {
            self.join(question, handle);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Send a program its lease, or why it gets none; false where the service is not lent any more.
    /// `quiet`: it was idle for so long that it is asked whether it answers.
    fn lend(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
        quiet: bool,
    ) -> Result<bool> {
        let slot = handle.slot;
        let key = self.ledger.key_of(slot).unwrap_or(0);
        let Some(service) = self.ledger.lendable(program, slot) else {
            self.pool.discard(handle, Cause::Returned)?; // drained
            self.forget(slot);
            return Ok(false);
        };
        let mut pid = service.pid;
        let given = if service.seen {
            None
        } else {
            match self.pool.hand_out(handle) {
                Ok(given) => Some(given),
                Err(error) => {
                    self.withdraw(program, ticket, handle, error);
                    return Ok(true);
                }
            }
        };
        let mut descriptors = Vec::new();
        let (mut has_own, mut port, mut report) = (false, 0, Vec::new());
        if let Some(given) = &given {
            descriptors.push(given.socket.as_fd());
            if let Some(known) = self.programs.get(slot) {
                descriptors.extend(known.own());
                has_own = known.own().is_some();
                (port, report) = (known.port, known.report.clone());
            }
            pid = 0;
            if let Some((process, pidfd)) = &given.process {
                pid = *process;
                descriptors.push(pidfd.as_fd());
            }
        }
        self.ledger
            .hold(program, handle, ticket, pid == 0, now_ms());
        if pid != 0 {
            self.ledger.note_process(program, slot, pid);
        }
        let lent = Lent {
            handle,
            pid,
            unanswered: service.unanswered,
            preface_read: service.preface_read,
            changes_hands: service.changes_hands,
            quiet,
            check: self.is_check_due(service.uses + 1),
            has_own,
            port,
            report,
        };
        let reply = Reply::Lent { ticket, lent };
        self.borrowers.reply(program, &reply, &descriptors);
        self.kinds.note_lease(key);
        self.refills.look_at(key);
        Ok(true)
    }

    /// Whether a service is looked at after so many leases for what the last one leaves in it.
    fn is_check_due(&self, uses: u32) -> bool {
        let every = self.config.canary_every;
        every > 0 && uses.is_multiple_of(every)
    }

    pub(super) fn grant_start(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        key: machine::Key,
        handle: Handle,
    ) -> Result<()> {
        // Before the slot has a new service: from then on every report about the slot is about that one.
        self.forget_dead_idle()?;
        self.ledger.begin(handle.slot, key, now_ms());
        self.ledger.hold(program, handle, ticket, true, now_ms());
        self.starts.push((program, ticket, handle));
        Ok(())
    }

    /// Have the granted starts begun; they wait while no keeper runs.
    pub(in crate::lender) fn begin_starts(&mut self) -> Result<()> {
        // One that fails makes room for the next one that its program asks for, which may be a start again.
        while !self.starts.is_empty() && !self.pool.epoch().is_ok_and(|epoch| epoch == 0) {
            for (program, ticket, handle) in std::mem::take(&mut self.starts) {
                if self.ledger.holds(program, handle) {
                    self.begin_start(program, ticket, handle)?;
                }
            }
        }
        self.join_parked() // a start that failed may have been in their way
    }

    fn begin_start(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
    ) -> Result<()> {
        match self.start(handle) {
            Ok(socket) => {
                let socket = socket.as_ref().map(AsFd::as_fd);
                let reply = self.start_reply(ticket, handle);
                self.borrowers.reply(program, &reply, socket.as_slice());
                Ok(())
            }
            Err(error) => {
                self.withdraw(program, ticket, handle, error);
                self.unpark(program)
            }
        }
    }

    /// Tell a program why it does not get what it was granted, and end the service, which frees its descriptors here.
    pub(super) fn withdraw(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
        error: Error,
    ) {
        self.ledger.give_up(program, handle, now_ms());
        self.forget(handle.slot);
        let _ = self.pool.discard(handle, Cause::Discarded); // fails where the keeper is lost, and the service with it
        self.borrowers.refuse(program, ticket, &error.explained());
    }

    /// A program copies a service that it holds: it tells the service to fork.
    pub(super) fn branch(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        parent: Handle,
    ) -> Result<()> {
        if self.expect_held(program, ticket, parent).is_none() {
            return Ok(());
        }
        let key = self.ledger.key_of(parent.slot).unwrap_or(0);
        if self.ledger.copies_of(program) >= COPIES_MAX {
            self.borrowers.refuse(program, ticket, &too_many_copies());
            return Ok(());
        }
        self.forget_dead_idle()?; // as for any start
        let limits = Limits {
            stateful: false, // a copy ends with its lease
            ..self.kinds.get(key).limits
        };
        let deadlines = Deadlines {
            start_ms: self.config.start_ms,
            limits,
            ..Deadlines::default()
        };
        match self.pool.branch(parent, key, deadlines) {
            Ok((handle, socket)) => {
                self.ledger.begin(handle.slot, key, now_ms());
                self.ledger.hold_copy(program, handle, ticket, now_ms());
                let reply = self.start_reply(ticket, handle);
                self.borrowers.reply(program, &reply, &[socket.as_fd()]);
            }
            Err(error) => self.borrowers.refuse(program, ticket, &error.explained()),
        }
        Ok(())
    }

    /// Have the template of a service fork it: its holder's socket. `None` for a program, which its holder launches.
    fn start(&mut self, handle: Handle) -> Result<Option<OwnedFd>> {
        let key = self.ledger.key_of(handle.slot).ok_or(Error::KeeperLost)?;
        let deadlines = self.deadlines(key);
        let kind = self.kinds.get(key);
        let Some(template) = self.kinds.template_of(kind) else {
            return Ok(None);
        };
        let epoch = self.pool.epoch()?;
        if !self.kinds.is_described(epoch, template) {
            let (launch, setup) = (kind.launch.clone(), kind.setup.clone());
            self.pool
                .describe(template, launch, setup, self.config.spares)?;
            self.kinds.note_described(epoch, template);
        }
        self.pool.fork(handle, template, deadlines).map(Some)
    }

    fn deadlines(&self, key: machine::Key) -> Deadlines {
        Deadlines {
            start_ms: self.config.start_ms,
            idle_ms: self.config.idle_ms,
            private_bytes_max: self.config.private_bytes_max,
            limits: self.kinds.get(key).limits,
            ..Deadlines::default()
        }
    }

    /// Start the program that was granted to be started. `ends` are those of its own socket: its, and its holder's.
    pub(super) fn launch(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
        launch: Launch,
        port: u16,
        ends: Option<(Option<OwnedFd>, Option<OwnedFd>)>,
    ) -> Result<()> {
        let Some(starting) = self.expect_held(program, ticket, handle) else {
            return Ok(());
        };
        if !starting || self.is_begun(handle.slot) {
            let reason = "the program was launched before";
            self.borrowers.fail(program, ticket, reason);
            return Ok(());
        }
        let key = self.ledger.key_of(handle.slot).unwrap_or(0);
        let lost = matches!(&ends, Some((None, _) | (_, None))); // this process could not have so many
        let (theirs, own) = ends.unwrap_or_default();
        let theirs = theirs.as_ref().map(AsFd::as_fd);
        let launched = if lost {
            Err(Error::system("recvmsg")(Errno::MFILE))
        } else {
            self.pool
                .launch(handle, launch, self.deadlines(key), theirs)
        };
        match launched {
            Ok(socket) => {
                self.programs.launch(handle.slot, port, own);
                let reply = self.start_reply(ticket, handle);
                self.borrowers.reply(program, &reply, &[socket.as_fd()]);
                Ok(())
            }
            Err(error) => {
                self.withdraw(program, ticket, handle, error);
                self.unpark(program)
            }
        }
    }

    /// Whether the service in a slot was started: a template forks it with the grant, a program is launched by its holder.
    pub(super) fn is_begun(&self, slot: u32) -> bool {
        let key = self.ledger.key_of(slot);
        let forked = key.is_some_and(|key| !self.kinds.get(key).template.is_empty());
        forked || self.programs.get(slot).is_some()
    }

    fn start_reply(&self, ticket: QuestionId, handle: Handle) -> Reply {
        let leases = self.ledger.key_of(handle.slot);
        let leases = leases.map_or(0, |key| self.kinds.leases(key));
        Reply::Start {
            ticket,
            handle,
            leases,
        }
    }

    /// Ask the pool the parked questions of a program, as far as its limit allows.
    pub(super) fn unpark(&mut self, program: BorrowerId) -> Result<()> {
        while let Some(question) = self.ledger.next_parked(program) {
            self.ask_pool(question)?;
        }
        Ok(())
    }

    /// Refuse a question above the limit.
    pub(super) fn refuse_waiter(&mut self, program: BorrowerId, ticket: QuestionId) {
        let maximum = self.config.waiters_max as u64;
        let error = Error::Limit {
            limit: "max_waiters",
            maximum,
            value: maximum + 1,
            next: "let this program ask for fewer at once, or start forebay serve with more: --max-waiters",
        };
        self.borrowers.refuse(program, ticket, &error);
    }
}

fn too_many_copies() -> Error {
    let maximum = COPIES_MAX as u64;
    Error::Limit {
        limit: "copies_max",
        maximum,
        value: maximum + 1,
        next: "end some of the copies that this program has",
    }
}
