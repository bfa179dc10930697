//! The thread of a server: sockets, deadlines and commands. The shard interprets the requests.
//!
//! A turn of the loop: wait; handle events; give peers whose last turn ended with its budget another one; run commands;
//! answer the fabric; begin reads of files; check deadlines. Every step is bounded, so no peer can starve the others.
//!
//! The loop stays apart from that of the transport's `serve`, whose acceptor and handshakes it uses; that one says why.
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_base::accept::ACCEPTS_PER_TURN;
use forebay_base::poll::{Poll, Ready, Token};
use forebay_base::slots::{Key, Slots};
use forebay_base::time;
use forebay_transport::drive::Look;
use forebay_transport::serve::{Accepted, Acceptor, PendingHandshakes};
use forebay_transport::stream::owner::foreign_user_message;
use forebay_transport::stream::{Socket, Wire};
use rustix::io::Errno;

use super::connection::{Connection, PeerConnection, Watched};
use super::entrance::EntranceRules;
use super::fabric::{FabricPeers, has_ended};
use super::file_reads::FileReads;
use super::handshake::Verdict;
use super::index::publish_index;
use super::metrics::Metrics;
use super::time::Timers;
use super::{Common, Entrance, Options};
use crate::error::{Class, Error};
use crate::handshake::{Hello, Welcome};
use crate::limit::HANDSHAKES_MAX;
use crate::responder::{PeerId, Shard};
use crate::shm::IndexLocation;
use crate::stream::channel::{Channel, Fault};
use crate::stream::exchange::{self, Machine, Pieces, Progress};
use crate::sys::span::Span;

pub(super) struct Reactor<K> {
    poll: Poll<Watched>,
    acceptor: Acceptor<Watched>,
    /// In the order of what the acceptor listens on.
    rules: Vec<EntranceRules>,
    handshakes: PendingHandshakes,
    shard: Shard<K>,
    common: Arc<Common<K>>,
    slots: Slots<Connection>,
    timers: Timers,
    options: Options,
    incarnation: u64,
    /// Where its shared index is, if it has one.
    shared_index: Option<IndexLocation>,
    /// Connections with more to do without an event.
    again: Vec<Key>,
    /// Connections over the fabric; `None` without one.
    fabric: Option<FabricPeers>,
    pieces: Pieces,
    files: FileReads,
    /// The slot of each of the shard's peers, by the peer's index.
    peer_keys: Vec<Option<Key>>,
    /// Whether the thread spins for a while before it sleeps.
    look: Look,
}

/// In a welcome: the fabric is offered.
const OFFERED: u8 = 1;

