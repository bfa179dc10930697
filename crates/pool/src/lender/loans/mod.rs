//! Lending: the services of the pool, what programs ask for, and what they get.
//!
//! Nothing here waits. The [`ledger`](super::ledger) has the facts, the pool the processes, and
//! [`Borrowers`] the connections; each question is answered at once, or stays in one of the lists below.

mod ask;
mod lease;

use std::num::NonZeroI32;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_base::Queue;
use forebay_base::peer::Peer;

use super::BorrowerId;
use super::borrowers::Borrowers;
use super::events::{EventLog, EventReader};
use super::kinds::Kinds;
use super::ledger::{Ledger, Question};
use super::programs::Programs;
use super::refills::{Refill, Refills};
use super::source::LenderPoll;
use super::{Config, terms_of};
use crate::client::{Client, Policy, WATCH, Wake};
use crate::clock::now_ms;
use crate::death::Cause;
use crate::error::Result;
use crate::limit::{NAME_BYTES_MAX, ROWS_MAX};
use crate::machine;
use crate::wire::Handle;
use crate::wire::shared::{Kind, QuestionId, Reply, Request, STATUS_FIELDS, VERSION};

/// A question that is answered later.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Lend,
    Death,
    Output,
    /// It is answered with what goes beyond so many bytes.
    Follow {
        seen: u64,
    },
}

/// What a program has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Nothing,
    /// A message that expects no answer.
    Notice,
    Question,
}

/// A pool and what of it is lent.
#[derive(Debug)]
pub(super) struct Loans {
    pool: Client,
    config: Config,
    /// Gets the tickets that the pool has granted.
    queue: Arc<Queue<Wake>>,
    ledger: Ledger,
    kinds: Kinds,
    programs: Programs,
    borrowers: Borrowers,
    pending: Vec<(BorrowerId, QuestionId, Handle, Pending)>,
    /// Starts that wait for a keeper.
    starts: Vec<(BorrowerId, QuestionId, Handle)>,
    refills: Refills,
    events: EventLog,
    /// A service may have ended while no program held it.
    unsettled: bool,
}

impl Loans {
    /// A pool of which nothing is lent; `queue` gets the tickets that it grants.
    pub fn new(config: Config, queue: Arc<Queue<Wake>>) -> Result<Self> {
        Ok(Self {
            pool: Client::new(policy_of(config))?,
            config,
            queue,
            ledger: Ledger::new(config.leases_max, config.waiters_max),
            kinds: Kinds::default(),
            programs: Programs::default(),
            borrowers: Borrowers::default(),
            pending: Vec::new(),
            starts: Vec::new(),
            refills: Refills::default(),
            events: EventLog::default(),
            unsettled: false,
        })
    }

    /// The pool, for the caller that starts its keeper.
    pub fn pool(&self) -> &Client {
        &self.pool
    }

    /// End every service, then every connection.
    pub fn close(self, limit_ms: u64) -> Result<()> {
        self.pool.close(limit_ms)
    }

    /// Admit a program.
    pub fn admit(&mut self, poll: &LenderPoll, socket: OwnedFd, peer: Peer) -> Result<()> {
        let pid = peer.pid.map_or(0, NonZeroI32::get);
        if let Some(program) = self.borrowers.connect(poll, socket, pid)? {
            self.ledger.admit(program, pid);
        }
        Ok(())
    }

    /// Receive one message of a program, if there is one, and do what it asks.
    pub fn receive(&mut self, program: BorrowerId) -> Received {
        let Some((request, descriptors)) = self.borrowers.receive(program) else {
            return Received::Nothing;
        };
        let (received, is_new) = match request.question_id() {
            // An answer with the ticket of two questions would be to both.
            Some(ticket) => (Received::Question, !self.is_open(program, ticket)),
            None => (Received::Notice, true),
        };
        if is_new && self.serve(program, request, descriptors).is_ok() {
            return received;
        }
        self.borrowers.disconnect(program);
        Received::Nothing
    }

    /// A program's process has ended.
    pub fn exited(&mut self, program: BorrowerId) {
        self.borrowers.disconnect(program);
    }

    /// End the programs that left in this turn; returns whether there were any.
    pub fn end_disconnected(&mut self) -> bool {
        let mut any = false;
        while let Some(program) = self.borrowers.next_disconnected() {
            self.end(program);
            any = true;
        }
        any
    }

    /// Receive what the keeper reports.
    pub fn drive(&mut self) -> Result<()> {
        self.pool.drive()?;
        self.unsettled = true;
        Ok(())
    }

    /// Remove the services that may have ended while no program held them.
    pub fn settle(&mut self) -> Result<()> {
        if std::mem::take(&mut self.unsettled) {
            self.forget_dead_idle()?;
            self.uncount_dead()?;
        }
        self.join_parked()?;
        while let Some((refill, handle)) = self.refills.next(&self.pool, &self.ledger)? {
            self.grant_start(refill.program, refill.ticket, refill.key, handle)?;
        }
        Ok(())
    }

