//! A program's end of a shared pool: questions and their answers.
//!
//! There is no thread here. One waiting thread at a time sleeps on the socket and receives the answers of all
//! ([`forebay_base::waiters`]). An event loop watches the socket and receives by `drive`. The receiver of another waiter's
//! answer wakes that waiter: a thread by its eventfd, also the one that sleeps on the socket, which it finds empty by then,
//! and a loop by the queue that it gave.
//!
//! A message without a question (a release) never waits: while the lender does not read, it stays in the outbox and goes
//! out before later messages. The outbox is bounded by what this program holds and has asked for.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_base::Queue;
use forebay_base::signals;
use forebay_base::waiters::{Reader, Waiters};
use forebay_base::wakeup::Wakeup;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::listener::{connect_to_lender, no_lender};
use super::shared_leases::{Joined, SharedLeases};
use crate::client::Wake;
use crate::control::{self, Receiver};
use crate::death::Cause;
use crate::error::{Error, Result};
use crate::limit::{CONTROL_BYTES_MAX, LENDER_SPIN};
use crate::wire::Handle;
use crate::wire::shared::{QuestionId, Reply, Request, VERSION};

/// The ticket of the first question. Its answer matters only if it refuses the program.
const HELLO: QuestionId = 1;

/// An answer, and what came along.
#[derive(Debug)]
pub struct Response {
    pub reply: Reply,
    pub descriptors: Vec<OwnedFd>,
}

/// The waiter that is woken by an answer.
#[derive(Debug)]
enum Waiter {
    /// A thread that waits, or will ask for it.
    Thread,
    /// A loop.
    Queue(Arc<Queue<Wake>>),
}

#[derive(Debug)]
struct State {
    /// Gone once the program let go of it.
    socket: Option<Arc<OwnedFd>>,
    receiver: Receiver,
    expected: BTreeMap<QuestionId, Waiter>,
    /// An error is of an answer whose descriptors this process could not have.
    answers: BTreeMap<QuestionId, Result<Response>>,
    /// Messages, with what comes along.
    outbox: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    shared: SharedLeases,
    next_ticket: QuestionId,
    waiters: Waiters,
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
    state: Mutex<State>,
}

