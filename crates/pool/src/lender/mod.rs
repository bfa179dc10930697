//! One pool, lent to all programs of a user.
//!
//! The *lender* owns an ordinary pool and answers programs on a sequenced-packet socket; the *borrower* is a program's
//! end. What a service is called with never passes through here: a program gets the connected socket of its service,
//! once for each process, and keeps its duplicate, so that lending the same process to it again is one small question
//! and one small answer. One thread, one epoll set, and no Python; who starts a keeper is the caller of [`Lender::run`].
//!
//! Invariants, beside those of the [`ledger`]:
//! - what a program held or waited for ends with its process or its connection, whichever ends first;
//! - the lender waits for no program: one that does not read its answers is disconnected, and what it held is ended;
//! - nothing that a program sent is run or unpickled here.

mod ask;
pub mod borrower;
mod lease;
pub mod ledger;
pub mod listener;
mod requests;
mod socket_watch;
mod source;

use std::collections::BTreeMap;
use std::num::NonZeroI32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::Queue;
use forebay_base::peer::Peer;
use forebay_base::poll::{Poll, Ready, Token};
use forebay_base::spin::spin;
use forebay_base::time;
use forebay_base::unix::ExclusiveListener;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::client::{Client, Policy, WATCH, Wake};
use crate::clock::now_ms;
use crate::control::{self, Receiver};
use crate::error::{Error, Result};
use crate::limit::{ACCEPT_PAUSE_MS, BORROWERS_MAX, LENDER_SPIN, TURN_MESSAGES};
use crate::machine;
use crate::wire::Handle;
use crate::wire::shared::{QuestionId, Reply, Request};
use ledger::{BorrowerId, Ledger, Session};
use listener::listen;
use socket_watch::SocketWatch;
use source::{LenderSource, token_of};

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
    /// From start to ready, idle until ended, from reset to answer: milliseconds.
    pub start_ms: u64,
    pub idle_ms: u64,
    pub reset_ms: u64,
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

/// A question that is answered later.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Lend,
    Death,
    Output,
}

/// What a program has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    Nothing,
    /// A message that expects no answer.
    Notice,
    Question,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    /// By an event, or by the time.
    Due,
    /// By a signal.
    Interrupted,
}

/// A program's connection.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    /// Its process: a child that it forked may hold its socket open for longer.
    _process: Option<OwnedFd>,
    /// The handshake is done: the program has named the version that it speaks.
    is_open: bool,
}

/// Tickets that may have been granted and not looked at.
const WAKES_MAX: usize = 1 << 20;

/// A pool and the programs that borrow from it.
#[derive(Debug)]
pub struct Lender {
    pool: Client,
    config: Config,
    listener: ExclusiveListener,
    poller: Poll<LenderSource>,
    queue: Arc<Queue<Wake>>,
    receiver: Receiver,
    ledger: Ledger,
    connections: BTreeMap<BorrowerId, Connection>,
    next_program: BorrowerId,
    /// Programs to disconnect at the end of this turn.
    to_disconnect: Vec<BorrowerId>,
    pending: Vec<(BorrowerId, QuestionId, Handle, Pending)>,
    /// Starts that wait for a keeper.
    starts: Vec<(BorrowerId, QuestionId, Handle)>,
    /// Templates that were described, to which keeper.
    described: Vec<(u64, u32)>,
    /// No connection is accepted until then (no descriptors are left), or until a program leaves.
    paused_until: Option<Instant>,
    /// A service may have ended while no program held it.
    unsettled: bool,
    socket_watch: SocketWatch,
}

impl Lender {
    /// Listen at `path`; `wake` is a descriptor that makes [`Self::run`] come back.
    pub fn new(path: &Path, config: Config, wake: BorrowedFd<'_>) -> Result<Self> {
        let pool = Client::new(policy_of(config))?;
        let listener = listen(path)?;
        let poller = Poll::new().map_err(Error::system("epoll_create1"))?;
        let queue = Queue::new(WAKES_MAX)?;
        let lender = Self {
            pool,
            config,
            listener,
            poller,
            queue: Arc::new(queue),
            receiver: Receiver::default(),
            ledger: Ledger::default(),
            connections: BTreeMap::new(),
            next_program: 1,
            to_disconnect: Vec::new(),
            pending: Vec::new(),
            starts: Vec::new(),
            described: Vec::new(),
            paused_until: None,
            unsettled: false,
            socket_watch: SocketWatch::default(),
        };
        lender.watch(&lender.listener, Token::only(LenderSource::Listener))?;
        lender.watch(lender.pool.watch()?, Token::only(LenderSource::Pool))?;
        lender.watch(&*lender.queue, Token::only(LenderSource::Granted))?;
        lender.watch(wake, Token::only(LenderSource::Caller))?;
        Ok(lender)
    }

