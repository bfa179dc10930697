//! A program's end of a shared pool: questions, and who takes their answers.
//!
//! There is no thread here. One waiting thread at a time, the *leader*, sleeps on the socket and takes in the answers
//! of all; the others sleep on a condition. An event loop watches the socket and steps in by `drive`. Whoever takes in
//! an answer of somebody else's wakes them: a thread by the condition, the leader (who sleeps on the socket, which is
//! empty by then) by an eventfd, a loop by the queue that it gave.
//!
//! What is said without a question (a release) never waits: where the lender does not read, it is kept, and goes out
//! before whatever is said next. What is kept is bounded by what this program holds and has asked for.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_base::Queue;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::listener::{connect_lender, no_lender};
use crate::channel::{self, Receiver};
use crate::client::Wake;
use crate::clock::wait_of;
use crate::error::{Error, Result};
use crate::limit::{CONTROL_BYTES_MAX, SPIN_US};
use crate::wire::shared::{Reply, Request, Ticket, VERSION};

/// The ticket of the first question, whose answer no_lender waits for unless it is no.
const HELLO: Ticket = 1;

/// An answer, and what came along.
#[derive(Debug)]
pub struct Response {
    pub reply: Reply,
    pub descriptors: Vec<OwnedFd>,
}

/// Who is told that an answer came.
#[derive(Debug)]
enum Taker {
    /// A thread that waits, or will look.
    Thread,
    /// A loop.
    Queue(Arc<Queue<Wake>>),
}

#[derive(Debug)]
struct State {
    /// Gone once the program let go of it.
    socket: Option<Arc<OwnedFd>>,
    receiver: Receiver,
    expected: BTreeMap<Ticket, Taker>,
    answers: BTreeMap<Ticket, Response>,
    outbox: VecDeque<Vec<u8>>,
    next_ticket: Ticket,
    leader: bool,
    /// Why nothing more comes.
    ended: Option<String>,
}

/// A program's end.
#[derive(Debug)]
pub struct Borrower {
    path: PathBuf,
    owner: u32,
    /// This is a forked child's copy.
    inherited: AtomicBool,
    wakeup: OwnedFd,
    state: Mutex<State>,
    turn: Condvar,
}

impl Borrower {
    /// Connect to the lender at `path`, and say hello.
    ///
    /// # Errors
    /// `Gone` where no_lender lends there, `Place` where another user does.
    pub fn connect(path: &Path) -> Result<Self> {
        let socket = connect_lender(path)?;
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let state = State {
            socket: Some(Arc::new(socket)),
            receiver: Receiver::default(),
            expected: BTreeMap::new(),
            answers: BTreeMap::new(),
            outbox: VecDeque::new(),
            next_ticket: HELLO,
            leader: false,
            ended: None,
        };
        let borrower = Self {
            path: path.to_owned(),
            owner: std::process::id(),
            inherited: AtomicBool::new(false),
            wakeup: wakeup.map_err(Error::system("eventfd"))?,
            state: Mutex::new(state),
            turn: Condvar::new(),
        };
        let hello = borrower.ask(|ticket| Request::Hello {
            ticket,
            version: VERSION,
        })?;
        borrower.lock().expected.remove(&hello);
        Ok(borrower)
    }

    /// Ask something; the answer comes to the ticket.
    ///
    /// # Errors
    /// `Gone`, `Limit` for a question that is too long, `Closed`.
    pub fn ask(&self, question: impl FnOnce(Ticket) -> Request) -> Result<Ticket> {
        let mut state = self.enter()?;
        state.expect_alive()?;
        let ticket = state.next_ticket;
        let bytes = question(ticket).encode();
        if bytes.len() > CONTROL_BYTES_MAX {
            return Err(Error::Limit {
                limit: "control_bytes_max",
                maximum: CONTROL_BYTES_MAX as u64,
                value: bytes.len() as u64,
                next: "make the environment and the import path of this program smaller",
            });
        }
        state.next_ticket += 1;
        state.expected.insert(ticket, Taker::Thread);
        state.send(bytes)?;
        Ok(ticket)
    }

    /// Say something that has no answer; never waits.
    pub fn say(&self, word: &Request) -> Result<()> {
        let mut state = self.enter()?;
        state.expect_alive()?;
        state.send(word.encode())
    }