impl Borrower {
    /// Connect to the lender at `path`, and send the handshake.
    ///
    /// # Errors
    /// `Gone` where no process lends there, `Address` where another user does.
    pub fn connect(path: &Path) -> Result<Self> {
        let socket = connect_to_lender(path)?;
        let state = State {
            socket: Some(Arc::new(socket)),
            receiver: Receiver::default(),
            expected: BTreeMap::new(),
            answers: BTreeMap::new(),
            outbox: VecDeque::new(),
            shared: SharedLeases::default(),
            next_ticket: HELLO,
            waiters: Waiters::default(),
            ended: None,
        };
        let borrower = Self {
            path: path.to_owned(),
            owner: std::process::id(),
            inherited: AtomicBool::new(false),
            state: Mutex::new(state),
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
    pub fn ask(&self, question: impl FnOnce(QuestionId) -> Request) -> Result<QuestionId> {
        self.ask_with(question, Vec::new())
    }

    /// The same with descriptors that come along.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_with(
        &self,
        question: impl FnOnce(QuestionId) -> Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<QuestionId> {
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
        state.expected.insert(ticket, Waiter::Thread);
        state.send(bytes, descriptors)?;
        Ok(ticket)
    }

    /// Send a message that has no answer; never waits.
    pub fn send_notice(&self, notice: &Request) -> Result<()> {
        let mut state = self.enter()?;
        state.expect_alive()?;
        state.send(notice.encode(), Vec::new())
    }

    /// Let others of its group share a lent service, which has settled; never waits.
    ///
    /// # Errors
    /// `Gone`, `Closed`.
    pub fn open(&self, handle: Handle) -> Result<()> {
        let mut state = self.enter()?;
        if state.shared.open(handle) {
            state.send(Request::Open { handle }.encode(), Vec::new())?;
        }
        Ok(())
    }

    /// End one of several leases of a service; false where it is the last, or the only one: `end_lease` is to follow.
    /// With `closed`, the service takes no further leases, and ends with its last one. Never waits.
    ///
    /// # Errors
    /// `Closed`.
    pub fn release_shared(&self, handle: Handle, closed: bool) -> Result<bool> {
        let mut state = self.enter()?;
        self.receive(&mut state); // a further lease may have begun
        Ok(state.release_shared(handle, closed))
    }

    /// Say by a message without an answer how a lease ends, the last one of its service; never waits.
    ///
    /// # Errors
    /// `Gone`, `Closed`.
    pub fn end_lease(&self, handle: Handle, notice: &Request) -> Result<()> {
        let mut state = self.enter()?;
        state.expect_alive()?;
        state.end_lease(handle, notice)
    }

    /// The answer to a question, if it has come; otherwise the ticket is pushed to `queue`, if given, when it comes.
    pub fn look(
        &self,
        ticket: QuestionId,
        queue: Option<&Arc<Queue<Wake>>>,
    ) -> Result<Option<Response>> {
        let mut state = self.enter()?;
        self.receive(&mut state);
        if let Some(answer) = state.found(ticket)? {
            return Ok(Some(answer));
        }
        if let Some(queue) = queue {
            state
                .expected
                .insert(ticket, Waiter::Queue(Arc::clone(queue)));
        }
        Ok(None)
    }

    /// Wait for the answer to a question, at most until `deadline`.
    ///
    /// # Errors
    /// `Interrupted` where a signal arrived, or may have since the last look: run its handlers and wait again. `Gone`,
    /// `Closed`.
    pub fn wait(&self, ticket: QuestionId, deadline: Option<Instant>) -> Result<Option<Response>> {
        // The lender may share this core: it runs first.
        rustix::thread::sched_yield();
        let mut state = self.enter()?;
        let poll_until = Instant::now() + LENDER_SPIN;
        let outcome = loop {
            self.receive(&mut state);
            match state.found(ticket) {
                Ok(None) => {}
                found => break found,
            }
            if !state.expected.contains_key(&ticket) {
                break Ok(None); // another thread has given it up
            }
            let now = Instant::now();
            if deadline.is_some_and(|at| at <= now) {
                break Ok(None);
            }
            if now < poll_until {
                drop(state);
                rustix::thread::sched_yield();
                state = self.lock();
                continue;
            }
            let (woken, slept) = self.sleep(state, ticket, deadline.map(|at| at - now));
            state = woken;
            if let Err(error) = slept {
                break Err(error);
            }
        };
        state.waiters.end(Some(ticket));
        outcome
    }

    /// Give up a question. Returns its answer if it has come; otherwise the lender is notified.
    pub fn leave(&self, ticket: QuestionId) -> Result<Option<Response>> {
        let mut state = self.enter()?;
        self.receive(&mut state);
        let known = state.expected.remove(&ticket).is_some();
        if let Some(answer) = state.answers.remove(&ticket) {
            return Ok(answer.ok());
        }
        if known && state.ended.is_none() {
            state.waiters.wake_with_leader(ticket); // one of them may wait for it
            state.send(Request::Leave { ticket }.encode(), Vec::new())?;
        }
        Ok(None)
    }

    /// Give up a question whose caller takes no answer any more: what it was granted is ended.
    pub fn withdraw(&self, ticket: QuestionId) -> Result<()> {
        if let Some(answer) = self.leave(ticket)? {
            self.enter()?.give_up(&answer.reply)?;
        }
        Ok(())
    }

    /// Receive what has come; for a loop that watches [`Self::watch`].
    pub fn drive(&self) -> Result<()> {
        let mut state = self.enter()?;
        self.receive(&mut state);
        Ok(())
    }

    /// A descriptor of the caller's own that is readable when `drive` has something to do.
    pub fn watch(&self) -> Result<OwnedFd> {
        let state = self.enter()?;
        let socket = state.socket.as_ref().ok_or(Error::Closed)?;
        socket.try_clone().map_err(|source| Error::System {
            what: "dup of the shared pool's socket".into(),
            source,
        })
    }

    /// Whether the lender is gone; looks.
    pub fn is_over(&self) -> Result<bool> {
        let mut state = self.enter()?;
        self.receive(&mut state);
        Ok(state.ended.is_some())
    }

    /// Whether the lender is known to be gone; does not look.
    pub fn is_ended(&self) -> bool {
        self.lock().ended.is_some()
    }

    /// Disconnect: the lender takes back what this program holds, and waiting callers find the pool closed. Idempotent.
    pub fn close(&self) {
        if self.inherited.load(Ordering::Relaxed) {
            return; // before the lock, which a thread of the parent may have held when it forked
        }
        let mut state = self.lock();
        if let Some(socket) = state.socket.take() {
            let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Both);
        }
        state.wake_all();
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

    /// Sleep until something may have come, for all or for this question.
    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        ticket: QuestionId,
        left: Option<Duration>,
    ) -> (MutexGuard<'a, State>, Result<()>) {
        let (wake, socket) = match (Wakeup::of_thread(), state.socket.as_ref()) {
            (Ok(wake), Some(socket)) => (wake, Arc::clone(socket)),
            (_, None) => return (state, Err(Error::Closed)),
            (Err(source), _) => {
                let what = "eventfd".into();
                return (state, Err(Error::System { what, source }));
            }
        };
        let leads = state.waiters.reader() == Reader::None;
        let lead = state.waiters.enter(leads, Some((ticket, &wake)));
        let mut on_socket = PollFlags::IN;
        on_socket.set(PollFlags::OUT, !state.outbox.is_empty());
        drop(state);
        let mut set = [
            PollFd::new(&*wake, PollFlags::IN),
            PollFd::new(&*socket, on_socket),
        ];
        let watched = if leads { &mut set[..] } else { &mut set[..1] };
        let polled = signals::poll(watched, left);
        wake.clear();
        let mut state = self.lock();
        state.waiters.leave(lead);
        let slept = match polled {
            Ok(_) => Ok(()),
            Err(Errno::INTR) => Err(Error::Interrupted),
            Err(errno) => Err(Error::system("poll")(errno)),
        };
        (state, slept)
    }

    /// Receive what is there and wake its waiters.
    fn receive(&self, state: &mut State) {
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
                    state.end(no_lender(&self.path).to_string());
                    return;
                }
            };
            match Reply::decode(&packet.bytes) {
                // Not about a question: the lender has refused this program, or speaks another version.
                Ok(Reply::Failed {
                    ticket: 0 | HELLO,
                    reason,
                }) => {
                    state.end(String::from_utf8_lossy(&reason).into_owned());
                }
                Ok(reply) => {
                    let descriptors = packet.descriptors;
                    let response = Response { reply, descriptors };
                    let answer = if packet.descriptors_lost {
                        Err(response)
                    } else {
                        Ok(response)
                    };
                    state.deliver(answer);
                }
                Err(error) => state.end(format!("invalid reply from the shared pool: {error}")),
            }
        }
    }

    fn enter(&self) -> Result<MutexGuard<'_, State>> {
        // Set by `forked`: asking the kernel for the process id costs as much as everything else here.
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
    /// An answer that is not expected any more is dropped, and its descriptors with it. An error is one whose descriptors
    /// this process could not have.
    fn deliver(&mut self, answer: std::result::Result<Response, Response>) {
        let (Ok(response) | Err(response)) = &answer;
        let ticket = response.reply.ticket();
        if !self.expected.contains_key(&ticket) {
            self.decline(&response.reply);
            return;
        }
        if !self.begin_joined(&response.reply) {
            return;
        }
        match self.expected.get(&ticket) {
            None => return,
            Some(Waiter::Thread) => self.waiters.wake_with_leader(ticket),
            Some(Waiter::Queue(queue)) => drop(queue.push(ticket)),
        }
        let answer = answer.map_err(|response| self.refuse(&response.reply));
        self.answers.insert(ticket, answer);
    }

    fn end(&mut self, reason: String) {
        self.ended = Some(reason);
        self.wake_all();
    }

    fn wake_all(&mut self) {
        for (&ticket, waiter) in &self.expected {
            if let Waiter::Queue(queue) = waiter {
                let _ = queue.push(ticket);
            }
        }
        self.waiters.wake_all();
    }

    /// Have the service ended that an answer grants.
    fn give_up(&mut self, reply: &Reply) -> Result<()> {
        let handle = match reply {
            Reply::Lent { lent, .. } => lent.handle,
            Reply::Start { handle, .. } => *handle,
            // Where it is the last one, the others have left the reset to it.
            Reply::Joined { handle, .. } if !self.release_shared(*handle, false) => *handle,
            _ => return Ok(()),
        };
        let cause = Cause::Discarded;
        self.end_lease(handle, &Request::Discard { handle, cause })
    }

    /// Begin the further lease that an answer grants; false where the service was given back, and the question is asked
    /// again.
    fn begin_joined(&mut self, reply: &Reply) -> bool {
        let Reply::Joined {
            ticket,
            handle,
            key,
            group,
        } = *reply
        else {
            return true;
        };
        match self
            .shared
            .join(handle, Request::Ask { ticket, key, group })
        {
            Joined::Begun => return true,
            Joined::Postponed => {}
            Joined::Void(question) => drop(self.send(question.encode(), Vec::new())),
        }
        false
    }

    /// Give back the further lease that an answer grants which nobody expects.
    fn decline(&mut self, reply: &Reply) {
        if let Reply::Joined { handle, .. } = *reply
            && self.shared.is_held(handle)
        {
            let closed = false;
            let _ = self.send(
                Request::ReleaseShared { handle, closed }.encode(),
                Vec::new(),
            );
        }
    }

    /// End one of several leases of a service; false where it is the last.
    fn release_shared(&mut self, handle: Handle, closed: bool) -> bool {
        let Some(others) = self.shared.release(handle) else {
            return false;
        };
        // It fails where the lender has ended, and the service with it.
        let _ = self.send(
            Request::ReleaseShared { handle, closed }.encode(),
            Vec::new(),
        );
        others
    }

    /// Say how a lease ends, and ask again what was granted and crossed that.
    fn end_lease(&mut self, handle: Handle, notice: &Request) -> Result<()> {
        self.send(notice.encode(), Vec::new())?;
        for question in self.shared.give_back(handle) {
            if let Request::Ask { ticket, .. } = question
                && self.expected.contains_key(&ticket)
            {
                self.send(question.encode(), Vec::new())?;
            }
        }
        Ok(())
    }

    /// An answer cannot be used without its descriptors.
    fn refuse(&mut self, reply: &Reply) -> Error {
        let _ = self.give_up(reply); // it fails where the lender has ended, and the service with it
        Error::descriptors(match reply {
            Reply::Started { .. } => "receiving the pidfd of a service",
            _ => "receiving the sockets of a service",
        })
    }

    fn found(&mut self, ticket: QuestionId) -> Result<Option<Response>> {
        if let Some(answer) = self.answers.remove(&ticket) {
            self.expected.remove(&ticket);
            return answer.map(Some);
        }
        if self.socket.is_none() {
            return Err(Error::Closed);
        }
        self.expect_alive().map(|()| None)
    }

    fn send(&mut self, bytes: Vec<u8>, descriptors: Vec<OwnedFd>) -> Result<()> {
        self.outbox.push_back((bytes, descriptors));
        self.flush();
        self.expect_alive()
    }

    /// Send the outbox, as far as the lender reads.
    fn flush(&mut self) {
        let Some(socket) = self.socket.clone() else {
            return;
        };
        while let Some((bytes, descriptors)) = self.outbox.front() {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            match control::send(&*socket, bytes, &descriptors, SendFlags::DONTWAIT) {
                Ok(()) => drop(self.outbox.pop_front()),
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.outbox.clear();
                    // What it sent before its end is still to be read.
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