    /// The pool, for the caller that starts its keeper.
    pub fn pool(&self) -> &Client {
        &self.pool
    }

    /// Serve until something is to be done outside; never returns otherwise.
    pub fn run(&mut self) -> Result<Turn> {
        let mut active = None;
        loop {
            let busy = active.is_some();
            if let Some((program, last)) = active.take() {
                self.serve_on(program, last)?;
            }
            self.begin_starts()?;
            if !self.starts.is_empty() {
                return Ok(Turn::Keeper);
            }
            if self.wait(busy)? == Waited::Interrupted {
                return Ok(Turn::Woken);
            }
            if self
                .paused_until
                .is_some_and(|until| Instant::now() >= until)
            {
                self.resume_accepting();
            }
            let notice = self.check_socket_file();
            let (mut woken, mut granted) = (false, false);
            let mut index = 0;
            while let Some((token, _)) = self.poller.event(index) {
                index += 1;
                let program = token.key.index;
                match token.kind {
                    LenderSource::Listener => self.accept(),
                    LenderSource::Pool => {
                        self.pool.drive()?;
                        self.unsettled = true;
                    }
                    LenderSource::Granted => granted = true,
                    LenderSource::Caller => woken = true,
                    LenderSource::ProgramExit => self.to_disconnect.push(program),
                    LenderSource::Program => {
                        let last = self.receive(program);
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
            last = self.receive(program);
            if last == Received::Nothing {
                break;
            }
            self.catch_up(false)?;
            if !self.starts.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// End every service and every connection, and remove the socket.
    pub fn close(self, limit_ms: u64) -> Result<()> {
        let Self { pool, listener, .. } = self;
        drop(listener); // no new programs
        pool.close(limit_ms)
    }

    /// Wait for events; after a busy turn it polls for a moment before it sleeps.
    fn wait(&mut self, busy: bool) -> Result<Waited> {
        let failed = || Error::system("epoll_wait");
        if busy {
            let mut polled = Ok(());
            let due = spin(LENDER_SPIN, || {
                polled = self.poller.wait(Some(Duration::ZERO));
                polled.is_err() || self.poller.event(0).is_some()
            });
            polled.map_err(failed())?;
            if due {
                return Ok(Waited::Due);
            }
        }
        let hurries = self
            .ledger
            .asked
            .values()
            .filter_map(|asked| asked.hurry_ms);
        let hurry_ms = hurries.min().map(|at| at.saturating_sub(now_ms()));
        let paused = self.paused_until.map(remaining_ms);
        let look = remaining_ms(self.socket_watch.due);
        let limit = hurry_ms.into_iter().chain(paused).fold(look, u64::min);
        let end = Instant::now() + Duration::from_millis(limit);
        let left = time::left(Some(end));
        self.poller.wait(left).map_err(failed())?;
        // Nothing before its time is a signal, whose handlers the caller runs.
        let interrupted = self.poller.event(0).is_none() && Instant::now() < end;
        Ok(if interrupted {
            Waited::Interrupted
        } else {
            Waited::Due
        })
    }

    fn watch(&self, descriptor: impl AsFd, token: Token<LenderSource>) -> Result<()> {
        self.poller
            .add(descriptor, token, Ready::READ)
            .map_err(Error::system("epoll_ctl"))
    }

    /// Accept the programs of this user in the queue. While no descriptor is left they stay there: an end of file would
    /// tell them that there is no lender.
    fn accept(&mut self) {
        loop {
            match self.listener.socket().accept_own() {
                Ok(Some((socket, peer))) if self.connections.len() < BORROWERS_MAX => {
                    let _ = self.admit(socket, peer); // on failure it sees its end of file
                }
                Ok(Some((socket, _))) => refuse_connection(&socket),
                Ok(None) => return,
                Err(_) => {
                    // Out of descriptors: the event would come back at once. Other processes or services may hold
                    // them, so a program that leaves is not the only one that gives some back; hence the pause.
                    self.poller.remove(&self.listener);
                    self.pause_accepting();
                    return;
                }
            }
        }
    }

    fn pause_accepting(&mut self) {
        self.paused_until = Instant::now().checked_add(Duration::from_millis(ACCEPT_PAUSE_MS));
    }

    /// A program left, or the pause is over: there may be room for another one.
    fn resume_accepting(&mut self) {
        if self.paused_until.is_none() {
            return;
        }
        match self.watch(&self.listener, Token::only(LenderSource::Listener)) {
            Ok(()) => self.paused_until = None,
            Err(_) => self.pause_accepting(),
        }
    }

    /// Admit a program. One whose process is not visible here, as from outside of a container, ends with its
    /// connection alone.
    fn admit(&mut self, socket: OwnedFd, peer: Peer) -> Result<()> {
        let number = self.next_program;
        self.next_program += 1;
        let pid = peer.pid.map_or(0, NonZeroI32::get);
        let process = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if let Some(process) = &process {
            self.watch(process, token_of(LenderSource::ProgramExit, number))?;
        }
        self.watch(&socket, token_of(LenderSource::Program, number))?;
        let session = Session {
            pid,
            ..Session::default()
        };
        self.ledger.sessions.insert(number, session);
        let connection = Connection {
            socket,
            _process: process,
            is_open: false,
        };
        self.connections.insert(number, connection);
        Ok(())
    }

    /// Receive one message of a program, if there is one.
    fn receive(&mut self, program: BorrowerId) -> Received {
        let Some(connection) = self.connections.get(&program) else {
            return Received::Nothing;
        };
        let bytes = match self
            .receiver
            .receive(&connection.socket, RecvFlags::DONTWAIT)
        {
            Ok(None) | Err(Error::Interrupted) => return Received::Nothing,
            Ok(Some(packet)) => packet.bytes,
            Err(_) => Vec::new(),
        };
        if let Ok(request) = Request::decode(&bytes)
            && (connection.is_open || matches!(request, Request::Hello { .. }))
        {
            let received = if request.is_question() {
                Received::Question
            } else {
                Received::Notice
            };
            if self.serve(program, request).is_ok() {
                return received;
            }
        }
        self.to_disconnect.push(program); // its end of file, or an invalid message
        Received::Nothing
    }

    /// Act on the events of a turn.
    fn catch_up(&mut self, granted: bool) -> Result<()> {
        while let Some(program) = self.to_disconnect.pop() {
            self.end(program);
        }
        if std::mem::take(&mut self.unsettled) {
            self.forget_dead_idle()?;
        }
        if !granted && self.ledger.asked.is_empty() && self.pending.is_empty() {
            return Ok(()); // no question is open
        }
        let mut wakes = Vec::new();
        loop {
            self.hurry()?;
            let drained = self.queue.drain(&mut wakes);
            if wakes.is_empty() || drained.is_err() {
                return Ok(());
            }
            let changed = wakes.contains(&WATCH);
            for ticket in wakes.drain(..).filter(|&wake| wake != WATCH) {
                self.granted(ticket)?;
            }
            if changed {
                for (program, ticket, handle, what) in std::mem::take(&mut self.pending) {
                    self.look(program, ticket, handle, what)?;
                }
            }
            while let Some(program) = self.to_disconnect.pop() {
                self.end(program);
            }
        }
    }

    /// Have services started for questions that have waited long enough for a reset.
    fn hurry(&mut self) -> Result<()> {
        if self.ledger.asked.is_empty() {
            return Ok(());
        }
        let now = now_ms();
        let mut due: Vec<machine::Ticket> = Vec::new();
        for (&ticket, asked) in &mut self.ledger.asked {
            if asked.hurry_ms.is_some_and(|at| at <= now) {
                asked.hurry_ms = None;
                due.push(ticket);
            }
        }
        due.into_iter()
            .try_for_each(|ticket| self.pool.hurry(ticket))
    }

    /// Answer a program. One whose socket is full of unread answers is disconnected.
    fn reply(&mut self, program: BorrowerId, reply: &Reply, descriptors: &[BorrowedFd<'_>]) {
        if let Some(connection) = self.connections.get(&program) {
            let bytes = reply.encode();
            if control::send(&connection.socket, &bytes, descriptors, SendFlags::DONTWAIT).is_err()
            {
                self.to_disconnect.push(program);
            }
        }
    }
}

fn remaining_ms(until: Instant) -> u64 {
    let left = until.saturating_duration_since(Instant::now());
    u64::try_from(left.as_millis()).map_or(u64::MAX, |whole| whole + 1)
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

/// Tell a program that too many are connected.
fn refuse_connection(socket: &OwnedFd) {
    let reason = format!(
        "borrowers_max is {BORROWERS_MAX} programs, and so many are connected to the shared pool; \
         end one, or start another pool: forebay serve --path"
    );
    let reply = Reply::Failed {
        ticket: 0,
        reason: reason.into_bytes(),
    };
    // If this fails, the program sees an end of file, which says less.
    let _ = control::send(socket, &reply.encode(), &[], SendFlags::DONTWAIT);
}
