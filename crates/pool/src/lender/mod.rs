//! One pool, lent to all programs of a user.
//!
//! The *lender* owns an ordinary pool and answers programs on a sequenced-packet socket; the *borrower* is a program's
//! end. What a service is called with never passes through here: a program gets the connected socket of its service,
//! once for each process, and keeps its duplicate, so that lending the same process to it again is one small question
//! and one small answer. One thread, one epoll set, and no Python; who starts a keeper is the caller of [`Lender::run`].
//!
//! [`Lender`] is the loop; [`Acceptor`] accepts programs, [`Loans`] decides what they get and answers them.
//!
//! Invariants, beside those of the [`ledger`]:
//! - what a program held or waited for ends with its process or its connection, whichever ends first;
//! - the lender waits for no program: one that does not read its answers is disconnected, and what it held is ended;
//! - nothing that a program sent is run or unpickled here.

mod acceptor;
pub mod borrower;
mod borrowers;
mod events;
mod kinds;
mod ledger;
mod listener;
mod loans;
#[cfg(test)]
mod model_tests;
mod programs;
mod refills;
mod shared_leases;
mod socket_watch;
mod source;

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::Queue;
use forebay_base::poll::{Poll, Token};
use forebay_base::spin::spin;
use forebay_base::time;

use crate::client::{Client, Wake};
use crate::clock::now_ms;
use crate::error::{Error, Result};
use crate::limit::{LENDER_SPIN, TURN_MESSAGES};
use crate::wire::shared::Terms;
use acceptor::Acceptor;
use loans::{Loans, Received};
use source::{LenderPoll, LenderSource, watch};

/// A program that borrows.
type BorrowerId = u32;

/// What a lender allows, and how long.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Services at once, of all kinds and for all programs.
    pub max_size: u32,
    /// Services lent at once.
    pub max_running: u32,
    /// Leases that one service serves; 0: any number.
    pub max_uses: u32,
    /// How long a service lives, in milliseconds, a tenth more or less; 0: for ever.
    pub lifetime_ms: u64,
    /// Private bytes of a service until it is not lent again; 0: any number.
    pub private_bytes_max: u64,
    /// Processes that each template keeps forked ahead.
    pub spares: u32,
    /// Services that one program may hold at once.
    pub leases_max: usize,
    /// Questions of one program that may wait at once.
    pub waiters_max: usize,
    /// From start to ready, and idle until ended: milliseconds.
    pub start_ms: u64,
    pub idle_ms: u64,
    /// After how long a service is asked whether it answers before it is lent; 0: it is not.
    pub ping_after_ms: u64,
    /// What every program is told: see [`Terms`].
    pub canary_every: u32,
    pub min_idle: u32,
    pub leak_after_ms: u64,
    pub reset_ms: u64,
}

/// What every program is told.
const fn terms_of(config: &Config) -> Terms {
    Terms {
        canary_every: config.canary_every,
        min_idle: config.min_idle,
        leak_after_ms: config.leak_after_ms,
        reset_ms: config.reset_ms,
    }
}

/// Why [`Lender::run`] came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A service is to be started and no keeper runs: start one, attach it, come back.
    Keeper,
    /// The descriptor that was given is readable, or a signal arrived.
    Woken,
    /// A person should read this; then come back.
    Notice(String),
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    /// By an event, or by the time.
    Due,
    /// By a signal.
    Interrupted,
}

/// Tickets that may have been granted and not looked at.
const WAKES_MAX: usize = 1 << 20;

/// A pool and the programs that borrow from it.
#[derive(Debug)]
pub struct Lender {
    poll: LenderPoll,
    queue: Arc<Queue<Wake>>,
    acceptor: Acceptor,
    loans: Loans,
}

impl Lender {
    /// Listen at `path`; `wake` is a descriptor that makes [`Self::run`] come back.
    pub fn new(path: &Path, config: Config, wake: BorrowedFd<'_>) -> Result<Self> {
        let queue = Arc::new(Queue::new(WAKES_MAX)?);
        let loans = Loans::new(config, Arc::clone(&queue))?;
        let mut acceptor = Acceptor::new(path)?;
        let poll = Poll::new().map_err(Error::system("epoll_create1"))?;
        acceptor.watch(&poll)?;
        watch(
            &poll,
            loans.pool().watch()?,
            Token::only(LenderSource::Pool),
        )?;
        watch(&poll, &*queue, Token::only(LenderSource::Granted))?;
        watch(&poll, wake, Token::only(LenderSource::Caller))?;
        Ok(Self {
            poll,
            queue,
            acceptor,
            loans,
        })
    }

    /// The pool, for the caller that starts its keeper.
    pub fn pool(&self) -> &Client {
        self.loans.pool()
    }

