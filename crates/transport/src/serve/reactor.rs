//! The thread of a native listener: sockets, deadlines, and nothing that decides about messages.
//!
//! Events carry the number and the generation of a slot, never a descriptor: what was meant for a connection
//! that is gone does not reach the one that took its slot.

mod time;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::error::Error;
use crate::limit::{
    NATIVE_CONNECTIONS_MAX, NATIVE_HANDSHAKES_MAX, NATIVE_PAUSE_MS, NATIVE_REDIAL_MS,
};
use crate::messages::Budget;
use crate::messages::state::State;
use crate::serve::acceptor::{Accepted, Acceptor, Listening};
use crate::serve::dial::Target;
use crate::serve::progress::Progress;
use crate::serve::server::{Common, ServerOptions};
use crate::serve::service::Service;
use crate::serve::session::{Action, ClientSession, Ready};
use crate::stream::owner::foreign_user_message;
use crate::stream::socket::Socket;

const EVENTS: usize = 256;
const ACCEPTS_A_TURN: usize = 64;
/// Beyond every slot.
const WAKE: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1024;

/// Which connection, told from one that had its number before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    slot: u32,
    generation: u32,
}

struct Slot {
    generation: u32,
    served: Option<Box<Served>>,
}

struct Served {
    session: ClientSession<Socket>,
    /// What epoll watches of the client and of the target.
    watched: [Ready; 2],
    open: bool,
    queued: bool,
    progress: Progress,
}

