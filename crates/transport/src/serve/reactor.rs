//! The thread of a native listener: sockets and deadlines, and no decision about messages.
//!
//! An event carries the key of a slot, never a descriptor: one that was meant for a closed connection does not reach the
//! next one in its slot.

mod time;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_base::accept::ACCEPTS_PER_TURN;
use forebay_base::poll::{Kind, Poll, Ready, Token};
use forebay_base::slots::{Key, Slots};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::error::Error;
use crate::limit::{
    NATIVE_CONNECTIONS_MAX, NATIVE_HANDSHAKES_MAX, NATIVE_PAUSE_MS, NATIVE_REDIAL_MS,
    NATIVE_STALL_LOOKS,
};
use crate::link::stall::StallTimer;
use crate::messages::Budget;
use crate::messages::state::State;
use crate::serve::acceptor::{Accepted, Acceptor, Listening};
use crate::serve::control::Control;
use crate::serve::dial::Target;
use crate::serve::options::ServerOptions;
use crate::serve::service::Service;
use crate::serve::session::{Action, ClientSession};
use crate::stream::Socket;
use crate::stream::owner::foreign_user_message;

/// What a watched descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The owner wants something: to close.
    Wakeup,
    /// A listening socket; the key's index is its number.
    Listener,
    Client,
    Target,
}

impl Kind for Source {
    const ALL: &'static [Self] = &[Self::Wakeup, Self::Listener, Self::Client, Self::Target];

    fn index(self) -> usize {
        self as usize
    }
}

/// A connection, and what the reactor knows of it.
struct Served {
    session: ClientSession<Socket>,
    /// What the sockets of the client and of the target are watched for.
    watched: [Ready; 2],
    open: bool,
    queued: bool,
    stall: StallTimer,
}

pub(crate) struct Reactor {
    poll: Poll<Source>,
    acceptor: Option<Acceptor>,
    accepting: bool,
    service: Service,
    options: ServerOptions,
    control: Arc<Control>,
    connections: Slots<Box<Served>>,
    /// How many have not finished their handshake.
    handshaking: usize,
    /// In the order of their deadlines, since all have the same timeout.
    handshakes: VecDeque<(Instant, Key)>,
    again: Vec<Key>,
    redials: Vec<(Instant, Key, Arc<Target>)>,
    resume_at: Option<Instant>,
    check_stalls_at: Instant,
    close_at: Option<Instant>,
}

impl Reactor {
    pub fn new(
        listening: Listening,
        service: Service,
        options: ServerOptions,
        control: Arc<Control>,
    ) -> Result<Self, Errno> {
        let poll = Poll::new()?;
        poll.add(&control.wakeup, Token::only(Source::Wakeup), Ready::READ)?;
        let check_stalls_at = Instant::now() + options.stall / NATIVE_STALL_LOOKS;
        let mut reactor = Self {
            poll,
            acceptor: Some(Acceptor::new(listening)),
            accepting: false,
            service,
            options,
            control,
            connections: Slots::new(),
            handshaking: 0,
            handshakes: VecDeque::new(),
            again: Vec::new(),
            redials: Vec::new(),
            resume_at: None,
            check_stalls_at,
            close_at: None,
        };
        reactor.set_accepting(true)?;
        Ok(reactor)
    }

    /// Serve until the owner closes.
    pub fn run(mut self) {
        while self.poll.wait(Some(self.timeout())).is_ok() {
            for index in 0.. {
                let Some((token, ready)) = self.poll.event(index) else {
                    break;
                };
                self.handle(token, ready);
            }
            for key in std::mem::take(&mut self.again) {
                if let Some(served) = self.served(key) {
                    served.queued = false;
                    self.step(key, Ready::NOTHING, Ready::NOTHING);
                }
            }
            self.keep_time(Instant::now());
            if self.is_done() {
                break;
            }
        }
        for (_, served) in self.connections.iter() {
            hang_up(&served.session);
        }
        self.connections = Slots::new();
        self.acceptor = None;
        self.control.metrics.open.store(0, Ordering::Relaxed);
        self.control.handed.close();
    }