/// One peer of the shard, as a state machine.
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
        let poll = Poll::new()?;
        if let Some(commands) = &*common.commands() {
            poll.add(
                &commands.wakeup,
                Token::only(Watched::Commands),
                Ready::READ,
            )?;
        }
        let fabric = options
            .fabric
            .clone()
            .map(|provider| FabricPeers::new(provider, &mut shard));
        let shared_index = publish_index(&mut shard, &options, incarnation, &common.metrics);
        let (listening, rules) = EntranceRules::split(entrances);
        Ok(Self {
            poll,
            acceptor: Acceptor::new(listening, Watched::Listener),
            rules,
            handshakes: PendingHandshakes::new(HANDSHAKES_MAX, options.handshake),
            shard,
            common,
            slots: Slots::default(),
            timers: Timers::default(),
            options,
            incarnation,
            shared_index,
            again: Vec::new(),
            fabric,
            pieces: exchange::pieces(),
            files: FileReads::default(),
            peer_keys: Vec::new(),
            look: Look::default(),
        })
    }

    /// Serve until the owner closes.
    pub(super) fn run(mut self) {
        while !self.is_done() {
            self.open();
            let at_once = !self.again.is_empty()
                || self.files.is_due(&self.shard)
                || self.fabric.as_ref().is_some_and(FabricPeers::is_due);
            if self.wait(at_once).is_err() {
                break; // the epoll descriptor is broken: nothing can be served
            }
            let mut found = 0;
            while let Some((token, _)) = self.poll.event(found) {
                self.handle(token);
                found += 1;
            }
            for key in std::mem::take(&mut self.again) {
                if let Some(Connection::Peer(peer)) = self.slots.get_mut(key) {
                    peer.queued = false;
                }
                self.step(key);
            }
            self.run_commands();
            self.answer_due();
            self.read();
            self.keep_time(Instant::now());
        }
        self.end();
    }

    fn handle(&mut self, token: Token<Watched>) {
        match token.kind {
            Watched::Commands => {
                if let Some(commands) = &*self.common.commands() {
                    commands.wakeup.clear();
                }
            }
            Watched::Files => self.files.wake(),
            Watched::Listener => self.accept(token.key.index as usize),
            Watched::Connection => self.step(token.key),
        }
    }

    /// Run the owner's commands.
    fn run_commands(&mut self) {
        let commands = match &mut *self.common.commands() {
            Some(commands) if !commands.pending.is_empty() => std::mem::take(&mut commands.pending),
            _ => return,
        };
        for command in commands {
            command(&mut self.shard, self.files.files());
        }
        self.files.watch(&self.poll);
    }

    /// Take finished reads of files, and begin further ones.
    fn read(&mut self) {
        let mut ready = self.files.turn(&mut self.shard);
        for id in ready.drain(..) {
            if let Some(Some(key)) = self.peer_keys.get(id.index()).copied() {
                self.serve(key); // if that peer is gone its successor gets one more turn, which is harmless
            }
        }
        self.files.served(ready);
        self.files.retire(&mut self.shard);
    }

    fn end(mut self) {
        let keys: Vec<Key> = self.slots.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.remove(key);
        }
        self.acceptor.close(&self.poll);
        self.files.end();
    }

    fn metrics(&self) -> &Metrics {
        &self.common.metrics
    }

    // --- time ---

    /// Wait for events, unless there is work already.
    fn wait(&mut self, at_once: bool) -> Result<(), Errno> {
        if !at_once {
            let dues = [
                self.acceptor.deadline(),
                self.handshakes.deadline(),
                self.timers.deadline(),
            ];
            let timeout = time::left(dues.into_iter().flatten().min());
            let slept = self.look.await_input(self.poll.as_fd(), timeout);
            if let Err(errno) = slept
                && errno != Errno::INTR
            {
                return Err(errno);
            }
        }
        self.poll.wait(Some(Duration::ZERO))
    }

    fn keep_time(&mut self, now: Instant) {
        while let Some(key) = self.late_handshake(now) {
            self.metrics().late.fetch_add(1, Ordering::Relaxed);
            self.remove(key);
        }
        if self.acceptor.ends_pause(now) {
            self.resume_accepting();
        }
        if self.timers.checks_peers(now) {
            self.expire_peers(now);
        }
    }

    fn late_handshake(&mut self, now: Instant) -> Option<Key> {
        let slots = &self.slots;
        let is_under_way = |key| matches!(slots.get(key), Some(Connection::Handshake(_)));
        self.handshakes.take_late(now, is_under_way)
    }

    /// Drop peers that have been silent for too long.
    fn expire_peers(&mut self, now: Instant) {
        for (key, id) in self.peers() {
            match self.shard.expire(id, now) {
                Ok(Some(due)) => self.timers.check_peers_at(due),
                Ok(None) => {}
                Err(error) => self.lose(key, &Fault::Peer(error)),
            }
        }
    }

    /// Whether a closing server is done.
    fn is_done(&mut self) -> bool {
        if !self.common.closing.load(Ordering::Acquire) {
            return false;
        }
        let now = Instant::now();
        if self.timers.begin_grace(now, self.options.grace) {
            self.acceptor.stop(&self.poll);
            for (key, _) in self.peers() {
                self.serve(key); // stops reading from it
            }
        }
        self.timers.is_grace_over(now)
            || !self.fabric.as_ref().is_some_and(FabricPeers::is_sending)
                && self
                    .peers()
                    .iter()
                    .all(|(_, id)| !self.shard.has_pending_output(*id))
    }

    /// The admitted peers, and their ids in the shard.
    fn peers(&self) -> Vec<(Key, PeerId)> {
        let peer = |(key, connection): (Key, &Connection)| match connection {
            Connection::Peer(peer) => Some((key, peer.id)),
            _ => None,
        };
        self.slots.iter().filter_map(peer).collect()
    }

    // --- accepting ---

    fn accept(&mut self, socket: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            if !self.handshakes.has_room() {
                return self.acceptor.stop(&self.poll);
            }
            match self.acceptor.accept(&self.poll, socket) {
                Accepted::Connection { socket, listening } => {
                    self.begin_handshake(listening, socket);
                }
                Accepted::Nothing => return,
                Accepted::ForeignUser(uid) => {
                    self.metrics()
                        .fail(&self.metrics().refused, foreign_user_message(uid));
                }
                Accepted::Exhausted => {
                    self.metrics().turned_away.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    /// Begin to accept, if the owner asked for it since the last turn.
    fn open(&mut self) {
        let closing = self.common.closing.load(Ordering::Acquire);
        if !closing && self.common.opening.swap(false, Ordering::AcqRel) {
            self.acceptor.resume(&self.poll);
        }
    }

    fn begin_handshake(&mut self, entrance: usize, connection: OwnedFd) {
        self.metrics().accepted.fetch_add(1, Ordering::Relaxed);
        let connection: Socket = Arc::new(connection);
        let handshake = match self.rules[entrance].handshake(Arc::clone(&connection)) {
            Ok(handshake) => handshake,
            Err(why) => return self.metrics().fail(&self.metrics().refused, why),
        };
        let key = self
            .slots
            .insert(Connection::Handshake(Box::new(handshake)));
        self.handshakes.begin(key, Instant::now());
        let token = Token::new(Watched::Connection, key);
        if self.poll.add(&connection, token, Ready::READ).is_err() {
            return self.remove(key);
        }
        self.step(key);
    }

    /// Accept again after too many handshakes or a pause.
    fn resume_accepting(&mut self) {
        let closing = self.common.closing.load(Ordering::Acquire);
        if !closing && self.handshakes.has_room() {
            self.acceptor.resume(&self.poll);
        }
    }

    fn end_handshake(&mut self) {
        self.handshakes.end();
        self.resume_accepting();
    }

    // --- one connection ---

    fn step(&mut self, key: Key) {
        match self.slots.get_mut(key) {
            Some(Connection::Handshake(handshake)) => {
                let verdict = handshake.step();
                self.act_on(key, verdict);
            }
            Some(Connection::Peer(_)) => self.serve(key),
            Some(Connection::Endpoint(..)) => self.answer_fabric(key),
            Some(Connection::Lifeline(wire, _)) if has_ended(wire) => self.remove(key),
            None | Some(Connection::Lifeline(..)) => {}
        }
    }

    fn act_on(&mut self, key: Key, mut verdict: Verdict) {
        let answer = match &verdict {
            Verdict::Asks(hello) => Some(self.answer_hello(*hello)),
            Verdict::Introduces(introduction) => Some(self.connect_fabric(key, introduction)),
            Verdict::Stay | Verdict::Admitted(..) | Verdict::Leave(_) => None,
        };
        if let Some(answer) = answer {
            let Some(Connection::Handshake(handshake)) = self.slots.get_mut(key) else {
                return;
            };
            verdict = match answer {
                Ok(welcome) => handshake.welcome(&welcome),
                Err(error) => {
                    handshake.refuse(&error);
                    handshake.step()
                }
            };
        }
        match verdict {
            Verdict::Admitted(wire, slots) => self.admit(key, (wire, slots)),
            Verdict::Leave(why) => {
                self.metrics().fail(&self.metrics().refused, why);
                self.remove(key);
            }
            Verdict::Stay | Verdict::Asks(_) | Verdict::Introduces(..) => self.watch_handshake(key),
        }
    }

    /// Check that one more than `present` is within `max_peers`.
    fn check_room(&self, present: usize) -> Result<(), Error> {
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

    fn answer_hello(&mut self, hello: Hello) -> Result<Welcome, Error> {
        let limits = &self.options.limits;
        self.check_room(self.common.metrics.peers.load(Ordering::Relaxed))?;
        Ok(Welcome {
            slots: hello.slots.min(limits.slots),
            grant_bytes: limits.grant_bytes,
            incarnation: self.incarnation,
            shared_index: self
                .shared_index
                .filter(|_| hello.fabrics & Hello::SHARED_MEMORY != 0),
            verbs: self.verbs_offer(hello),
            note: self.options.note.clone(),
        })
    }

    fn admit(&mut self, key: Key, (wire, slots): (Wire, u32)) {
        if let Some(Connection::Handshake(handshake)) = self.slots.get_mut(key)
            && let Some(endpoint) = handshake.endpoint
        {
            return self.admit_lifeline(key, wire, endpoint);
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
                self.metrics().fail(&self.metrics().refused, why);
                return self.remove(key);
            }
        };
        let watched = match self.slots.get(key) {
            Some(Connection::Handshake(handshake)) => handshake.watched,
            _ => Ready::NOTHING,
        };
        let peer = PeerConnection {
            id,
            channel,
            watched,
            queued: false,
        };
        drop(self.slots.replace(key, Connection::Peer(Box::new(peer))));
        if self.peer_keys.len() <= id.index() {
            self.peer_keys.resize(id.index() + 1, None);
        }
        self.peer_keys[id.index()] = Some(key);
        self.end_handshake();
        self.common.metrics.peers.fetch_add(1, Ordering::Relaxed);
        self.serve(key);
    }

    /// One turn of a peer: receive its requests, send its answers.
    fn serve(&mut self, key: Key) {
        let closing = self.common.closing.load(Ordering::Acquire);
        let Some(Connection::Peer(peer)) = self.slots.get_mut(key) else {
            return;
        };
        let now = Instant::now();
        let mut machine = Answering {
            shard: &mut self.shard,
            id: peer.id,
        };
        let mut progress = Progress::default();
        let channel = &mut peer.channel;
        let mut turned = Ok(());
        if !closing {
            turned = exchange::receive(channel, &mut machine, now, &mut progress);
        }
        let mut sending = Progress::default();
        let pieces = &mut self.pieces;
        // After a fault nothing is sent: the peer is gone, or violated the protocol.
        turned =
            turned.and_then(|()| exchange::send(channel, &mut machine, pieces, now, &mut sending));
        let metrics = &self.common.metrics;
        let add = |to: &std::sync::atomic::AtomicU64, bytes: usize| {
            to.fetch_add(bytes as u64, Ordering::Relaxed);
        };
        add(&metrics.received_bytes, progress.received);
        add(&metrics.sent_bytes, sending.sent);
        if let Err(fault) = turned {
            return self.lose(key, &fault);
        }
        let more = progress.again || sending.again || (!closing && channel.holds_received());
        if more && !peer.queued {
            peer.queued = true;
            self.again.push(key);
        }
        self.timers.expect(now, self.options.limits.liveness);
        self.watch(key, sending.blocked);
        self.files.retire(&mut self.shard);
    }

    /// A peer's connection has ended, for a reason of the peer's.
    fn lose(&mut self, key: Key, fault: &Fault) {
        let quiet = match self.slots.get_mut(key) {
            Some(Connection::Peer(peer)) => self.shard.is_quiet(peer.id),
            _ => true,
        };
        if !(quiet && matches!(fault, Fault::Ended)) {
            let why = fault.clone().into_error().to_string();
            self.metrics().fail(&self.metrics().broken, why);
        }
        self.remove(key);
    }

    // --- connections over the fabric ---

    /// The fabric offer of a welcome.
    fn verbs_offer(&self, hello: Hello) -> Vec<u8> {
        let asked = hello.fabrics & Hello::VERBS != 0 && self.fabric.is_some();
        if asked { vec![OFFERED] } else { Vec::new() }
    }

    /// Accept the fabric connection that a lifeline introduces.
    fn connect_fabric(&mut self, key: Key, introduction: &[u8]) -> Result<Welcome, Error> {
        let limits = self.options.limits;
        let Some(fabric) = &self.fabric else {
            return Err(Error::Refused {
                class: Class::Config,
                text: "this server serves no RDMA verbs: it has no device, or uses another fabric"
                    .to_owned(),
            });
        };
        self.check_room(fabric.count())?;
        let (endpoint, answer) = fabric.accept(introduction, limits.slots)?;
        if let Some(Connection::Handshake(handshake)) = self.slots.get_mut(key) {
            handshake.endpoint = Some(endpoint);
        }
        Ok(Welcome {
            slots: limits.slots,
            grant_bytes: limits.grant_bytes,
            incarnation: self.incarnation,
            shared_index: None,
            verbs: answer,
            note: Vec::new(),
        })
    }

    /// The welcome of a lifeline is sent: from now on it is watched only for its end.
    fn admit_lifeline(&mut self, key: Key, wire: Wire, endpoint: Key) {
        let own = self.slots.insert(Connection::Endpoint(endpoint, key));
        self.poll.remove(wire.socket());
        let token = Token::new(Watched::Connection, key);
        let watched = self.poll.add_for_end(wire.socket(), token);
        let lifeline = Connection::Lifeline(Box::new(wire), own);
        drop(self.slots.replace(key, lifeline));
        self.end_handshake();
        let Some(fabric) = &self.fabric else { return };
        let peers = &self.common.metrics.fabric_peers;
        peers.fetch_add(1, Ordering::Relaxed);
        let Some(added) = fabric.admit(endpoint, own, &self.poll) else {
            return;
        };
        if watched.and(added).is_err() {
            return self.remove(key);
        }
        self.answer_fabric(own); // requests that came before it was watched
    }

    /// Answer the requests of one connection.
    fn answer_fabric(&mut self, key: Key) {
        let Some(&Connection::Endpoint(endpoint, _)) = self.slots.get(key) else {
            return;
        };
        let Some(fabric) = &self.fabric else { return };
        match fabric.answer(endpoint, &self.shard) {
            None => {}
            Some(Ok(answered)) => {
                let pulls = &self.common.metrics.fabric_pulls;
                pulls.fetch_add(answered as u64, Ordering::Relaxed);
            }
            Some(Err(error)) => {
                self.metrics()
                    .fail(&self.metrics().broken, error.to_string());
                self.remove(key);
            }
        }
    }

    /// Answer requests that came while rows were settled, and remove connections that were fenced.
    fn answer_due(&mut self) {
        let Some(fabric) = &self.fabric else { return };
        for key in fabric.take_due() {
            self.answer_fabric(key);
        }
    }

    /// Remove an endpoint, which fences its peer.
    fn remove_endpoint(&mut self, endpoint: Key) {
        let Some(fabric) = &self.fabric else { return };
        if fabric.remove(endpoint, &self.poll) {
            let peers = &self.common.metrics.fabric_peers;
            peers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    // --- epoll ---

    fn watch(&mut self, key: Key, blocked: bool) {
        let Some(Connection::Peer(peer)) = self.slots.get_mut(key) else {
            return;
        };
        let wanted = Ready {
            // A closing server reads nothing, so watching for input would wake it again and again.
            read: !self.common.closing.load(Ordering::Acquire),
            write: blocked,
        };
        let token = Token::new(Watched::Connection, key);
        let changed = self
            .poll
            .change(peer.channel.socket(), token, peer.watched, wanted);
        if changed.is_ok() {
            peer.watched = wanted;
        }
    }

    fn watch_handshake(&mut self, key: Key) {
        let Some(Connection::Handshake(handshake)) = self.slots.get_mut(key) else {
            return;
        };
        let (watched, wanted) = (handshake.watched, handshake.wanted());
        let token = Token::new(Watched::Connection, key);
        let changed = handshake
            .wire()
            .map(|wire| self.poll.change(wire.socket(), token, watched, wanted));
        if changed.is_some_and(|changed| changed.is_ok()) {
            handshake.watched = wanted;
        }
        if handshake.holds_received() {
            self.again.push(key);
        }
    }

    /// Close and remove a connection of any kind; removes both slots of a fabric connection.
    fn remove(&mut self, key: Key) {
        match self.slots.remove(key) {
            None => {}
            Some(Connection::Handshake(handshake)) => {
                self.end_handshake();
                if let Some(wire) = handshake.wire() {
                    self.poll.remove(wire.socket());
                }
                if let Some(endpoint) = handshake.endpoint {
                    self.remove_endpoint(endpoint);
                }
                handshake.hang_up();
            }
            Some(Connection::Endpoint(endpoint, lifeline)) => {
                self.remove_endpoint(endpoint);
                self.remove(lifeline);
            }
            Some(Connection::Lifeline(mut wire, endpoint)) => {
                self.poll.remove(wire.socket());
                wire.hang_up();
                self.remove(endpoint);
            }
            Some(Connection::Peer(peer)) => {
                self.common.metrics.peers.fetch_sub(1, Ordering::Relaxed);
                self.poll.remove(peer.channel.socket().as_fd());
                peer.channel.hang_up();
                self.shard.disconnect(peer.id);
                self.peer_keys[peer.id.index()] = None;
                self.files.retire(&mut self.shard);
            }
        }
    }
}
