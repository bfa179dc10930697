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

use super::Config;
use super::borrowers::Borrowers;
use super::kinds::Kinds;
use super::ledger::{BorrowerId, Ledger};
use super::programs::Programs;
use super::source::LenderPoll;
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
        let received = if request.is_question() {
            Received::Question
        } else {
            Received::Notice
        };
        if self.serve(program, request, descriptors).is_ok() {
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
        }
        Ok(())
    }

    /// Whether a start waits for a keeper.
    pub fn wants_keeper(&self) -> bool {
        !self.starts.is_empty()
    }

    /// Whether a question is open.
    pub fn has_questions(&self) -> bool {
        self.ledger.has_questions() || !self.pending.is_empty()
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
            Request::Ask { ticket, key } => self.ask(program, ticket, key),
            Request::Release { handle, unanswered } => self.release(program, handle, unanswered),
            Request::Leave { ticket } => self.leave(program, ticket),
            Request::Lend {
                ticket,
                handle,
                report,
            } => {
                if self.ledger.is_starting(program, handle) == Some(true) {
                    self.programs.report(handle.slot, report);
                }
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
            } => self.abandon(program, handle, unanswered, preface_read),
            Request::Discard { handle, cause } => self.discard(program, handle, cause),
            Request::Overdue { handle } => self.end_overdue(program, handle),
            Request::Death { ticket, handle } => self.look(program, ticket, handle, Pending::Death),
            Request::Output { ticket, handle } => {
                if self.ledger.holds(program, handle) {
                    self.pool.ask_output(handle)?;
                }
                self.look(program, ticket, handle, Pending::Output)
            }
            Request::Branch { ticket, handle } => self.branch(program, ticket, handle),
            Request::Follow {
                ticket,
                handle,
                seen,
            } => {
                if self.ledger.holds(program, handle) {
                    self.pool.follow(handle, seen)?;
                }
                self.look(program, ticket, handle, Pending::Follow { seen })
            }
            Request::Directory { ticket, handle } => self.directory(program, ticket, handle),
            Request::Hello { ticket, version } => self.handshake(program, ticket, version),
            Request::Kind { ticket, kind } => {
                self.name_kind(program, ticket, *kind);
                Ok(())
            }
            Request::Status { ticket } => self.status(program, ticket),
            Request::Services { ticket, from } => {
                self.forget_dead_idle()?;
                let (rows, next) = self.ledger.rows(&self.kinds, from, ROWS_MAX, now_ms());
                self.borrowers
                    .reply(program, &Reply::Services { ticket, rows, next }, &[]);
                Ok(())
            }
            Request::Drain { ticket, name } => self.drain(program, ticket, &name),
        }
    }

    /// Remove the services that ended while they were idle.
    fn forget_dead_idle(&mut self) -> Result<()> {
        for handle in self.pool.dead_idle()? {
            self.forget(handle.slot);
        }
        Ok(())
    }

    /// The service in a slot is gone, or will be: nothing about it is known from now on.
    fn forget(&mut self, slot: u32) {
        self.ledger.forget(slot);
        self.programs.forget(slot);
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

    fn name_kind(&mut self, program: BorrowerId, ticket: QuestionId, mut kind: Kind) {
        kind.name.truncate(NAME_BYTES_MAX);
        let in_use = |key| self.ledger.has_services(key);
        match self.kinds.intern(program, kind, in_use) {
            Ok(key) => self
                .borrowers
                .reply(program, &Reply::Kind { ticket, key }, &[]),
            Err(error) => self.borrowers.refuse(program, ticket, &error),
        }
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
        let mut ended = 0;
        for key in 0..self.kinds.count() {
            ended += self.end_idle(key)?;
        }
        let reply = Reply::Drained {
            ticket,
            ended,
            marked: marked - ended,
        };
        self.borrowers.reply(program, &reply, &[]);
        Ok(())
    }

    /// End idle services that are retiring. One with an answer to come is ended by the next lease instead.
    fn end_idle(&mut self, key: machine::Key) -> Result<u32> {
        let mut ended = 0;
        let mut kept = Vec::new();
        while let Some(handle) = self.pool.take(key)? {
            if self.ledger.is_retiring(handle.slot) {
                self.forget(handle.slot);
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
}

/// What the pool itself keeps to. A service that was idle for long is not asked whether it answers: only a program could
/// ask it, and the poll before each lease finds what ended.
fn policy_of(config: Config) -> Policy {
    Policy {
        max_size: config.max_size,
        max_running: config.max_running,
        max_uses: config.max_uses,
        lifetime_ms: config.lifetime_ms,
        ping_after_ms: 0,
    }
}