    /// Whether a start waits for a keeper.
    pub fn wants_keeper(&self) -> bool {
        !self.starts.is_empty()
    }

    /// Whether a question is open.
    pub fn has_questions(&self) -> bool {
        self.ledger.has_questions() || !self.pending.is_empty() || self.events.is_awaited()
    }

    /// When the first question stops waiting for a reset, in monotonic milliseconds.
    pub fn first_hurry_ms(&self) -> Option<u64> {
        self.ledger.first_hurry_ms()
    }

    /// Have services started for questions that have waited long enough for a reset.
    pub fn hurry(&mut self) -> Result<()> {
        if !self.ledger.has_questions() {
            return Ok(());
        }
        let due = self.ledger.take_hurried(now_ms());
        due.into_iter()
            .try_for_each(|ticket| self.pool.hurry(ticket))
    }

    /// Answer the questions that `wakes` names.
    pub fn wake(&mut self, wakes: &mut Vec<Wake>) -> Result<()> {
        let changed = wakes.contains(&WATCH);
        for ticket in wakes.drain(..).filter(|&wake| wake != WATCH) {
            self.granted(ticket)?;
        }
        if changed {
            for (program, ticket, handle, what) in std::mem::take(&mut self.pending) {
                self.look(program, ticket, handle, what)?;
            }
            self.tell_events()?;
        }
        Ok(())
    }

