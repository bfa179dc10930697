//! The end of leases, questions and programs.

use super::ledger::BorrowerId;
use super::{Lender, Pending};
use crate::clock::now_ms;
use crate::death::Cause;
use crate::error::Result;
use crate::wire::Handle;
use crate::wire::shared::QuestionId;

impl Lender {
    /// A program gives a service back.
    pub(super) fn release(
        &mut self,
        program: BorrowerId,
        handle: Handle,
        unanswered: u64,
    ) -> Result<()> {
        if !self.ledger.give_up(program, handle, now_ms()) {
            return Ok(());
        }
        let service = self.ledger.services.get_mut(&handle.slot);
        match service.filter(|service| !service.retiring) {
            Some(service) => {
                service.unanswered = unanswered;
                let reset_ms = (unanswered != 0).then_some(self.config.reset_ms);
                self.pool.release(handle, reset_ms)?;
            }
            None => self.end_service(handle, Cause::Returned)?, // drained while it was lent
        }
        self.unpark(program)
    }

    /// A program leaves a start to the next caller.
    pub(super) fn abandon(
        &mut self,
        program: BorrowerId,
        handle: Handle,
        unanswered: u64,
        preface_read: bool,
    ) -> Result<()> {
        if !self.ledger.give_up(program, handle, now_ms()) {
            return Ok(());
        }
        if let Some(session) = self.ledger.sessions.get_mut(&program) {
            session.seen.retain(|&seen| seen != handle.slot);
        }
        if let Some(service) = self.ledger.services.get_mut(&handle.slot) {
            (service.unanswered, service.preface_read) = (unanswered, preface_read);
        }
        self.pool.abandon(handle, unanswered == 0)?;
        self.unpark(program)
    }

    /// A program has a service ended, for one of the causes that a program may give.
    pub(super) fn discard(
        &mut self,
        program: BorrowerId,
        handle: Handle,
        cause: Cause,
    ) -> Result<()> {
        let cause = match cause {
            Cause::Returned | Cause::ResetFailed => cause,
            _ => Cause::Discarded,
        };
        if self.ledger.give_up(program, handle, now_ms()) {
            self.end_service(handle, cause)?;
            self.unpark(program)?;
        }
        Ok(())
    }

    /// A call took longer than the limits of its service allow: it ends, and its holder keeps the lease.
    pub(super) fn end_overdue(&mut self, program: BorrowerId, handle: Handle) -> Result<()> {
        match self.ledger.lease(program, handle) {
            Some(_) => self.pool.end(handle, Cause::CallDeadline),
            None => Ok(()),
        }
    }

    fn end_service(&mut self, handle: Handle, cause: Cause) -> Result<()> {
        self.ledger.forget(handle.slot);
        self.pool.discard(handle, cause)
    }

    /// A program gives up a question; a service that was granted meanwhile goes to the next caller.
    pub(super) fn leave(&mut self, program: BorrowerId, ticket: QuestionId) -> Result<()> {
        self.pending
            .retain(|&(who, which, _, _)| (who, which) != (program, ticket));
        let Some(session) = self.ledger.sessions.get_mut(&program) else {
            return Ok(());
        };
        session.parked.retain(|&(parked, _)| parked != ticket);
        if let Some(&asked) = session.asked.get(&ticket) {
            self.ledger.answered(asked);
            self.pool.leave(asked)?;
        }
        self.take_back(program, ticket)?;
        self.unpark(program)
    }

    /// The answer to a question that was given up may be on its way: the program throws it away.
    fn take_back(&mut self, program: BorrowerId, ticket: QuestionId) -> Result<()> {
        let Some(session) = self.ledger.sessions.get_mut(&program) else {
            return Ok(());
        };
        let granted = session
            .leases
            .iter()
            .find(|(_, lease)| lease.ticket == ticket);
        let Some((&slot, lease)) = granted else {
            return Ok(());
        };
        let generation = lease.generation;
        session.seen.retain(|&seen| seen != slot);
        // Whether an answer is still to come is unknown, since the program was to read it.
        self.discard(program, Handle { slot, generation }, Cause::Discarded)
    }

    /// A program is gone: end what it held, and grant what it waited for to others.
    pub(super) fn end(&mut self, program: BorrowerId) {
        self.connections.remove(&program);
        self.resume_accepting();
        self.pending.retain(|&(who, _, _, _)| who != program);
        let Some(session) = self.ledger.sessions.remove(&program) else {
            return;
        };
        for asked in session.asked.into_values() {
            self.ledger.asked.remove(&asked);
            let _ = self.pool.leave(asked); // it fails where the pool is closed, and then it is gone
        }
        for (slot, lease) in session.leases {
            let generation = lease.generation;
            let _ = self.end_service(Handle { slot, generation }, Cause::Discarded);
        }
    }

    /// Answer a question about a lease as soon as it can be.
    pub(super) fn look(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
        what: Pending,
    ) -> Result<()> {
        let Some(&mut lease) = self.ledger.lease(program, handle) else {
            self.fail(program, ticket, "the lease has ended");
            return Ok(());
        };
        let answered = match what {
            Pending::Lend => self.look_started(program, ticket, handle, lease.starting)?,
            Pending::Death => self.look_dead(program, ticket, handle)?,
            Pending::Output => self.look_written(program, ticket, handle)?,
        };
        if !answered {
            self.pending.push((program, ticket, handle, what));
        }
        Ok(())
    }
}
