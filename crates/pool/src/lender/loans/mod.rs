//! Requests, and the answers that need no lease.

use std::os::fd::AsFd;

use super::ledger::BorrowerId;
use super::{Lender, Pending};
use crate::clock::now_ms;
use crate::death::Cause;
use crate::error::{Error, Result};
use crate::limit::{KINDS_MAX, NAME_BYTES_MAX, ROWS_MAX};
use crate::machine;
use crate::wire::Handle;
use crate::wire::shared::{Kind, QuestionId, Reply, Request, STATUS_FIELDS, VERSION};

impl Lender {
    /// Do what a program asks. On an error the program is disconnected.
    pub(super) fn serve(&mut self, program: BorrowerId, request: Request) -> Result<()> {
        match request {
            Request::Ask { ticket, key } => self.ask(program, ticket, key),
            Request::Release { handle, unanswered } => self.release(program, handle, unanswered),
            Request::Leave { ticket } => self.leave(program, ticket),
            Request::Lend { ticket, handle } => self.lend_started(program, ticket, handle),
            Request::Abandon {
                handle,
                unanswered,
                preface_read,
            } => self.abandon(program, handle, unanswered, preface_read),
            Request::Discard { handle, cause } => self.discard(program, handle, cause),
            Request::Overdue { handle } => self.end_overdue(program, handle),
            Request::Death { ticket, handle } => self.look(program, ticket, handle, Pending::Death),
            Request::Output { ticket, handle } => {
                if self.ledger.lease(program, handle).is_some() {
                    self.pool.ask_output(handle)?;
                }
                self.look(program, ticket, handle, Pending::Output)
            }
            Request::Hello { ticket, version } => self.handshake(program, ticket, version),
            Request::Kind { ticket, kind } => {
                self.name_kind(program, ticket, *kind);
                Ok(())
            }
            Request::Status { ticket } => self.status(program, ticket),
            Request::Services { ticket, from } => {
                self.forget_dead_idle()?;
                let (rows, next) = self.ledger.rows(from, ROWS_MAX, now_ms());
                self.reply(program, &Reply::Services { ticket, rows, next }, &[]);
                Ok(())
            }
            Request::Drain { ticket, name } => self.drain(program, ticket, &name),
        }
    }

    /// Remove the services that ended while they were idle.
    pub(super) fn forget_dead_idle(&mut self) -> Result<()> {
        for handle in self.pool.dead_idle()? {
            self.ledger.forget(handle.slot);
        }
        Ok(())
    }

    fn handshake(&mut self, program: BorrowerId, ticket: QuestionId, version: u32) -> Result<()> {
        if version != VERSION {
            let reason = format!(
                "the shared pool speaks version {VERSION} and this program version {version}; \
                 restart forebay serve with the version of Forebay that its programs use"
            );
            self.fail(program, ticket, &reason);
            return Ok(());
        }
        if let Some(connection) = self.connections.get_mut(&program) {
            connection.is_open = true;
        }
        self.status(program, ticket)
    }

    fn name_kind(&mut self, program: BorrowerId, ticket: QuestionId, mut kind: Kind) {
        kind.name.truncate(NAME_BYTES_MAX);
        let known = self.ledger.keys.contains_key(&kind.digest);
        if !known && self.ledger.kinds.len() >= KINDS_MAX {
            let (maximum, value) = (KINDS_MAX as u64, KINDS_MAX as u64 + 1);
            let next =
                "restart forebay serve: it has seen too many classes, arguments and versions";
            let limit = "kinds_max";
            let error = Error::Limit {
                limit,
                maximum,
                value,
                next,
            };
            self.refuse(program, ticket, &error);
            return;
        }
        let key = self.ledger.intern(kind);
        self.reply(program, &Reply::Kind { ticket, key }, &[]);
    }

    fn status(&mut self, program: BorrowerId, ticket: QuestionId) -> Result<()> {
        let stats = self.pool.stats()?;
        let parked: usize = self
            .ledger
            .sessions
            .values()
            .map(|session| session.parked.len())
            .sum();
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let own = self.ledger.sessions.get(&program);
        let fields: [u64; STATUS_FIELDS] = [
            u64::from(std::process::id()),
            u64::from(self.config.max_size),
            count(self.config.leases_max),
            count(self.config.waiters_max),
            u64::from(stats.live),
            count(stats.idle),
            count(stats.settling),
            count(stats.waiters + parked),
            stats.starts,
            stats.leases,
            count(self.ledger.sessions.len()),
            count(own.map_or(0, |session| session.leases.len())),
        ];
        let deaths = self.pool.deaths()?;
        let deaths = deaths
            .into_iter()
            .filter_map(|(name, count)| Some((Cause::from_name(name)?, count)));
        let deaths = deaths.collect();
        let reply = Reply::Status {
            ticket,
            fields,
            deaths,
        };
        self.reply(program, &reply, &[]);
        Ok(())
    }

