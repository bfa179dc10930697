//! The thread of a native listener: sockets and deadlines, and no decision about messages.
//!
//! An event carries the key of a slot, never a descriptor: one that was meant for a closed connection does not reach the
//! next one in its slot.
//!
//! The tensor server has its own loop over the same parts (`Poll`, `Slots`, [`Acceptor`], [`PendingHandshakes`]). Of a
//! turn only the walks over events and `again` are the same; how an event is handled, the wait, what is due without an
//! event, the deadlines and the end differ, and each would be a method of a trait.

mod time;

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
    NATIVE_CONNECTIONS_MAX, NATIVE_HANDSHAKES_MAX, NATIVE_REDIAL_MS, NATIVE_STALL_LOOKS,
};
use crate::link::stall::StallTimer;
use crate::messages::Budget;
use crate::messages::state::State;
use crate::serve::acceptor::{Accepted, Acceptor, Listening};
use crate::serve::control::Control;
use crate::serve::dial::Target;
use crate::serve::options::ServerOptions;
use crate::serve::pending_handshakes::PendingHandshakes;
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
    acceptor: Acceptor<Source>,
    service: Service,
    options: ServerOptions,
    control: Arc<Control>,
    connections: Slots<Box<Served>>,
    handshakes: PendingHandshakes,
    again: Vec<Key>,
    redials: Vec<(Instant, Key, Arc<Target>)>,
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
        let mut acceptor = Acceptor::new(vec![listening], Source::Listener);
        acceptor.start(&poll)?;
        Ok(Self {
            poll,
            acceptor,
            service,
            control,
            connections: Slots::new(),
            handshakes: PendingHandshakes::new(NATIVE_HANDSHAKES_MAX, options.handshake),
            again: Vec::new(),
            redials: Vec::new(),
            check_stalls_at: Instant::now() + options.stall / NATIVE_STALL_LOOKS,
            close_at: None,
            options,
        })
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
        self.acceptor.close(&self.poll);
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
                return self.acceptor.stop(&self.poll);
            }
            if !Budget::of_process().has_room() {
                // Other parts of the process close connections without telling this one: try again later.
                return self.acceptor.pause(&self.poll);
            }
            match self.acceptor.accept(&self.poll, socket) {
                Accepted::Connection { socket, .. } => self.admit(socket),
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
                    return;
                }
            }
        }
    }

    fn has_capacity(&self) -> bool {
        let open = self.control.metrics.open.load(Ordering::Relaxed);
        self.handshakes.has_room() && open < NATIVE_CONNECTIONS_MAX
    }

    /// Accept again, unless there is no room or a pause lasts.
    fn resume_accepting(&mut self) {
        if self.has_capacity() {
            self.acceptor.resume(&self.poll);
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
        self.handshakes.begin(key, now);
        self.control
            .metrics
            .accepted
            .fetch_add(1, Ordering::Relaxed);
        self.control.metrics.open.fetch_add(1, Ordering::Relaxed);
        self.step(key, Ready::READ, Ready::NOTHING);
    }

    // --- one connection ---

    fn step(&mut self, key: Key, client: Ready, target: Ready) {
        let control = Arc::clone(&self.control);
        let Some(served) = self.served(key) else {
            return;
        };
        let action = served.session.step(client, target, &control.metrics);
        let newly_open = !served.open && served.session.client.has_opened();
        if newly_open {
            served.open = true;
            self.handshakes.end();
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
        if !served.open {
            self.handshakes.end();
        }
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