    fn handle(&mut self, token: Token<Source>, ready: Ready) {
        match token.kind {
            Source::Wakeup => self.control.wakeup.clear(),
            Source::Listener => self.accept(token.key.index as usize),
            Source::Client => self.step(token.key, ready, Ready::NOTHING),
            Source::Target => self.step(token.key, Ready::NOTHING, ready),
        }
    }

    fn served(&mut self, key: Key) -> Option<&mut Served> {
        self.connections.get_mut(key).map(Box::as_mut)
    }

    // --- accepting ---

    fn accept(&mut self, socket: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            if !self.has_capacity() {
                let _ = self.set_accepting(false);
                return;
            }
            if !Budget::of_process().has_room() {
                // Other parts of the process close connections without telling this one: try again later.
                self.pause_accepting();
                return;
            }
            let Some(acceptor) = &mut self.acceptor else {
                return;
            };
            match acceptor.accept(socket) {
                Accepted::Connection(socket) => self.admit(socket),
                Accepted::Nothing => return,
                Accepted::ForeignUser(uid) => {
                    self.control
                        .metrics
                        .fail(Error::Config(foreign_user_message(uid)));
                }
                Accepted::Exhausted => {
                    self.control
                        .metrics
                        .turned_away
                        .fetch_add(1, Ordering::Relaxed);
                    self.pause_accepting();
                    return;
                }
            }
        }
    }

    /// Stop accepting for a while.
    fn pause_accepting(&mut self) {
        let _ = self.set_accepting(false);
        self.resume_at = Some(Instant::now() + Duration::from_millis(NATIVE_PAUSE_MS));
    }

    fn has_capacity(&self) -> bool {
        let open = self.control.metrics.open.load(Ordering::Relaxed);
        self.handshaking < NATIVE_HANDSHAKES_MAX && open < NATIVE_CONNECTIONS_MAX
    }

    fn set_accepting(&mut self, accepting: bool) -> Result<(), Errno> {
        let Some(acceptor) = &self.acceptor else {
            return Ok(());
        };
        if self.accepting == accepting {
            return Ok(());
        }
        for index in 0..acceptor.sockets() {
            let (before, wanted) = if accepting {
                (Ready::NOTHING, Ready::READ)
            } else {
                (Ready::READ, Ready::NOTHING)
            };
            let key = Key {
                index: u32::try_from(index).unwrap_or(u32::MAX),
                generation: 0,
            };
            let token = Token::new(Source::Listener, key);
            self.poll
                .change(acceptor.socket(index), token, before, wanted)?;
        }
        self.accepting = accepting;
        Ok(())
    }

    /// Accept again, if the number of connections was the reason not to.
    fn resume_accepting(&mut self) {
        if !self.accepting && self.resume_at.is_none() && self.has_capacity() {
            let _ = self.set_accepting(true);
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        let mut client = State::new(
            Arc::new(socket),
            self.options.limits,
            self.options.admission.clone(),
            None,
        );
        if self.options.trusted {
            client.trust();
        }
        client.flush();
        let now = Instant::now();
        let served = Box::new(Served {
            session: ClientSession::new(client, self.service.clone()),
            watched: [Ready::NOTHING; 2],
            open: false,
            queued: false,
            stall: StallTimer::new(now),
        });
        let key = self.connections.insert(served);
        self.handshaking += 1;
        self.control
            .metrics
            .accepted
            .fetch_add(1, Ordering::Relaxed);
        self.control.metrics.open.fetch_add(1, Ordering::Relaxed);
        self.handshakes
            .push_back((now + self.options.handshake, key));
        self.step(key, Ready::READ, Ready::NOTHING);
    }

    // --- one connection ---

    fn step(&mut self, key: Key, client: Ready, target: Ready) {
        let control = Arc::clone(&self.control);
        let Some(served) = self.served(key) else {
            return;
        };
        let action = served.session.step(client, target, &control.metrics);
        let newly_open = !served.open && served.session.client.is_open();
        if newly_open {
            served.open = true;
            self.handshaking -= 1;
            self.resume_accepting();
        }
        match action {
            Action::Wait => {}
            Action::Again => self.requeue(key),
            Action::Close(error) => {
                if let Some(error) = error {
                    self.control.metrics.fail(error);
                }
                self.close_connection(key);
                return;
            }
            Action::HandOver => {
                self.hand_over(key);
                return;
            }
            Action::Dial(target) => self.dial(key, target),
            Action::ShutdownTarget => {
                if let Some(served) = self.served(key)
                    && let Some(target) = &served.session.target
                    && let Some(socket) = target.stream()
                {
                    let _ = shutdown(socket.as_fd(), Shutdown::Write);
                }
            }
        }
        self.watch(key);
    }

    fn requeue(&mut self, key: Key) {
        if let Some(served) = self.served(key)
            && !served.queued
        {
            served.queued = true;
            self.again.push(key);
        }
    }

    /// Watch the sockets for what the connection can use.
    fn watch(&mut self, key: Key) {
        let Some(served) = self.connections.get_mut(key) else {
            return;
        };
        let (client, target) = served.session.interest();
        let ends = [
            (Source::Client, Some(&served.session.client), client),
            (Source::Target, served.session.target.as_ref(), target),
        ];
        for ((kind, state, wanted), watched) in ends.into_iter().zip(&mut served.watched) {
            let Some(socket) = state.and_then(State::stream) else {
                continue;
            };
            let token = Token::new(kind, key);
            if self.poll.change(socket, token, *watched, wanted).is_ok() {
                *watched = wanted;
            }
        }
    }

    /// Take the connection out; its slot may be reused.
    fn remove(&mut self, key: Key) -> Option<Box<Served>> {
        let served = self.connections.remove(key)?;
        self.handshaking -= usize::from(!served.open);
        self.control.metrics.open.fetch_sub(1, Ordering::Relaxed);
        let client = served.session.client.stream();
        let target = served.session.target.as_ref();
        let target = target.and_then(State::stream);
        for (socket, watched) in [client, target].into_iter().zip(served.watched) {
            if let Some(socket) = socket
                && watched != Ready::NOTHING
            {
                self.poll.remove(socket);
            }
        }
        self.resume_accepting();
        Some(served)
    }

    fn close_connection(&mut self, key: Key) {
        if let Some(served) = self.remove(key) {
            hang_up(&served.session);
        }
    }

    fn hand_over(&mut self, key: Key) {
        let Some(served) = self.remove(key) else {
            return;
        };
        self.control
            .metrics
            .handed_over
            .fetch_add(1, Ordering::Relaxed);
        // A full or closed queue refuses it; then it ends here.
        drop(self.control.handed.push(served.session.client));
    }

    fn dial(&mut self, key: Key, target: Arc<Target>) {
        match target.dial() {
            Ok(Some(state)) => {
                if let Some(served) = self.served(key) {
                    served.session.join(state);
                    let writable = Ready {
                        read: false,
                        write: true,
                    };
                    self.step(key, Ready::NOTHING, writable);
                }
            }
            Ok(None) => {
                let due = Instant::now() + Duration::from_millis(NATIVE_REDIAL_MS);
                self.redials.push((due, key, target));
            }
            Err(error) => {
                self.control.metrics.fail(error);
                self.close_connection(key);
            }
        }
    }
}

/// Shut both connections down, which ends them even if a forked child has copies of their descriptors.
fn hang_up(session: &ClientSession<Socket>) {
    let ends = [Some(&session.client), session.target.as_ref()];
    for socket in ends.into_iter().flatten().filter_map(|end| end.stream()) {
        let _ = shutdown(socket.as_fd(), Shutdown::Both);
    }
}