    /// End the services of a name: idle ones now, the others when they come back.
    fn drain(&mut self, program: BorrowerId, ticket: QuestionId, name: &[u8]) -> Result<()> {
        let kinds = &self.ledger.kinds;
        let mut marked = 0;
        for service in self.ledger.services.values_mut() {
            if name.is_empty() || kinds[service.key as usize].name == name {
                service.retiring = true;
                marked += 1;
            }
        }
        let mut ended = 0;
        for key in 0..u32::try_from(self.ledger.kinds.len()).unwrap_or(u32::MAX) {
            ended += self.end_idle(key)?;
        }
        let reply = Reply::Drained {
            ticket,
            ended,
            marked: marked - ended,
        };
        self.reply(program, &reply, &[]);
        Ok(())
    }

    /// End idle services that are retiring. One with an answer to come is ended by the next lease instead.
    fn end_idle(&mut self, key: machine::Key) -> Result<u32> {
        let mut ended = 0;
        let mut kept = Vec::new();
        while let Some(handle) = self.pool.take(key)? {
            let retiring = self
                .ledger
                .services
                .get(&handle.slot)
                .is_none_or(|service| service.retiring);
            if retiring {
                self.ledger.forget(handle.slot);
                self.pool.discard(handle, Cause::Returned)?;
                ended += 1;
            } else {
                kept.push(handle);
            }
        }
        kept.into_iter()
            .try_for_each(|handle| self.pool.release(handle, None))?;
        Ok(ended)
    }

    /// Whether a start was answered: the service is lent, or how it ended.
    pub(super) fn look_started(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
        starting: bool,
    ) -> Result<bool> {
        let key = self
            .ledger
            .services
            .get(&handle.slot)
            .map_or(0, |service| service.key);
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
                if let Some(lease) = self.ledger.lease(program, handle) {
                    lease.starting = false;
                }
                self.note_process(program, handle.slot, pid);
                self.reply(program, &Reply::Started { ticket, pid }, &[pidfd.as_fd()]);
                return Ok(true);
            }
        }
        self.look_dead(program, ticket, handle)
    }

    /// Whether a service ended, and how.
    pub(super) fn look_dead(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
    ) -> Result<bool> {
        let death = self.pool.death(handle, Some(&self.queue))?;
        let dead = death.is_some();
        if let Some(death) = death {
            self.reply(program, &Reply::Died { ticket, death }, &[]);
        }
        Ok(dead)
    }

    /// Whether the keeper has reported what a service wrote.
    pub(super) fn look_written(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        handle: Handle,
    ) -> Result<bool> {
        let text = self.pool.output(handle, Some(&self.queue))?;
        let answered = text.is_some();
        if let Some(text) = text {
            self.reply(program, &Reply::Output { ticket, text }, &[]);
        }
        Ok(answered)
    }

    pub(super) fn fail(&mut self, program: BorrowerId, ticket: QuestionId, reason: &str) {
        let reason = reason.as_bytes().to_vec();
        self.reply(program, &Reply::Failed { ticket, reason }, &[]);
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
        self.refuse(program, ticket, &error);
    }

    /// Answer why a request is refused.
    pub(super) fn refuse(&mut self, program: BorrowerId, ticket: QuestionId, error: &Error) {
        let (limit, maximum, value, next) = match error {
            Error::Limit {
                limit,
                maximum,
                value,
                next,
            } => (*limit, *maximum, *value, (*next).to_owned()),
            // The program has its own limit: this is the one of the process that lends.
            Error::Descriptors { maximum, twice, .. } => {
                let next = format!(
                    "all of its descriptors are in use: start it with more (ulimit -n {twice}), \
                     or keep fewer services at once"
                );
                let limit = "RLIMIT_NOFILE of forebay serve";
                (limit, *maximum, maximum.saturating_add(1), next)
            }
            other => return self.fail(program, ticket, &other.to_string()),
        };
        let reply = Reply::Refused {
            ticket,
            limit: limit.as_bytes().to_vec(),
            maximum,
            value,
            next: next.into_bytes(),
        };
        self.reply(program, &reply, &[]);
    }
}