    /// The answer to a question, if it is there; otherwise `queue`, where there is one, is told the ticket when it is.
    pub fn look(
        &self,
        ticket: Ticket,
        queue: Option<&Arc<Queue<Wake>>>,
    ) -> Result<Option<Response>> {
        let mut state = self.enter()?;
        self.take_in(&mut state);
        if let Some(answer) = state.found(ticket)? {
            return Ok(Some(answer));
        }
        if let Some(queue) = queue {
            state
                .expected
                .insert(ticket, Taker::Queue(Arc::clone(queue)));
        }
        Ok(None)
    }

    /// Wait for the answer to a question, at most until `deadline`.
    ///
    /// # Errors
    /// `Interrupted` where a signal arrived: run its handlers and wait again. `Gone`, `Closed`.
    pub fn wait(&self, ticket: Ticket, deadline: Option<Instant>) -> Result<Option<Response>> {
        // The lender may have this very core: it goes first.
        rustix::thread::sched_yield();
        let mut state = self.enter()?;
        let look_until = Instant::now() + Duration::from_micros(SPIN_US);
        loop {
            self.take_in(&mut state);
            if let Some(answer) = state.found(ticket)? {
                return Ok(Some(answer));
            }
            let now = Instant::now();
            if deadline.is_some_and(|at| at <= now) {
                return Ok(None);
            }
            if now < look_until {
                drop(state);
                rustix::thread::sched_yield();
                state = self.lock();
                continue;
            }
            state = self.sleep(state, deadline.map(|at| at - now))?;
        }
    }

    /// Give a question up. Its answer, where it was there already; else the lender is told.
    pub fn leave(&self, ticket: Ticket) -> Result<Option<Response>> {
        let mut state = self.enter()?;
        self.take_in(&mut state);
        let known = state.expected.remove(&ticket).is_some();
        if let Some(answer) = state.answers.remove(&ticket) {
            return Ok(Some(answer));
        }
        if known && state.ended.is_none() {
            state.send(Request::Leave { ticket }.encode())?;
        }
        Ok(None)
    }

    /// Take in what has come; for a loop that watches [`Self::watch`].
    pub fn drive(&self) -> Result<()> {
        let mut state = self.enter()?;
        self.take_in(&mut state);
        Ok(())
    }

    /// A descriptor of the caller's own that is readable when `drive` has something to do.
    pub fn watch(&self) -> Result<OwnedFd> {
        let state = self.enter()?;
        let socket = state.socket.as_ref().ok_or(Error::Closed)?;
        socket.try_clone().map_err(|source| Error::System {
            what: "dup of the shared pool's socket",
            source,
        })
    }

    /// Whether the lender is gone; looks.
    pub fn is_over(&self) -> Result<bool> {
        let mut state = self.enter()?;
        self.take_in(&mut state);
        Ok(state.ended.is_some())
    }

    /// Whether the lender is known to be gone; does not look.
    pub fn is_ended(&self) -> bool {
        self.lock().ended.is_some()
    }