    /// Serve until something is to be done outside; never returns otherwise.
    pub fn run(&mut self) -> Result<Turn> {
        let mut active = None;
        loop {
            let busy = active.is_some();
            if let Some((program, last)) = active.take() {
                self.serve_on(program, last)?;
            }
            self.loans.begin_starts()?;
            if self.loans.wants_keeper() {
                return Ok(Turn::Keeper);
            }
            if self.wait(busy)? == Waited::Interrupted {
                return Ok(Turn::Woken);
            }
            self.acceptor.resume_if_due(&self.poll);
            let notice = self.check_socket_file();
            let (mut woken, mut granted) = (false, false);
            let mut index = 0;
            while let Some((token, _)) = self.poll.event(index) {
                index += 1;
                let program = token.key.index;
                match token.kind {
                    LenderSource::Listener => self.accept(),
                    LenderSource::Pool => self.loans.drive()?,
                    LenderSource::Granted => granted = true,
                    LenderSource::Caller => woken = true,
                    LenderSource::ProgramExit => self.loans.exited(program),
                    LenderSource::Program => {
                        let last = self.loans.receive(program);
                        active = Some((program, last));
                    }
                }
            }
            self.catch_up(granted)?;
            if woken {
                return Ok(Turn::Woken);
            }
            if let Some(text) = notice {
                return Ok(Turn::Notice(text));
            }
        }
    }

    /// Receive what the last active program sends next, for a moment, before anything else is served. The program that
    /// was answered may share this core, so it runs first.
    fn serve_on(&mut self, program: BorrowerId, mut last: Received) -> Result<()> {
        for _ in 0..TURN_MESSAGES {
            if last == Received::Question {
                rustix::thread::sched_yield();
            }
            last = self.loans.receive(program);
            if last == Received::Nothing {
                break;
            }
            self.catch_up(false)?;
            if self.loans.wants_keeper() {
                break;
            }
        }
        Ok(())
    }

    /// Lend to the programs that are connected and to no further one, and remove the socket: another lender has its place
    /// from now on.
    pub fn stop_listening(&mut self) {
        self.accept(); // programs that connected before
        self.acceptor.stop(&self.poll);
    }

    /// End every service and every connection, and remove the socket.
    pub fn close(self, limit_ms: u64) -> Result<()> {
        let Self {
            acceptor, loans, ..
        } = self;
        drop(acceptor); // no new programs
        loans.close(limit_ms)
    }

    /// Wait for events; after a busy turn it polls for a moment before it sleeps.
    fn wait(&mut self, busy: bool) -> Result<Waited> {
        let failed = || Error::system("epoll_wait");
        if busy {
            let mut polled = Ok(());
            let due = spin(LENDER_SPIN, || {
                polled = self.poll.wait(Some(Duration::ZERO));
                polled.is_err() || self.poll.event(0).is_some()
            });
            polled.map_err(failed())?;
            if due {
                return Ok(Waited::Due);
            }
        }
        let hurry_ms = self.loans.first_hurry_ms();
        let hurry_ms = hurry_ms.map(|at| at.saturating_sub(now_ms()));
        let paused = self.acceptor.paused_until().map(remaining_ms);
        let look = remaining_ms(self.acceptor.check_due());
        let limit = hurry_ms.into_iter().chain(paused).fold(look, u64::min);
        let end = Instant::now() + Duration::from_millis(limit);
        let left = time::left(Some(end));
        self.poll.wait(left).map_err(failed())?;
        // Nothing before its time is a signal, whose handlers the caller runs.
        let interrupted = self.poll.event(0).is_none() && Instant::now() < end;
        Ok(if interrupted {
            Waited::Interrupted
        } else {
            Waited::Due
        })
    }

    /// Accept the programs in the queue.
    fn accept(&mut self) {
        while let Some((socket, peer)) = self.acceptor.accept(&self.poll) {
            let _ = self.loans.admit(&self.poll, socket, peer); // on failure it sees its end of file
        }
    }

    /// Make the socket again where it was removed; returns the notice for a person.
    fn check_socket_file(&mut self) -> Option<String> {
        if !self.acceptor.is_file_gone() {
            return None;
        }
        self.accept(); // programs that connected before the file was removed
        self.acceptor.listen_again(&self.poll)
    }

    /// Act on the events of a turn.
    fn catch_up(&mut self, granted: bool) -> Result<()> {
        self.end_disconnected();
        self.loans.settle()?;
        if !granted && !self.loans.has_questions() {
            return Ok(()); // no question is open
        }
        let mut wakes = Vec::new();
        loop {
            self.loans.hurry()?;
            self.loans.join_parked()?;
            let drained = self.queue.drain(&mut wakes);
            if wakes.is_empty() || drained.is_err() {
                return Ok(());
            }
            self.loans.wake(&mut wakes)?;
            self.end_disconnected();
        }
    }

    /// End what the programs held that have left; a descriptor may be free for another one.
    fn end_disconnected(&mut self) {
        if self.loans.end_disconnected() {
            self.acceptor.resume(&self.poll);
        }
    }
}

fn remaining_ms(until: Instant) -> u64 {
    let left = until.saturating_duration_since(Instant::now());
    u64::try_from(left.as_millis()).map_or(u64::MAX, |whole| whole + 1)
}
