//! The thread of a server: sockets, deadlines and commands. What requests mean is the shard's business.
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use forebay_transport::drive::Look;
use forebay_transport::link::Admission;
use forebay_transport::serve::Acceptor;
use forebay_transport::stream::{Wire, tls};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use super::fabric::{FabricPeers, has_ended};
use super::files::Files;
use super::guest::Verdict;
use super::seats::{Occupant, Place, Seats};
use super::showing::show;
use super::tally::Tally;
use super::time::Clock;
use super::{Common, Entrance, Options};
use crate::error::Error;
use crate::greeting::{Hello, Welcome};
use crate::responder::{PeerId, Shard};
use crate::shm::Announced;
use crate::stream::channel::{Channel, Fault};
use crate::stream::exchange::{self, Machine, Pieces, Standing};
use crate::sys::span::Span;

const EVENTS: usize = 256;
/// Beyond every seat.
const WAKE: u64 = u64::MAX;
pub(super) const FILES: u64 = u64::MAX - 1;
pub(super) const DOORS: u64 = FILES - (1 << 20);
/// Sockets of one entrance, in the data of their events.
pub(super) const SOCKETS_MAX: u64 = 1 << 10;

/// Somebody who was let in.
pub(super) struct Peer {
    pub(super) id: PeerId,
    channel: Channel,
    watched: EventFlags,
    /// It is on the list of those that have more to do.
    queued: bool,
}

pub(super) struct Way {
    pub(super) door: Acceptor,
    pub(super) tls: Option<Arc<tls::Server>>,
    pub(super) admission: Admission,
}

pub(super) struct Reactor<K> {
    pub(super) epoll: OwnedFd,
    pub(super) ways: Vec<Way>,
    pub(super) accepting: bool,
    pub(super) shard: Shard<K>,
    pub(super) common: Arc<Common<K>>,
    pub(super) seats: Seats,
    pub(super) clock: Clock,
    pub(super) guests: usize,
    pub(super) options: Options,
    pub(super) incarnation: u64,
    /// Where its board is, if others can map it.
    announced: Option<Announced>,
    again: Vec<Place>,
    /// Connections over the fabric beside the stream; none where there is no such fabric.
    pub(super) fabric: Option<FabricPeers>,
    pieces: Pieces,
    pub(super) files: Files,
    /// Reads of files may have ended.
    pub(super) files_woken: bool,
    pub(super) watches_files: bool,
    /// Where the shard's peers sit, by their index.
    pub(super) places: Vec<Option<Place>>,
    /// Peers whose reads have ended.
    pub(super) ready: Vec<PeerId>,
    /// Whether the thread looks for a while before it sleeps.
    pub(super) look: Look,
}

/// One peer of the shard, as a machine.
struct Answering<'a, K> {
    shard: &'a mut Shard<K>,
    id: PeerId,
}

impl<K: Send> Machine for Answering<'_, K> {
    fn outgoing(&mut self, into: &mut [Span]) -> usize {
        self.shard.outgoing(self.id, into)
    }
    fn sent(&mut self, bytes: usize, now: Instant) {
        self.shard.sent(self.id, bytes, now);
    }
    fn incoming(&mut self) -> [Span; 2] {
        self.shard.incoming(self.id)
    }
    fn received(&mut self, bytes: usize, now: Instant) -> Result<(), Error> {
        self.shard.received(self.id, bytes, now)
    }
    fn feed(&mut self, bytes: &[u8], now: Instant) -> Result<(), Error> {
        self.shard.feed(self.id, bytes, now)
    }
}

impl<K: Send> Reactor<K> {
    pub(super) fn new(
        entrances: Vec<Entrance>,
        (mut shard, options): (Shard<K>, Options),
        incarnation: u64,
        common: Arc<Common<K>>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        if let Some(orders) = &*common.orders() {
            let data = EventData::new_u64(WAKE);
            epoll::add(&epoll, &orders.wake, data, EventFlags::IN)?;
        }
        let ways = entrances.into_iter().map(|entrance| Way {
            door: Acceptor::new(entrance.listening),
            tls: entrance.tls,
            admission: entrance.admission,
        });
        let fabric = options
            .fabric
            .clone()
            .map(|provider| FabricPeers::new(provider, &mut shard));
        let announced = show(&mut shard, &options, incarnation, &common.tally);
        Ok(Self {
            epoll,
            ways: ways.collect(),
            accepting: false,
            shard,
            common,
            seats: Seats::default(),
            clock: Clock::new(options.handshake),
            guests: 0,
            options,
            incarnation,
            announced,
            again: Vec::new(),
            fabric,
            pieces: exchange::pieces(),
            files: Files::default(),
            files_woken: false,
            watches_files: false,
            places: Vec::new(),
            ready: Vec::new(),
            look: Look::default(),
        })
    }

