//! From a question to a lease: at once, after a wait, or by a start.

use std::os::fd::AsFd;

use super::ledger::{Asked, BorrowerId, ServiceRecord};
use super::{Lender, Pending};
use crate::client::Answer;
use crate::clock::now_ms;
use crate::death::Cause;
use crate::error::{Error, Result};
use crate::machine;
use crate::wire::shared::{QuestionId, Reply};
use crate::wire::{Deadlines, Handle};

impl Lender {
    /// A program asks for a service.
    pub(super) fn ask(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        key: machine::Key,
    ) -> Result<()> {
        let config = self.config;
        let Some(session) = self.ledger.sessions.get_mut(&program) else {
            return Ok(());
        };
        if key as usize >= self.ledger.kinds.len() {
            self.fail(program, ticket, "an unknown kind was asked for");
            return Ok(());
        }
        if session.leases.len() + session.asked.len() >= config.leases_max {
            if session.waiting() >= config.waiters_max {
                self.refuse_waiter(program, ticket);
            } else {
                session.parked.push_back((ticket, key));
            }
            return Ok(());
        }
        self.ask_pool(program, ticket, key)
    }

    fn ask_pool(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        key: machine::Key,
    ) -> Result<()> {
        while let Some(handle) = self.pool.take(key)? {
            if self.lend(program, ticket, handle)? {
                return Ok(());
            }
        }
        self.unsettled = true; // the pool may end an idle service to make room
        loop {
            match self.pool.ask(key)? {
                Answer::Lent { handle, .. } => {
                    if self.lend(program, ticket, handle)? {
                        return Ok(());
                    }
                }
                Answer::Start { handle } => {
                    return self.grant_start(program, ticket, key, handle);
                }
                Answer::Wait {
                    ticket: asked,
                    grace_ms,
                } => return self.wait_for(program, ticket, key, asked, grace_ms),
            }
        }
    }

    fn wait_for(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        key: machine::Key,
        asked: machine::Ticket,
        grace_ms: u64,
    ) -> Result<()> {
        let Some(session) = self.ledger.sessions.get_mut(&program) else {
            return self.pool.leave(asked);
        };
        if session.waiting() >= self.config.waiters_max {
            self.pool.leave(asked)?;
            self.refuse_waiter(program, ticket);
            return Ok(());
        }
        session.asked.insert(ticket, asked);
        let hurry_ms = (grace_ms > 0).then(|| now_ms() + grace_ms);
        let waiting = Asked {
            program,
            ticket,
            key,
            hurry_ms,
        };
        self.ledger.asked.insert(asked, waiting);
        self.pool.await_on(asked, &self.queue)
    }

    /// The pool has something for a ticket.
    pub(super) fn granted(&mut self, asked: machine::Ticket) -> Result<()> {
        let Some(&Asked {
            program,
            ticket,
            key,
            ..
        }) = self.ledger.asked.get(&asked)
        else {
            return Ok(()); // it left
        };
        let Some(answer) = self.pool.collect(asked)? else {
            return self.pool.await_on(asked, &self.queue);
        };
        self.ledger.answered(asked);
        match answer {
            Answer::Lent { handle, .. } => {
                if !self.lend(program, ticket, handle)? {
                    self.ask_pool(program, ticket, key)?;
                }
            }
            Answer::Start { handle } => self.grant_start(program, ticket, key, handle)?,
            Answer::Wait { .. } => {}
        }
        self.unpark(program) // where it was refused, it has room for the next one
    }