    /// Do what a program asks. On an error the program is disconnected.
    fn serve(
        &mut self,
        program: BorrowerId,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<()> {
        match request {
            Request::Ask { ticket, key, group } => {
                self.ask(Question::new(program, ticket, key, group))
            }
            Request::Release { handle, unanswered } => self.release(program, handle, unanswered),
            Request::Leave { ticket } => self.leave(program, ticket),
            Request::Lend {
                ticket,
                handle,
                report,
            } => {
                self.note_report(program, handle, report);
                self.look(program, ticket, handle, Pending::Lend)
            }
            Request::Launch {
                ticket,
                handle,
                launch,
                port,
                own,
            } => {
                let mut given = descriptors.into_iter();
                let ends = own.then(|| (given.next(), given.next()));
                self.launch(program, ticket, handle, *launch, port, ends)
            }
            Request::Abandon {
                handle,
                unanswered,
                preface_read,
                report,
            } => {
                self.note_report(program, handle, report);
                self.abandon(program, handle, unanswered, preface_read)
            }
            Request::Discard { handle, cause } => self.discard(program, handle, cause),
            Request::Overdue { handle } => self.end_overdue(program, handle),
            Request::Open { handle } => self.open(program, handle),
            Request::ReleaseShared { handle, closed } => {
                self.release_shared(program, handle, closed)
            }
            Request::Death { ticket, handle } => self.look(program, ticket, handle, Pending::Death),
            Request::Output { ticket, handle } => self.ask_output(program, ticket, handle),
            Request::Branch { ticket, handle } => self.branch(program, ticket, handle),
            Request::Follow {
                ticket,
                handle,
                seen,
            } => self.follow(program, ticket, handle, seen),
            Request::Directory { ticket, handle } => self.directory(program, ticket, handle),
            Request::Hello { ticket, version } => self.handshake(program, ticket, version),
            Request::Kind { ticket, kind } => self.name_kind(program, ticket, *kind),
            Request::Status { ticket } => self.status(program, ticket),
            Request::Services { ticket, from } => self.tell_services(program, ticket, from),
            Request::Drain { ticket, name } => self.drain(program, ticket, &name),
            Request::Refill {
                ticket,
                key,
                min_idle,
            } => self.refill(program, ticket, key, min_idle),
            Request::StopRefill { key, .. } => self.refills.stop(&self.pool, program, key),
            Request::Events { ticket, from } => self.events(program, ticket, from),
            Request::StopEvents { .. } => self.events.end(&self.pool, program),
        }
    }

    /// Whether a question of a program waits for its answer.
    fn is_open(&self, program: BorrowerId, ticket: QuestionId) -> bool {
        let mut pending = self.pending.iter();
        self.ledger.is_open(program, ticket)
            || pending.any(|&(who, which, ..)| (who, which) == (program, ticket))
    }

    /// What the program that starts a service has learned of it, for later holders.
    fn note_report(&mut self, program: BorrowerId, handle: Handle, report: Vec<u8>) {
        if self.ledger.is_starting(program, handle) == Some(true) {
            self.programs.report(handle.slot, report);
        }
    }

    fn tell_services(&mut self, program: BorrowerId, ticket: QuestionId, from: u32) -> Result<()> {
        self.forget_dead_idle()?;
        let (rows, next) = self.ledger.rows(&self.kinds, from, ROWS_MAX, now_ms());
        self.borrowers
            .reply(program, &Reply::Services { ticket, rows, next }, &[]);
        Ok(())
    }

    /// A program asks what happens from an event on.
    fn events(&mut self, program: BorrowerId, ticket: QuestionId, from: u64) -> Result<()> {
        let reader = EventReader {
            program,
            ticket,
            from,
        };
        if !self.events.ask(&self.pool, &self.queue, reader)? {
            self.refuse_waiter(program, ticket);
        }
        self.tell_events()
    }

    /// A program keeps so many idle services of a kind ready: it starts the next one that is missing.
    fn refill(
        &mut self,
        program: BorrowerId,
        ticket: QuestionId,
        key: machine::Key,
        min_idle: u32,
    ) -> Result<()> {
        if key >= self.kinds.count() {
            self.borrowers
                .fail(program, ticket, "an unknown kind was asked for");
            return Ok(());
        }
        let refill = Refill {
            program,
            ticket,
            key,
        };
        self.refills.ask(&self.pool, refill, min_idle)
    }

    /// Answer the readers of events for whom there is something.
    fn tell_events(&mut self) -> Result<()> {
        self.events
            .tell(&self.pool, &self.queue, &self.kinds, &mut self.borrowers)
    }

    /// Remove the services that ended while they were idle.
    fn forget_dead_idle(&mut self) -> Result<()> {
        for handle in self.pool.dead_idle()? {
            self.forget(handle.slot);
        }
        Ok(())
    }

    /// A dead service makes room for its holder's next question, though the holder has not noticed yet.
    fn uncount_dead(&mut self) -> Result<()> {
        for (program, handle) in self.ledger.held_by_waiting() {
            if self.pool.death(handle, None)?.is_some() {
                self.ledger.ended(program, handle);
                self.unpark(program)?;
            }
        }
        Ok(())
    }

    /// The service in a slot is gone, or will be: nothing about it is known from now on.
    fn forget(&mut self, slot: u32) {
        self.ledger.forget(slot);
        self.programs.forget(slot);
        self.refills.look_at_all(); // there is room
    }

    fn handshake(&mut self, program: BorrowerId, ticket: QuestionId, version: u32) -> Result<()> {
        if version != VERSION {
            let reason = format!(
                "the shared pool speaks version {VERSION} and this program version {version}; \
                 restart forebay serve with the version of Forebay that its programs use"
            );
            self.borrowers.fail(program, ticket, &reason);
            return Ok(());
        }
        self.borrowers.open(program);
        self.status(program, ticket)
    }

    fn name_kind(&mut self, program: BorrowerId, ticket: QuestionId, mut kind: Kind) -> Result<()> {
        kind.name.truncate(NAME_BYTES_MAX);
        let in_use = |key| self.ledger.has_services(key);
        match self.kinds.intern(program, kind, in_use) {
            Ok(key) => {
                self.pool.share(key, self.kinds.get(key).leases)?;
                let terms = terms_of(&self.config);
                let reply = Reply::Kind { ticket, key, terms };
                self.borrowers.reply(program, &reply, &[]);
            }
            Err(error) => self.borrowers.refuse(program, ticket, &error),
        }
        Ok(())
    }

    fn status(&mut self, program: BorrowerId, ticket: QuestionId) -> Result<()> {
        let stats = self.pool.stats()?;
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let fields: [u64; STATUS_FIELDS] = [
            u64::from(std::process::id()),
            u64::from(self.config.max_size),
            count(self.config.leases_max),
            count(self.config.waiters_max),
            u64::from(stats.live),
            count(stats.idle),
            count(stats.settling),
            count(stats.waiters + self.ledger.parked()),
            stats.starts,
            stats.leases,
            count(self.ledger.programs()),
            count(self.ledger.held_by(program)),
            u64::from(self.config.max_running.min(self.config.max_size)),
            count(stats.leased),
            count(stats.starting),
            stats.waits,
            stats.resets,
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
        self.borrowers.reply(program, &reply, &[]);
        Ok(())
    }

    /// End the services of a name: idle ones now, the others when they come back.
    fn drain(&mut self, program: BorrowerId, ticket: QuestionId, name: &[u8]) -> Result<()> {
        let concerns = |key| name.is_empty() || self.kinds.get(key).name == name;
        let marked = self.ledger.retire(concerns);
        self.pool.close_lent(|slot| self.ledger.is_retiring(slot))?;
        let ended = self.end_retiring()?;
        let reply = Reply::Drained {
            ticket,
            ended,
            marked: marked - ended,
        };
        self.borrowers.reply(program, &reply, &[]);
        Ok(())
    }

    /// End the services that are retiring and not lent.
    fn end_retiring(&mut self) -> Result<u32> {
        let ended = self.pool.end_unlent(|slot| self.ledger.is_retiring(slot))?;
        for &slot in &ended {
            self.forget(slot);
        }
        Ok(u32::try_from(ended.len()).unwrap_or(u32::MAX))
    }
}

/// What the pool itself keeps to.
fn policy_of(config: Config) -> Policy {
    Policy {
        max_size: config.max_size,
        max_running: config.max_running,
        max_uses: config.max_uses,
        lifetime_ms: config.lifetime_ms,
        ping_after_ms: config.ping_after_ms,
    }
}