    /// Serve until the owner closes.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.is_done() {
            self.open();
            let at_once =
                !self.again.is_empty() || self.files.is_due(&self.shard) || self.answers_are_due();
            if self.sleep(at_once, &mut events).is_err() {
                break; // its own descriptor is no epoll any more
            }
            for event in events.drain(..) {
                self.handle(event.data.u64());
            }
            for place in std::mem::take(&mut self.again) {
                if let Some(Occupant::Peer(peer)) = self.seats.get(place) {
                    peer.queued = false;
                }
                self.step(place);
            }
            self.obey();
            self.answer_due();
            self.read();
            self.keep_time(Instant::now());
        }
        self.end();
    }

    fn handle(&mut self, data: u64) {
        if data == WAKE {
            if let Some(orders) = &*self.common.orders() {
                _ = rustix::io::read(&orders.wake, &mut [0u8; 8]);
            }
        } else if data == FILES {
            self.files_woken = true;
        } else if data >= DOORS {
            let number = data - DOORS;
            let at = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
            self.accept(at(number / SOCKETS_MAX), at(number % SOCKETS_MAX));
        } else {
            self.step(Place::from_data(data));
        }
    }

    /// Do what the owner wants done.
    fn obey(&mut self) {
        let commands = match &mut *self.common.orders() {
            Some(orders) if !orders.commands.is_empty() => std::mem::take(&mut orders.commands),
            _ => return,
        };
        for command in commands {
            command(&mut self.shard, &mut self.files);
        }
        self.watch_files();
    }

    fn end(mut self) {
        for place in self.seats.places() {
            self.dismiss(place);
        }
        self.ways.clear();
        self.files.end();
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.common.tally
    }

    // --- one connection ---

    pub(super) fn step(&mut self, place: Place) {
        match self.seats.get(place) {
            Some(Occupant::Guest(guest)) => {
                let verdict = guest.step();
                self.act_on(place, verdict);
            }
            Some(Occupant::Peer(_)) => self.serve(place),
            Some(Occupant::Answerer(..)) => self.answer_fabric(place),
            Some(Occupant::Lifeline(wire, _)) if has_ended(wire) => self.dismiss(place),
            None | Some(Occupant::Lifeline(..)) => {}
        }
    }

    fn act_on(&mut self, place: Place, mut verdict: Verdict) {
        let answer = match &verdict {
            Verdict::Asks(hello) => Some(self.answer(*hello)),
            Verdict::Introduces(introduction) => Some(self.meet(place, introduction)),
            Verdict::Stay | Verdict::Admitted(..) | Verdict::Leave(_) => None,
        };
        if let Some(answer) = answer {
            let Some(Occupant::Guest(guest)) = self.seats.get(place) else {
                return;
            };
            verdict = match answer {
                Ok(welcome) => guest.welcome(&welcome),
                Err(error) => {
                    guest.refuse(&error);
                    guest.step()
                }
            };
        }
        match verdict {
            Verdict::Admitted(wire, slots) => self.admit(place, (wire, slots)),
            Verdict::Leave(why) => {
                self.tally().fail(&self.tally().refused, why);
                self.dismiss(place);
            }
            Verdict::Stay | Verdict::Asks(_) | Verdict::Introduces(..) => self.watch_guest(place),
        }
    }

    /// Refuse one more beside so many.
    pub(super) fn check_room(&self, present: usize) -> Result<(), Error> {
        let value = present as u64 + 1;
        let maximum = u64::from(self.options.limits.peers_max);
        if value <= maximum {
            return Ok(());
        }
        Err(Error::Limit {
            limit: "max_peers",
            value,
            maximum,
            advice: "close clients that are not used, or raise it",
        })
    }

    fn answer(&mut self, hello: Hello) -> Result<Welcome, Error> {
        let limits = &self.options.limits;
        self.check_room(self.common.tally.peers.load(Ordering::Relaxed))?;
        Ok(Welcome {
            slots: hello.slots.min(limits.slots),
            grant_bytes: limits.grant_bytes,
            incarnation: self.incarnation,
            announced: self
                .announced
                .filter(|_| hello.fabrics & Hello::SHARED_MEMORY != 0),
            verbs: self.offered(hello),
            note: self.options.note.clone(),
        })
    }

    fn admit(&mut self, place: Place, (wire, slots): (Wire, u32)) {
        if let Some(Occupant::Guest(guest)) = self.seats.get(place)
            && let Some(answerer) = guest.answerer
        {
            return self.admit_lifeline(place, wire, answerer);
        }
        let now = Instant::now();
        let admitted = Channel::new(wire)
            .map_err(|error| error.to_string())
            .and_then(|channel| {
                let id = self.shard.connect(slots, now);
                let id = id.map_err(|error| error.to_string())?;
                Ok((channel, id))
            });
        let (channel, id) = match admitted {
            Ok(admitted) => admitted,
            Err(why) => {
                self.tally().fail(&self.tally().refused, why);
                return self.dismiss(place);
            }
        };
        let peer = Peer {
            id,
            channel,
            watched: EventFlags::empty(), // not what it was watched for as a guest, whatever that was
            queued: false,
        };
        drop(self.seats.replace(place, Occupant::Peer(Box::new(peer))));
        if self.places.len() <= id.index() {
            self.places.resize(id.index() + 1, None);
        }
        self.places[id.index()] = Some(place);
        self.guests -= 1;
        self.common.tally.peers.fetch_add(1, Ordering::Relaxed);
        self.welcome();
        self.serve(place);
    }

    /// One turn of a peer: take its requests, send its answers.
    fn serve(&mut self, place: Place) {
        let closing = self.common.closing.load(Ordering::Acquire);
        let Some(Occupant::Peer(peer)) = self.seats.get(place) else {
            return;
        };
        let now = Instant::now();
        let mut machine = Answering {
            shard: &mut self.shard,
            id: peer.id,
        };
        let mut standing = Standing::default();
        let channel = &mut peer.channel;
        let mut turned = Ok(());
        if !closing {
            turned = exchange::receive(channel, &mut machine, now, &mut standing);
        }
        let mut sending = Standing::default();
        let pieces = &mut self.pieces;
        // What was asked for before a fault is not answered: nobody reads it, or nobody can be trusted with it.
        turned =
            turned.and_then(|()| exchange::send(channel, &mut machine, pieces, now, &mut sending));
        let tally = &self.common.tally;
        let add = |to: &std::sync::atomic::AtomicU64, bytes: usize| {
            to.fetch_add(bytes as u64, Ordering::Relaxed);
        };
        add(&tally.received_bytes, standing.received);
        add(&tally.sent_bytes, sending.sent);
        if let Err(fault) = turned {
            return self.lose(place, &fault);
        }
        let more = standing.again || sending.again || (!closing && channel.holds_received());
        if more && !peer.queued {
            peer.queued = true;
            self.again.push(place);
        }
        self.clock.expect(now, self.options.limits.liveness);
        self.watch(place, sending.blocked);
        self.retire();
    }

    /// The connection is over, for a reason that is not ours.
    pub(super) fn lose(&mut self, place: Place, fault: &Fault) {
        let quiet = match self.seats.get(place) {
            Some(Occupant::Peer(peer)) => self.shard.is_quiet(peer.id),
            _ => true,
        };
        if !(quiet && matches!(fault, Fault::Ended)) {
            let why = fault.clone().into_error().to_string();
            self.tally().fail(&self.tally().broken, why);
        }
        self.dismiss(place);
    }

    // --- epoll ---

    fn watch(&mut self, place: Place, blocked: bool) {
        let Some(Occupant::Peer(peer)) = self.seats.get(place) else {
            return;
        };
        let mut wanted = EventFlags::empty();
        // What comes after the close is not read: watched for, it would wake the thread again and again.
        wanted.set(EventFlags::IN, !self.common.closing.load(Ordering::Acquire));
        wanted.set(EventFlags::OUT, blocked);
        if wanted != peer.watched {
            let data = EventData::new_u64(place.to_data());
            if epoll::modify(&self.epoll, peer.channel.socket(), data, wanted).is_ok() {
                peer.watched = wanted;
            }
        }
    }

    fn watch_guest(&mut self, place: Place) {
        let Some(Occupant::Guest(guest)) = self.seats.get(place) else {
            return;
        };
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, guest.wants_read());
        wanted.set(EventFlags::OUT, guest.wants_write());
        if let Some(wire) = guest.wire() {
            let data = EventData::new_u64(place.to_data());
            _ = epoll::modify(&self.epoll, wire.socket(), data, wanted);
        }
        if guest.holds_received() {
            self.again.push(place);
        }
    }

    /// Let somebody go, whoever it is.
    pub(super) fn dismiss(&mut self, place: Place) {
        match self.seats.leave(place) {
            None => {}
            Some(Occupant::Guest(guest)) => {
                self.guests -= 1;
                if let Some(wire) = guest.wire() {
                    _ = epoll::delete(&self.epoll, wire.socket());
                }
                if let Some(answerer) = guest.answerer {
                    self.part(answerer);
                }
                guest.hang_up();
                self.welcome();
            }
            Some(Occupant::Answerer(answerer, lifeline)) => {
                self.part(answerer);
                self.dismiss(lifeline);
            }
            Some(Occupant::Lifeline(mut wire, answerer)) => {
                _ = epoll::delete(&self.epoll, wire.socket());
                wire.hang_up();
                self.dismiss(answerer);
            }
            Some(Occupant::Peer(peer)) => {
                self.common.tally.peers.fetch_sub(1, Ordering::Relaxed);
                _ = epoll::delete(&self.epoll, peer.channel.socket().as_fd());
                peer.channel.hang_up();
                self.shard.disconnect(peer.id);
                self.places[peer.id.index()] = None;
                self.retire();
            }
        }
    }

    /// Have a peer's turn come.
    pub(super) fn touch(&mut self, place: Place) {
        self.serve(place);
    }
}
