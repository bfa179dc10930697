//! The thread of a native listener: sockets, deadlines, and nothing that decides about messages.
//!
//! Events carry the number and the generation of a seat, never a descriptor: what was meant for a connection
//! that is gone does not reach the one that took its place.

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
use crate::limit::{NATIVE_CONNECTIONS_MAX, NATIVE_PAUSE_MS, NATIVE_REDIAL_MS, NATIVE_UNMET_MAX};
use crate::messages::Budget;
use crate::messages::state::State;
use crate::serve::dial::Target;
use crate::serve::door::{Arrival, Door, Listening};
use crate::serve::peer::{Peer, Ready, Verdict};
use crate::serve::progress::Progress;
use crate::serve::server::{Common, Options};
use crate::serve::service::Service;
use crate::stream::owner::stranger;
use crate::stream::socket::Socket;

const EVENTS: usize = 256;
const ACCEPTS_A_TURN: usize = 64;
/// Beyond every seat.
const WAKE: u64 = u64::MAX;
const DOOR: u64 = u64::MAX - 1024;

/// Which connection, told from one that had its number before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    seat: u32,
    generation: u32,
}

struct Seat {
    generation: u32,
    taken: Option<Box<Served>>,
}

struct Served {
    peer: Peer<Socket>,
    /// What epoll watches of the client and of the target.
    watched: [Ready; 2],
    met: bool,
    queued: bool,
    progress: Progress,
}

pub(crate) struct Reactor {
    epoll: OwnedFd,
    door: Option<Door>,
    accepting: bool,
    service: Service,
    options: Options,
    common: Arc<Common>,
    seats: Vec<Seat>,
    free: Vec<u32>,
    unmet: usize,
    /// In the order of their deadlines, all of which are as far away.
    handshakes: VecDeque<(Instant, Place)>,
    again: Vec<Place>,
    redials: Vec<(Instant, Place, Arc<Target>)>,
    resumes: Option<Instant>,
    looks: Instant,
    ends: Option<Instant>,
}

impl Reactor {
    pub fn new(
        listening: Listening,
        service: Service,
        options: Options,
        common: Arc<Common>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = EventData::new_u64(WAKE);
        epoll::add(&epoll, &common.wake, wake, EventFlags::IN)?;
        let looks = Instant::now() + options.stall / 4;
        let mut reactor = Self {
            epoll,
            door: Some(Door::new(listening)),
            accepting: false,
            service,
            options,
            common,
            seats: Vec::new(),
            free: Vec::new(),
            unmet: 0,
            handshakes: VecDeque::new(),
            again: Vec::new(),
            redials: Vec::new(),
            resumes: None,
            looks,
            ends: None,
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
            for place in std::mem::take(&mut self.again) {
                if let Some(served) = self.served(place) {
                    served.queued = false;
                    self.step(place, Ready::default(), Ready::default());
                }
            }
            self.keep_time(Instant::now());
            if self.is_done() {
                break;
            }
        }
        for seat in &mut self.seats {
            if let Some(served) = seat.taken.take() {
                hang_up(&served.peer);
            }
        }
        self.door = None;
        self.common.tally.open.store(0, Ordering::Relaxed);
        self.common.handed.close();
    }

    fn handle(&mut self, data: u64, flags: EventFlags) {
        if data == WAKE {
            let _ = rustix::io::read(&self.common.wake, &mut [0u8; 8]);
        } else if data >= DOOR {
            self.accept(usize::try_from(data - DOOR).unwrap_or(0));
        } else {
            let (place, target) = place_of(data);
            let gone = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            let ready = Ready {
                readable: gone || flags.contains(EventFlags::IN),
                writable: gone || flags.contains(EventFlags::OUT),
            };
            if target {
                self.step(place, Ready::default(), ready);
            } else {
                self.step(place, ready, Ready::default());
            }
        }
    }

    fn served(&mut self, place: Place) -> Option<&mut Served> {
        let seat = self.seats.get_mut(place.seat as usize)?;
        if seat.generation != place.generation {
            return None;
        }
        seat.taken.as_deref_mut()
    }