pub(crate) struct Reactor {
    epoll: OwnedFd,
    acceptor: Option<Acceptor>,
    accepting: bool,
    service: Service,
    options: ServerOptions,
    common: Arc<Common>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    handshaking: usize,
    /// In the order of their deadlines, all of which are as far away.
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
        common: Arc<Common>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = EventData::new_u64(WAKE);
        epoll::add(&epoll, &common.wake, wake, EventFlags::IN)?;
        let check_stalls_at = Instant::now() + options.stall / 4;
        let mut reactor = Self {
            epoll,
            acceptor: Some(Acceptor::new(listening)),
            accepting: false,
            service,
            options,
            common,
            slots: Vec::new(),
            free: Vec::new(),
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
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let timeout = self.timeout();
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, buffer, Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => break, // its own descriptor is no epoll any more
            }
            for event in events.drain(..) {
                self.handle(event.data.u64(), event.flags);
            }
            for key in std::mem::take(&mut self.again) {
                if let Some(served) = self.served(key) {
                    served.queued = false;
                    self.step(key, Ready::default(), Ready::default());
                }
            }
            self.keep_time(Instant::now());
            if self.is_done() {
                break;
            }
        }
        for slot in &mut self.slots {
            if let Some(served) = slot.served.take() {
                hang_up(&served.session);
            }
        }
        self.acceptor = None;
        self.common.metrics.open.store(0, Ordering::Relaxed);
        self.common.handed.close();
    }

    fn handle(&mut self, data: u64, flags: EventFlags) {
        if data == WAKE {
            let _ = rustix::io::read(&self.common.wake, &mut [0u8; 8]);
        } else if data >= LISTENER {
            self.accept(usize::try_from(data - LISTENER).unwrap_or(0));
        } else {
            let (key, target) = key_of(data);
            let gone = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            let ready = Ready {
                readable: gone || flags.contains(EventFlags::IN),
                writable: gone || flags.contains(EventFlags::OUT),
            };
            if target {
                self.step(key, Ready::default(), ready);
            } else {
                self.step(key, ready, Ready::default());
            }
        }
    }

    fn served(&mut self, key: Key) -> Option<&mut Served> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        slot.served.as_deref_mut()
    }

    // --- accepting ---

    fn accept(&mut self, socket: usize) {
        for _ in 0..ACCEPTS_A_TURN {
            if !self.has_capacity() {
                let _ = self.set_accepting(false);
                return;
            }
            if !Budget::of_process().has_room() {
                self.pause_accepting(); // nobody tells when another part of the process closes a connection
                return;
            }
            let Some(acceptor) = &mut self.acceptor else {
                return;
            };
            match acceptor.accept(socket) {
                Accepted::Connection(socket) => self.admit(socket),
                Accepted::None => return,
                Accepted::ForeignUser(uid) => {
                    self.common
                        .metrics
                        .fail(Error::Config(foreign_user_message(uid)));
                }
                Accepted::OutOfDescriptors => {
                    self.common
                        .metrics
                        .turned_away
                        .fetch_add(1, Ordering::Relaxed);
                    self.pause_accepting();
                    return;
                }
            }
        }
    }

    /// Accept nobody for a while.
    fn pause_accepting(&mut self) {
        let _ = self.set_accepting(false);
        self.resume_at = Some(Instant::now() + Duration::from_millis(NATIVE_PAUSE_MS));
    }

    fn has_capacity(&self) -> bool {
        let open = self.common.metrics.open.load(Ordering::Relaxed);
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
            if accepting {
                let data = EventData::new_u64(LISTENER + index as u64);
                epoll::add(&self.epoll, acceptor.socket(index), data, EventFlags::IN)?;
            } else {
                epoll::delete(&self.epoll, acceptor.socket(index))?;
            }
        }
        self.accepting = accepting;
        Ok(())
    }

    /// Accept again, where a full house was the reason not to.
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
            watched: [Ready::default(); 2],
            open: false,
            queued: false,
            progress: Progress::new(now),
        });
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                served: None,
            });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot = &mut self.slots[number as usize];
        slot.served = Some(served);
        let key = Key {
            slot: number,
            generation: slot.generation,
        };
        self.handshaking += 1;
        self.common.metrics.accepted.fetch_add(1, Ordering::Relaxed);
        self.common.metrics.open.fetch_add(1, Ordering::Relaxed);
        self.handshakes
            .push_back((now + self.options.handshake, key));
        let readable = Ready {
            readable: true,
            writable: false,
        };
        self.step(key, readable, Ready::default());
    }

    // --- one connection ---

    fn step(&mut self, key: Key, client: Ready, target: Ready) {
        let common = Arc::clone(&self.common);
        let Some(served) = self.served(key) else {
            return;
        };
        let action = served.session.step(client, target, &common.metrics);
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
                    self.common.metrics.fail(error);
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
                    && let Some(socket) = &target.stream
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

    /// Have epoll watch for what the connection can use. A socket of which nothing is wanted is not watched
    /// at all, since a hang-up would be reported for ever.
    fn watch(&mut self, key: Key) {
        let Some(slot) = self.slots.get_mut(key.slot as usize) else {
            return;
        };
        let Some(served) = slot.served.as_deref_mut() else {
            return;
        };
        if slot.generation != key.generation {
            return;
        }
        let (client, target) = served.session.interest();
        let ends = [
            (Some(&served.session.client), client),
            (served.session.target.as_ref(), target),
        ];
        for (side, (state, wanted)) in ends.into_iter().enumerate() {
            let watched = &mut served.watched[side];
            let Some(socket) = state.and_then(|state| state.stream.as_ref()) else {
                continue;
            };
            if *watched == wanted {
                continue;
            }
            let data = EventData::new_u64(data_of(key, side));
            let nothing = Ready::default();
            let outcome = match (*watched == nothing, wanted == nothing) {
                (_, true) => epoll::delete(&self.epoll, socket),
                (true, false) => epoll::add(&self.epoll, socket, data, flags_of(wanted)),
                (false, false) => epoll::modify(&self.epoll, socket, data, flags_of(wanted)),
            };
            if outcome.is_ok() {
                *watched = wanted;
            }
        }
    }

    /// Take the connection out; its number may be given again.
    fn remove(&mut self, key: Key) -> Option<Box<Served>> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let served = slot.served.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.slot);
        self.handshaking -= usize::from(!served.open);
        self.common.metrics.open.fetch_sub(1, Ordering::Relaxed);
        let client = served.session.client.stream.as_ref();
        let target = served.session.target.as_ref();
        let target = target.and_then(|target| target.stream.as_ref());
        for (socket, watched) in [client, target].into_iter().zip(served.watched) {
            if let Some(socket) = socket
                && watched != Ready::default()
            {
                let _ = epoll::delete(&self.epoll, socket);
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
        self.common
            .metrics
            .handed_over
            .fetch_add(1, Ordering::Relaxed);
        // Refused where nobody takes them, or after the close; then it ends here.
        drop(self.common.handed.push(served.session.client));
    }

    fn dial(&mut self, key: Key, target: Arc<Target>) {
        match target.dial() {
            Ok(Some(state)) => {
                if let Some(served) = self.served(key) {
                    served.session.join(state);
                    let writable = Ready {
                        readable: false,
                        writable: true,
                    };
                    self.step(key, Ready::default(), writable);
                }
            }
            Ok(None) => {
                let due = Instant::now() + Duration::from_millis(NATIVE_REDIAL_MS);
                self.redials.push((due, key, target));
            }
            Err(error) => {
                self.common.metrics.fail(error);
                self.close_connection(key);
            }
        }
    }
}

/// End both connections for whoever shares their descriptors too, as a forked child does.
fn hang_up(session: &ClientSession<Socket>) {
    let ends = [Some(&session.client), session.target.as_ref()];
    for socket in ends
        .into_iter()
        .flatten()
        .filter_map(|end| end.stream.as_ref())
    {
        let _ = shutdown(socket.as_fd(), Shutdown::Both);
    }
}

fn flags_of(wanted: Ready) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, wanted.readable);
    flags.set(EventFlags::OUT, wanted.writable);
    flags
}

fn data_of(key: Key, side: usize) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.slot) << 1 | side as u64
}

fn key_of(data: u64) -> (Key, bool) {
    let key = Key {
        slot: u32::try_from((data & u64::from(u32::MAX)) >> 1).unwrap_or(u32::MAX),
        generation: u32::try_from(data >> 32).unwrap_or(u32::MAX),
    };
    (key, data & 1 == 1)
}
