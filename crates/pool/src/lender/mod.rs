//! One pool, lent to all programs of a user.
//!
//! The *lender* owns an ordinary pool and answers programs on a sequenced-packet socket; the *borrower* is a program's
//! end. What a service is called with never passes through here: a program gets the connected socket of its service,
//! once for each process, and keeps its duplicate, so that lending the same process to it again is one small question
//! and one small answer. One thread, one epoll set, and no Python; who starts a keeper is the caller of [`Lender::run`].
//!
//! Invariants, beside those of the [`ledger`]:
//! - what a program held or waited for ends with its process, or with its connection, whichever is first;
//! - nobody is waited for: a program that does not read its answers is disconnected, and what it held is ended;
//! - nothing that a program sent is run or unpickled here.

mod ask;
pub mod borrower;
mod lease;
pub mod ledger;
pub mod listener;
mod requests;
mod socket_watch;

use std::collections::BTreeMap;
use std::num::NonZeroI32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_base::Queue;
use forebay_base::peer::Peer;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::channel::{self, Receiver};
use crate::client::{Client, Policy, WATCH, Wake};
use crate::clock::{now_ms, wait_of};
use crate::error::{Error, Result};
use crate::limit::{ACCEPT_PAUSE_MS, BORROWERS_MAX, SPIN_US, TURN_MESSAGES};
use crate::machine;
use crate::wire::Handle;
use crate::wire::shared::{Reply, Request, Ticket};
use ledger::{Ledger, Program, Session};
use listener::Listener;
use socket_watch::SocketWatch;

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
    /// The descriptor that was given is readable.
    Woken,
    /// A person should read this; then come back.
    Notice(String),
}

/// Who is told of an end that has not come yet.
#[derive(Clone, Copy, Debug)]
enum Pending {
    Lend,
    Death,
    Output,
}

/// What came from a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Received {
    Nothing,
    /// It expects no answer.
    Word,
    Question,
}

/// A program's connection.
#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    /// Its process: a child that it forked may hold its socket open for longer.
    _process: Option<OwnedFd>,
    /// It has said which version it speaks.
    is_open: bool,
}

const LISTENER: u64 = u64::MAX;
const POOL: u64 = u64::MAX - 1;
const QUEUE: u64 = u64::MAX - 2;
const WAKE: u64 = u64::MAX - 3;
/// Above a program's number: its process ended.
const ENDED: u64 = 1 << 32;
/// Tickets that may have been granted and not looked at.
const WAKES_MAX: usize = 1 << 20;

/// A pool and the programs that borrow from it.
#[derive(Debug)]
pub struct Lender {
    pool: Client,
    config: Config,
    listener: Listener,
    poller: OwnedFd,
    queue: Arc<Queue<Wake>>,
    receiver: Receiver,
    ledger: Ledger,
    connections: BTreeMap<Program, Connection>,
    next_program: Program,
    /// Programs to disconnect at the end of this turn.
    to_disconnect: Vec<Program>,
    pending: Vec<(Program, Ticket, Handle, Pending)>,
    /// Starts that wait for a keeper.
    starts: Vec<(Program, Ticket, Handle)>,
    /// Templates that were described, to which keeper.
    described: Vec<(u64, u32)>,
    /// Nobody new can be taken in (no descriptors) until then, or until somebody leaves.
    paused_until: Option<Instant>,
    /// A service may have ended while nobody held it.
    unsettled: bool,
    socket_watch: SocketWatch,
}