    // --- accepting ---

    fn accept(&mut self, socket: usize) {
        for _ in 0..ACCEPTS_A_TURN {
            if !self.has_places() {
                let _ = self.set_accepting(false);
                return;
            }
            if !Budget::of_process().has_room() {
                self.rest(); // nobody tells when a connection of somebody else ends
                return;
            }
            let Some(door) = &mut self.door else { return };
            match door.accept(socket) {
                Arrival::Connection(socket) => self.seat(socket),
                Arrival::Nobody => return,
                Arrival::Stranger(uid) => {
                    self.common.tally.fail(Error::Config(stranger(uid)));
                }
                Arrival::Exhausted => {
                    self.common
                        .tally
                        .turned_away
                        .fetch_add(1, Ordering::Relaxed);
                    self.rest();
                    return;
                }
            }
        }
    }

    /// Accept nobody for a while.
    fn rest(&mut self) {
        let _ = self.set_accepting(false);
        self.resumes = Some(Instant::now() + Duration::from_millis(NATIVE_PAUSE_MS));
    }

    fn has_places(&self) -> bool {
        let open = self.common.tally.open.load(Ordering::Relaxed);
        self.unmet < NATIVE_UNMET_MAX && open < NATIVE_CONNECTIONS_MAX
    }

    fn set_accepting(&mut self, accepting: bool) -> Result<(), Errno> {
        let Some(door) = &self.door else {
            return Ok(());
        };
        if self.accepting == accepting {
            return Ok(());
        }
        for place in 0..door.sockets() {
            if accepting {
                let data = EventData::new_u64(DOOR + place as u64);
                epoll::add(&self.epoll, door.socket(place), data, EventFlags::IN)?;
            } else {
                epoll::delete(&self.epoll, door.socket(place))?;
            }
        }
        self.accepting = accepting;
        Ok(())
    }

    /// Accept again, where a full house was the reason not to.
    fn welcome(&mut self) {
        if !self.accepting && self.resumes.is_none() && self.has_places() {
            let _ = self.set_accepting(true);
        }
    }