    /// Let go: the lender takes back what this program holds. Whoever waits finds it closed. Idempotent.
    pub fn close(&self) {
        if self.inherited.load(Ordering::Relaxed) {
            return; // before the lock, which a thread of the parent may have held when it forked
        }
        let mut state = self.lock();
        if let Some(socket) = state.socket.take() {
            let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Both);
        }
        self.wake_all(&mut state);
    }

    /// In a forked child, before anything else: let go of what is the parent's, as far as it can be done without
    /// waiting.
    pub fn forked(&self) {
        self.inherited.store(true, Ordering::Relaxed);
        if let Ok(mut state) = self.state.try_lock() {
            state.socket = None;
            state.answers.clear();
        }
    }

    /// Sleep until something may have come.
    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        left: Option<Duration>,
    ) -> Result<MutexGuard<'a, State>> {
        if state.leader {
            let left = left.unwrap_or(Duration::from_secs(3600));
            let woken = self.turn.wait_timeout(state, left);
            return Ok(woken.unwrap_or_else(PoisonError::into_inner).0);
        }
        let socket = Arc::clone(state.socket.as_ref().ok_or(Error::Closed)?);
        let mut flags = PollFlags::IN;
        if !state.outbox.is_empty() {
            flags |= PollFlags::OUT;
        }
        state.leader = true;
        drop(state);
        let mut set = [
            PollFd::new(&*socket, flags),
            PollFd::new(&self.wakeup, PollFlags::IN),
        ];
        // Rounded up, so that a wait never ends before its time.
        let limit = left.map(|left| {
            wait_of(u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX))
        });
        let polled = poll(&mut set, limit.as_ref());
        let _ = rustix::io::read(&self.wakeup, &mut [0u8; 8]); // rung or not
        let mut state = self.lock();
        state.leader = false;
        self.turn.notify_all(); // the next one leads
        match polled {
            Ok(_) => Ok(state),
            Err(Errno::INTR) => Err(Error::Interrupted),
            Err(errno) => Err(Error::system("poll")(errno)),
        }
    }

    /// Read what is there and wake whom it is for.
    fn take_in(&self, state: &mut State) {
        let Some(socket) = state.socket.clone() else {
            return;
        };
        state.flush();
        while state.ended.is_none() {
            let packet = match state.receiver.receive(&*socket, RecvFlags::DONTWAIT) {
                Ok(None) => return,
                Err(Error::Interrupted) => continue,
                Ok(Some(packet)) if !packet.bytes.is_empty() => packet,
                _ => {
                    self.end(state, no_lender(&self.path).to_string());
                    return;
                }
            };
            match Reply::decode(&packet.bytes) {
                // Not about a question: it was turned away, or it speaks another version.
                Ok(Reply::Failed {
                    ticket: 0 | HELLO,
                    reason,
                }) => {
                    self.end(state, String::from_utf8_lossy(&reason).into_owned());
                }
                Ok(reply) => {
                    let descriptors = packet.descriptors;
                    self.deliver(state, Response { reply, descriptors });
                }
                Err(error) => self.end(state, format!("the shared pool talks nonsense: {error}")),
            }
        }
    }

    /// An answer no_lender expects any more is dropped, and its descriptors with it.
    fn deliver(&self, state: &mut State, answer: Response) {
        let ticket = answer.reply.ticket();
        match state.expected.get(&ticket) {
            None => return,
            Some(Taker::Thread) => self.wake_threads(state),
            Some(Taker::Queue(queue)) => drop(queue.push(ticket)),
        }
        state.answers.insert(ticket, answer);
    }

    fn end(&self, state: &mut State, reason: String) {
        state.ended = Some(reason);
        self.wake_all(state);
    }

    fn wake_all(&self, state: &mut State) {
        for (&ticket, taker) in &state.expected {
            if let Taker::Queue(queue) = taker {
                let _ = queue.push(ticket);
            }
        }
        self.wake_threads(state);
    }

    fn wake_threads(&self, state: &State) {
        if state.leader {
            let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
            self.turn.notify_all();
        }
    }

    fn enter(&self) -> Result<MutexGuard<'_, State>> {
        // Told by `forked`, because asking the kernel who we are costs as much as everything else here.
        if self.inherited.load(Ordering::Relaxed) {
            return Err(Error::Forked {
                owner: self.owner,
                here: std::process::id(),
            });
        }
        let state = self.lock();
        if state.socket.is_none() {
            return Err(Error::Closed);
        }
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No foreign code runs under the lock; what a panic of ours left is used as it is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn found(&mut self, ticket: Ticket) -> Result<Option<Response>> {
        if let Some(answer) = self.answers.remove(&ticket) {
            self.expected.remove(&ticket);
            return Ok(Some(answer));
        }
        if self.socket.is_none() {
            return Err(Error::Closed);
        }
        self.expect_alive().map(|()| None)
    }

    fn send(&mut self, bytes: Vec<u8>) -> Result<()> {
        self.outbox.push_back(bytes);
        self.flush();
        self.expect_alive()
    }

    /// Send what waits, as far as the lender reads.
    fn flush(&mut self) {
        let Some(socket) = self.socket.clone() else {
            return;
        };
        while let Some(bytes) = self.outbox.front() {
            match channel::send(&*socket, bytes, &[], SendFlags::DONTWAIT) {
                Ok(()) => drop(self.outbox.pop_front()),
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.outbox.clear();
                    // What it said before its end is still to be read.
                    return;
                }
            }
        }
    }

    fn expect_alive(&self) -> Result<()> {
        match &self.ended {
            Some(reason) => Err(Error::Gone(reason.clone())),
            None => Ok(()),
        }
    }
}
