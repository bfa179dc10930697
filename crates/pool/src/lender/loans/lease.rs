//! Leases: what their programs ask about them, and how they end.

use std::os::fd::AsFd;

use super::{Loans, Pending};
use crate::clock::now_ms;
use crate::death::Cause;
use crate::error::Result;
use crate::lender::BorrowerId;
use crate::lender::ledger::GivenBack;
use crate::wire::Handle;
use crate::wire::shared::{QuestionId, Reply};

impl Loans {
    /// A program gives a service back.
    pub(super) fn release(
        &mut self,
        program: BorrowerId,
        handle: Handle,
        unanswered: u64,
    ) -> Result<()> {
        match self.ledger.give_back(program, handle, unanswered, now_ms()) {
            GivenBack::Stale => return Ok(()),
            GivenBack::Lendable => {
                let reset_ms = (unanswered != 0).then_some(self.config.reset_ms);
                self.pool.release(handle, reset_ms)?;
            }
            GivenBack::Retiring => self.end_service(handle, Cause::Returned)?,
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
        let now = now_ms();
        if !self
            .ledger
            .abandon(program, handle, unanswered, preface_read, now)
        {
            return Ok(());
        }
        if self.ledger.is_retiring(handle.slot) || !self.is_begun(handle.slot) {
            self.end_service(handle, Cause::Discarded)?; // a copy, one that was drained, or one that nobody launched
        } else {
            self.pool.abandon(handle, unanswered == 0)?;
        }
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
            Cause::Returned | Cause::ResetFailed | Cause::Contaminated => cause,
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
        if self.ledger.holds(program, handle) {
            self.pool.end(handle, Cause::CallDeadline)?;
        }
        Ok(())
    }

    /// A service has settled: the callers that it was lent to may share it.
    pub(super) fn open(&mut self, program: BorrowerId, handle: Handle) -> Result<()> {
        if self.ledger.holds(program, handle) {
            self.pool.open(handle)?;
        }
        Ok(())
    }

    /// One of the leases of a service ends; what follows the last one ends that.
    pub(super) fn release_shared(
        &mut self,
        program: BorrowerId,
        handle: Handle,
        closed: bool,
    ) -> Result<()> {
        if self.ledger.holds(program, handle) {
            self.pool.release_shared(handle, closed)?;
        }
        Ok(())
    }

    fn end_service(&mut self, handle: Handle, cause: Cause) -> Result<()> {
        self.forget(handle.slot);
        self.pool.discard(handle, cause)
    }

    /// A program gives up a question; a service that was granted meanwhile goes to the next caller.
    pub(super) fn leave(&mut self, program: BorrowerId, ticket: QuestionId) -> Result<()> {
        self.pending
            .retain(|&(who, which, _, _)| (who, which) != (program, ticket));
        self.refills.leave(program, ticket);
        self.events.leave(program, ticket);
        self.refills.look_at_all(); // nobody may wait any more
        if let Some(asked) = self.ledger.leave(program, ticket) {
            self.pool.leave(asked)?;
        }
        self.take_back(program, ticket)?;
        self.unpark(program)
    }

    /// The answer to a question that was given up may be on its way: the program throws it away.
    fn take_back(&mut self, program: BorrowerId, ticket: QuestionId) -> Result<()> {
        match self.ledger.take_back(program, ticket) {
            // Whether an answer is still to come is unknown, since the program was to read it.
            Some(handle) => self.discard(program, handle, Cause::Discarded),
            None => Ok(()),
        }
    }

    /// A program is gone: end what it held, and grant what it waited for to others.
    pub(super) fn end(&mut self, program: BorrowerId) {
        self.pending.retain(|&(who, _, _, _)| who != program);
        self.refills.end(&self.pool, program);
        let _ = self.events.end(&self.pool, program); // it fails where the pool is closed, which keeps none
        let (asked, held) = self.ledger.remove(program);
        for asked in asked {
            let _ = self.pool.leave(asked); // it fails where the pool is closed, and then it is gone
        }
        for handle in held {
            let _ = self.end_service(handle, Cause::Discarded);
        }
        let left = self.kinds.leave(program);
        if !left.is_empty() {
            self.ledger.retire(|key| left.contains(&key));
            let _ = self.end_retiring(); // it fails where the pool is closed, and then all have ended
        }
    }

    /// Whether the service of a lease is not ready yet; `None` where the lease has ended, which its program is told.
    pub(super) fn expect_held(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
    ) -> Option<bool> {
        let starting = self.ledger.is_starting(program, handle);
        if starting.is_none() {
            self.borrowers.fail(program, ticket, "the lease has ended");
        }
        starting
    }

    /// Answer a question about a lease as soon as it can be.
    pub(super) fn look(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
        what: Pending,
    ) -> Result<()> {
        let Some(starting) = self.expect_held(program, ticket, handle) else {
            return Ok(());
        };
        let answered = match what {
            Pending::Lend => self.look_started(program, ticket, handle, starting)?,
            Pending::Death => self.look_dead(program, ticket, handle)?,
            Pending::Output => self.look_output(program, ticket, handle)?,
            Pending::Follow { seen } => self.look_written(program, ticket, handle, seen)?,
        };
        if answered {
            return Ok(());
        }
        let waiting = self.pending.iter().filter(|&&(who, ..)| who == program);
        if waiting.count() >= self.config.waiters_max {
            self.refuse_waiter(program, ticket);
        } else {
            self.pending.push((program, ticket, handle, what));
        }
        Ok(())
    }

    /// Whether a start was answered: the service is lent, or how it ended.
    fn look_started(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
        starting: bool,
    ) -> Result<bool> {
        let key = self.ledger.key_of(handle.slot).unwrap_or(0);
        if starting && self.pool.lend(handle, key)?.is_some() {
            let given = match self.pool.hand_out(handle) {
                Ok(given) => given,
                Err(error) => {
                    self.withdraw(program, ticket, handle, error);
                    self.unpark(program)?;
                    return Ok(true);
                }
            };
            if let Some((pid, pidfd)) = given.process {
                self.ledger.started(program, handle);
                self.ledger.note_process(program, handle.slot, pid);
                self.borrowers
                    .reply(program, &Reply::Started { ticket, pid }, &[pidfd.as_fd()]);
                return Ok(true);
            }
        }
        self.look_dead(program, ticket, handle)
    }

    /// Whether a service ended, and how.
    fn look_dead(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
    ) -> Result<bool> {
        let death = self.pool.death(handle, Some(&self.queue))?;
        let dead = death.is_some();
        if let Some(death) = death {
            self.borrowers
                .reply(program, &Reply::Died { ticket, death }, &[]);
        }
        Ok(dead)
    }

    /// Whether the keeper has reported what a service wrote.
    fn look_output(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
    ) -> Result<bool> {
        let text = self.pool.output(handle, Some(&self.queue))?;
        let answered = text.is_some();
        if let Some(text) = text {
            self.borrowers
                .reply(program, &Reply::Output { ticket, text }, &[]);
        }
        Ok(answered)
    }

    /// Whether a service wrote more than was seen, or ended.
    fn look_written(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
        seen: u64,
    ) -> Result<bool> {
        let death = self.pool.death(handle, Some(&self.queue))?; // read first: the last output came before the end
        let written = self.pool.written(handle, seen, Some(&self.queue))?;
        let reply = match (written, death) {
            (Some((total, text)), _) => Reply::Written {
                ticket,
                total,
                text,
            },
            (None, Some(death)) => Reply::Died { ticket, death },
            (None, None) => return Ok(false),
        };
        self.borrowers.reply(program, &reply, &[]);
        Ok(true)
    }

    /// Answer what a lent service wrote, once the keeper has reported it; without a keeper its death is the answer.
    pub(super) fn ask_output(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
    ) -> Result<()> {
        if self.ledger.holds(program, handle) {
            let _ = self.pool.ask_output(handle);
        }
        self.look(program, ticket, handle, Pending::Output)
    }

    /// Answer what a lent service writes beyond the bytes that were seen; without a keeper its death is the answer.
    pub(super) fn follow(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
        seen: u64,
    ) -> Result<()> {
        if self.ledger.holds(program, handle) {
            let _ = self.pool.follow(handle, seen);
        }
        self.look(program, ticket, handle, Pending::Follow { seen })
    }

    /// Answer where the directory of a lent service is.
    pub(super) fn directory(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
    ) -> Result<()> {
        if self.expect_held(program, ticket, handle).is_none() {
            return Ok(());
        }
        let path = self.pool.directory(handle)?;
        self.borrowers
            .reply(program, &Reply::Directory { ticket, path }, &[]);
        Ok(())
    }
}