impl Lender {
    /// Listen at `path`; `wake` is a descriptor that makes [`Self::run`] come back.
    pub fn new(path: &Path, config: Config, wake: BorrowedFd<'_>) -> Result<Self> {
        let pool = Client::new(policy_of(config))?;
        let listener = Listener::bind(path)?;
        let poller =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("epoll_create1"))?;
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
        lender.watch(&lender.listener.socket, LISTENER)?;
        lender.watch(lender.pool.watch()?, POOL)?;
        lender.watch(&*lender.queue, QUEUE)?;
        lender.watch(wake, WAKE)?;
        Ok(lender)
    }

    /// The pool, for who starts its keeper.
    pub fn pool(&self) -> &Client {
        &self.pool
    }

    /// Serve until something is to be done outside; never returns otherwise.
    pub fn run(&mut self) -> Result<Turn> {
        let mut spoke = None;
        loop {
            let busy = spoke.is_some();
            if let Some(heard) = spoke.take() {
                self.continue_serving(heard)?;
            }
            self.begin_starts()?;
            if !self.starts.is_empty() {
                return Ok(Turn::Keeper);
            }
            let mut events = Vec::with_capacity(64);
            match self.wait(&mut events, busy) {
                Ok(()) => {}
                Err(Errno::INTR) => return Ok(Turn::Woken),
                Err(errno) => return Err(Error::system("epoll_wait")(errno)),
            }
            if self
                .paused_until
                .is_some_and(|until| Instant::now() >= until)
            {
                self.resume_accepting();
            }
            let news = self.check_socket_file();
            let (mut woken, mut told) = (false, false);
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    POOL => {
                        self.pool.drive()?;
                        self.unsettled = true;
                    }
                    QUEUE => told = true,
                    WAKE => woken = true,
                    ended if ended >= ENDED => {
                        self.to_disconnect
                            .push(Program::try_from(ended - ENDED).unwrap_or(0));
                    }
                    number => {
                        let program = Program::try_from(number).unwrap_or(0);
                        let heard = self.receive(program);
                        spoke = Some((program, heard));
                    }
                }
            }
            self.catch_up(told)?;
            if woken {
                return Ok(Turn::Woken);
            }
            if let Some(text) = news {
                return Ok(Turn::Notice(text));
            }
        }
    }

    /// Look for a moment whether the program that spoke last goes on, before anything else is looked at. Who was
    /// answered may wait on this very core, and is let run first.
    fn continue_serving(&mut self, (program, mut last): (Program, Received)) -> Result<()> {
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
        drop(listener); // nobody new
        pool.close(limit_ms)
    }

    /// The next events; after a busy turn it looks for a moment before it sleeps.
    fn wait(&self, events: &mut Vec<epoll::Event>, busy: bool) -> std::result::Result<(), Errno> {
        if busy {
            let end = Instant::now() + Duration::from_micros(SPIN_US);
            loop {
                if epoll::wait(&self.poller, spare_capacity(events), Some(&wait_of(0)))? > 0 {
                    return Ok(());
                }
                if Instant::now() >= end {
                    break;
                }
                rustix::thread::sched_yield();
            }
        }
        let hurries = self
            .ledger
            .asked
            .values()
            .filter_map(|asked| asked.hurry_ms);
        let hurry_ms = hurries.min().map(|at| at.saturating_sub(now_ms()));
        let deaf = self.paused_until.map(remaining_ms);
        let look = remaining_ms(self.socket_watch.due);
        let limit = hurry_ms.into_iter().chain(deaf).fold(look, u64::min);
        epoll::wait(&self.poller, spare_capacity(events), Some(&wait_of(limit))).map(drop)
    }

    fn watch(&self, descriptor: impl AsFd, data: u64) -> Result<()> {
        let data = epoll::EventData::new_u64(data);
        epoll::add(&self.poller, descriptor, data, epoll::EventFlags::IN)
            .map_err(Error::system("epoll_ctl"))
    }

    /// Take in the programs that wait to be.
    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok(Some((socket, peer))) if self.connections.len() < BORROWERS_MAX => {
                    let _ = self.admit(socket, peer); // dropped, it is told by its end of file
                }
                Ok(Some((socket, _))) => refuse_connection(&socket),
                Ok(None) => return,
                Err(_) => {
                    // Out of descriptors: it would come back at once. They may be other processes' or services', so
                    // that it is not only somebody's leaving that gives some back.
                    let _ = epoll::delete(&self.poller, &self.listener.socket);
                    self.pause_accepting();
                    return;
                }
            }
        }
    }

    fn pause_accepting(&mut self) {
        self.paused_until = Instant::now().checked_add(Duration::from_millis(ACCEPT_PAUSE_MS));
    }

    /// Somebody left, or the pause is over: there may be room for somebody new.
    fn resume_accepting(&mut self) {
        if self.paused_until.is_none() {
            return;
        }
        match self.watch(&self.listener.socket, LISTENER) {
            Ok(()) => self.paused_until = None,
            Err(_) => self.pause_accepting(),
        }
    }

    /// Take a program in. One whose process cannot be seen here, as from outside of a container, ends with its
    /// connection alone.
    fn admit(&mut self, socket: OwnedFd, peer: Peer) -> Result<()> {
        let number = self.next_program;
        self.next_program += 1;
        let pid = peer.pid.map_or(0, NonZeroI32::get);
        let process = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if let Some(process) = &process {
            self.watch(process, ENDED + u64::from(number))?;
        }
        self.watch(&socket, u64::from(number))?;
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

    /// Take in one message of a program, if there is one.
    fn receive(&mut self, program: Program) -> Received {
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
            let heard = if request.is_question() {
                Received::Question
            } else {
                Received::Word
            };
            if self.serve(program, request).is_ok() {
                return heard;
            }
        }
        self.to_disconnect.push(program); // its end, or no message of ours
        Received::Nothing
    }

    /// What follows from the events of a turn.
    fn catch_up(&mut self, told: bool) -> Result<()> {
        while let Some(program) = self.to_disconnect.pop() {
            self.end(program);
        }
        if std::mem::take(&mut self.unsettled) {
            self.forget_dead_idle()?;
        }
        if !told && self.ledger.asked.is_empty() && self.pending.is_empty() {
            return Ok(()); // nobody waits for anything
        }
        let mut wakes = Vec::new();
        loop {
            self.hurry()?;
            let drained = self.queue.drain(&mut wakes);
            if wakes.is_empty() || drained.is_err() {
                return Ok(());
            }
            let news = wakes.contains(&WATCH);
            for ticket in wakes.drain(..).filter(|&wake| wake != WATCH) {
                self.granted(ticket)?;
            }
            if news {
                for (program, ticket, handle, what) in std::mem::take(&mut self.pending) {
                    self.look(program, ticket, handle, what)?;
                }
            }
            while let Some(program) = self.to_disconnect.pop() {
                self.end(program);
            }
        }
    }

    /// Those who waited long enough for a reset would rather have a start.
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

    /// Answer a program. One that has not read so many answers that no more fit is disconnected.
    fn reply(&mut self, program: Program, reply: &Reply, descriptors: &[BorrowedFd<'_>]) {
        if let Some(connection) = self.connections.get(&program) {
            let bytes = reply.encode();
            if channel::send(&connection.socket, &bytes, descriptors, SendFlags::DONTWAIT).is_err()
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

/// There are too many programs already.
fn refuse_connection(socket: &OwnedFd) {
    let reason = format!(
        "borrowers_max is {BORROWERS_MAX} programs, and so many are connected to the shared pool; \
         end one, or start another pool: forebay serve --path"
    );
    let reply = Reply::Failed {
        ticket: 0,
        reason: reason.into_bytes(),
    };
    // Without it, it learns less, from its end of file.
    let _ = channel::send(socket, &reply.encode(), &[], SendFlags::DONTWAIT);
}