    /// Send a program its lease, or why it gets none; false where the service is not lent any more.
    fn lend(&mut self, program: BorrowerId, ticket: QuestionId, handle: Handle) -> Result<bool> {
        let slot = handle.slot;
        let Some(service) = self
            .ledger
            .services
            .get(&slot)
            .filter(|service| !service.retiring)
        else {
            self.pool.discard(handle, Cause::Returned)?; // drained
            self.ledger.forget(slot);
            return Ok(false);
        };
        let (mut pid, unanswered, preface_read) =
            (service.pid, service.unanswered, service.preface_read);
        let seen = self
            .ledger
            .sessions
            .get(&program)
            .is_some_and(|session| session.seen.contains(&slot));
        let given = if seen {
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
        if let Some(given) = &given {
            descriptors.push(given.socket.as_fd());
            pid = 0;
            if let Some((process, pidfd)) = &given.process {
                pid = *process;
                descriptors.push(pidfd.as_fd());
            }
        }
        self.ledger
            .hold(program, handle, ticket, pid == 0, now_ms());
        if pid != 0 {
            self.note_process(program, slot, pid);
        }
        let reply = Reply::Lent {
            ticket,
            handle,
            pid,
            unanswered,
            preface_read,
        };
        self.reply(program, &reply, &descriptors);
        Ok(true)
    }

    /// A program has the descriptors of a service now.
    pub(super) fn note_process(&mut self, program: BorrowerId, slot: u32, pid: i32) {
        if let Some(service) = self.ledger.services.get_mut(&slot) {
            service.pid = pid;
            service.unanswered = 0; // the program reads that answer before anything else
            service.preface_read = true;
        }
        if let Some(session) = self.ledger.sessions.get_mut(&program)
            && !session.seen.contains(&slot)
        {
            session.seen.push(slot);
        }
    }

    fn grant_start(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        key: machine::Key,
        handle: Handle,
    ) -> Result<()> {
        // Before the slot has a new service: from then on every report about the slot is about that one.
        self.forget_dead_idle()?;
        self.ledger.forget(handle.slot);
        let service = ServiceRecord {
            key,
            pid: 0,
            unanswered: 0,
            preface_read: false,
            retiring: false,
            since_ms: now_ms(),
        };
        self.ledger.services.insert(handle.slot, service);
        self.ledger.hold(program, handle, ticket, true, now_ms());
        self.starts.push((program, ticket, handle));
        Ok(())
    }

    /// Have the granted starts begun; they wait while no keeper runs.
    pub(super) fn begin_starts(&mut self) -> Result<()> {
        // One that fails makes room for the next one that its program asks for, which may be a start again.
        while !self.starts.is_empty() && !self.pool.epoch().is_ok_and(|epoch| epoch == 0) {
            for (program, ticket, handle) in std::mem::take(&mut self.starts) {
                if self.ledger.lease(program, handle).is_some() {
                    self.begin_start(program, ticket, handle)?;
                }
            }
        }
        Ok(())
    }

    fn begin_start(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
    ) -> Result<()> {
        match self.start(handle) {
            Ok(socket) => {
                let reply = Reply::Start { ticket, handle };
                self.reply(program, &reply, &[socket.as_fd()]);
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
        self.ledger.forget(handle.slot);
        let _ = self.pool.discard(handle, Cause::Discarded); // fails where the keeper is lost, and the service with it
        self.refuse(program, ticket, &error.explained());
    }

    fn start(&mut self, handle: Handle) -> Result<std::os::fd::OwnedFd> {
        let service = self.ledger.services.get(&handle.slot);
        let kind = &self.ledger.kinds[service.ok_or(Error::KeeperLost)?.key as usize];
        let deadlines = Deadlines {
            start_ms: self.config.start_ms,
            idle_ms: self.config.idle_ms,
            private_bytes_max: self.config.private_bytes_max,
            limits: kind.limits,
            ..Deadlines::default()
        };
        let Some(&template) = self.ledger.templates.get(&kind.template) else {
            return self
                .pool
                .launch(handle, kind.launch.clone(), deadlines, None);
        };
        let known = (self.pool.epoch()?, template);
        if !self.described.contains(&known) {
            let (launch, setup) = (kind.launch.clone(), kind.setup.clone());
            self.pool
                .describe(template, launch, setup, self.config.spares)?;
            self.described.retain(|&(epoch, _)| epoch == known.0);
            self.described.push(known);
        }
        self.pool.fork(handle, template, deadlines)
    }

    /// The program that starts a service has reported that it is ready.
    pub(super) fn lend_started(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
    ) -> Result<()> {
        self.look(program, ticket, handle, Pending::Lend)
    }

    /// Ask the pool the parked questions of a program, as far as its limit allows.
    pub(super) fn unpark(&mut self, program: BorrowerId) -> Result<()> {
        while let Some(session) = self.ledger.sessions.get_mut(&program) {
            if session.leases.len() + session.asked.len() >= self.config.leases_max {
                break;
            }
            let Some((ticket, key)) = session.parked.pop_front() else {
                break;
            };
            self.ask_pool(program, ticket, key)?;
        }
        Ok(())
    }
}