    fn seat(&mut self, socket: OwnedFd) {
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
            peer: Peer::new(client, self.service.clone()),
            watched: [Ready::default(); 2],
            met: false,
            queued: false,
            progress: Progress::new(now),
        });
        let number = self.free.pop().unwrap_or_else(|| {
            self.seats.push(Seat {
                generation: 0,
                taken: None,
            });
            u32::try_from(self.seats.len() - 1).unwrap_or(u32::MAX)
        });
        let seat = &mut self.seats[number as usize];
        seat.taken = Some(served);
        let place = Place {
            seat: number,
            generation: seat.generation,
        };
        self.unmet += 1;
        self.common.tally.accepted.fetch_add(1, Ordering::Relaxed);
        self.common.tally.open.fetch_add(1, Ordering::Relaxed);
        self.handshakes
            .push_back((now + self.options.handshake, place));
        let readable = Ready {
            readable: true,
            writable: false,
        };
        self.step(place, readable, Ready::default());
    }

    // --- one connection ---

    fn step(&mut self, place: Place, client: Ready, target: Ready) {
        let common = Arc::clone(&self.common);
        let Some(served) = self.served(place) else {
            return;
        };
        let verdict = served.peer.step(client, target, &common.tally);
        let newly_met = !served.met && served.peer.client.is_met();
        if newly_met {
            served.met = true;
            self.unmet -= 1;
            self.welcome();
        }
        match verdict {
            Verdict::Stay => {}
            Verdict::Again => self.come_back(place),
            Verdict::Leave(error) => {
                if let Some(error) = error {
                    self.common.tally.fail(error);
                }
                self.dismiss(place);
                return;
            }
            Verdict::HandOver => {
                self.hand_over(place);
                return;
            }
            Verdict::Dial(target) => self.dial(place, target),
            Verdict::EndTarget => {
                if let Some(served) = self.served(place)
                    && let Some(target) = &served.peer.target
                    && let Some(socket) = &target.stream
                {
                    let _ = shutdown(socket.as_fd(), Shutdown::Write);
                }
            }
        }
        self.watch(place);
    }

    fn come_back(&mut self, place: Place) {
        if let Some(served) = self.served(place)
            && !served.queued
        {
            served.queued = true;
            self.again.push(place);
        }
    }

    /// Have epoll watch for what the connection can use. A socket of which nothing is wanted is not watched
    /// at all, since a hang-up would be reported for ever.
    fn watch(&mut self, place: Place) {
        let Some(seat) = self.seats.get_mut(place.seat as usize) else {
            return;
        };
        let Some(served) = seat.taken.as_deref_mut() else {
            return;
        };
        if seat.generation != place.generation {
            return;
        }
        let (client, target) = served.peer.interest();
        let ends = [
            (Some(&served.peer.client), client),
            (served.peer.target.as_ref(), target),
        ];
        for (side, (state, wanted)) in ends.into_iter().enumerate() {
            let watched = &mut served.watched[side];
            let Some(socket) = state.and_then(|state| state.stream.as_ref()) else {
                continue;
            };
            if *watched == wanted {
                continue;
            }
            let data = EventData::new_u64(data_of(place, side));
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
    fn vacate(&mut self, place: Place) -> Option<Box<Served>> {
        let seat = self.seats.get_mut(place.seat as usize)?;
        if seat.generation != place.generation {
            return None;
        }
        let served = seat.taken.take()?;
        seat.generation = seat.generation.wrapping_add(1);
        self.free.push(place.seat);
        self.unmet -= usize::from(!served.met);
        self.common.tally.open.fetch_sub(1, Ordering::Relaxed);
        let client = served.peer.client.stream.as_ref();
        let target = served.peer.target.as_ref();
        let target = target.and_then(|target| target.stream.as_ref());
        for (socket, watched) in [client, target].into_iter().zip(served.watched) {
            if let Some(socket) = socket
                && watched != Ready::default()
            {
                let _ = epoll::delete(&self.epoll, socket);
            }
        }
        self.welcome();
        Some(served)
    }

    fn dismiss(&mut self, place: Place) {
        if let Some(served) = self.vacate(place) {
            hang_up(&served.peer);
        }
    }

    fn hand_over(&mut self, place: Place) {
        let Some(served) = self.vacate(place) else {
            return;
        };
        self.common
            .tally
            .handed_over
            .fetch_add(1, Ordering::Relaxed);
        // Refused where nobody takes them, or after the close; then it ends here.
        drop(self.common.handed.push(served.peer.client));
    }

    fn dial(&mut self, place: Place, target: Arc<Target>) {
        match target.dial() {
            Ok(Some(state)) => {
                if let Some(served) = self.served(place) {
                    served.peer.join(state);
                    let writable = Ready {
                        readable: false,
                        writable: true,
                    };
                    self.step(place, Ready::default(), writable);
                }
            }
            Ok(None) => {
                let due = Instant::now() + Duration::from_millis(NATIVE_REDIAL_MS);
                self.redials.push((due, place, target));
            }
            Err(error) => {
                self.common.tally.fail(error);
                self.dismiss(place);
            }
        }
    }
}

/// End both connections for whoever shares their descriptors too, as a forked child does.
fn hang_up(peer: &Peer<Socket>) {
    let ends = [Some(&peer.client), peer.target.as_ref()];
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

fn data_of(place: Place, side: usize) -> u64 {
    u64::from(place.generation) << 32 | u64::from(place.seat) << 1 | side as u64
}

fn place_of(data: u64) -> (Place, bool) {
    let place = Place {
        seat: u32::try_from((data & u64::from(u32::MAX)) >> 1).unwrap_or(u32::MAX),
        generation: u32::try_from(data >> 32).unwrap_or(u32::MAX),
    };
    (place, data & 1 == 1)
}
