//! The thread of a server: sockets, deadlines and commands. The shard interprets the requests.
//!
//! A turn of the loop: wait; handle events; give peers whose last turn ended with its budget another one; run commands;
//! answer the fabric; begin reads of files; check deadlines. Every step is bounded, so no peer can starve the others.
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use forebay_base::poll::{Poll, Ready, Token};
use forebay_base::slots::{Key, Slots};
use forebay_transport::drive::Look;
use forebay_transport::link::Admission;
use forebay_transport::serve::Acceptor;
use forebay_transport::stream::{Wire, tls};
use rustix::io::Errno;

use super::connection::{Connection, Watched};
use super::fabric::{FabricPeers, has_ended};
use super::files::Files;
use super::handshake::Verdict;
use super::index::publish_index;
use super::metrics::Metrics;
use super::time::Timers;
use super::{Common, Entrance, Options};
use crate::error::Error;
use crate::handshake::{Hello, Welcome};
use crate::responder::{PeerId, Shard};
use crate::shm::IndexLocation;
use crate::stream::channel::{Channel, Fault};
use crate::stream::exchange::{self, Machine, Pieces, Progress};
use crate::sys::span::Span;

/// An admitted client.
pub(super) struct PeerConnection {
    pub(super) id: PeerId,
    channel: Channel,
    /// What its socket is watched for.
    watched: Ready,
    /// It is in `again` already.
    queued: bool,
}

pub(super) struct Listener {
    pub(super) acceptor: Acceptor,
    pub(super) tls: Option<Arc<tls::Server>>,
    pub(super) admission: Admission,
}

pub(super) struct Reactor<K> {
    pub(super) poll: Poll<Watched>,
    pub(super) listeners: Vec<Listener>,
    /// The listener of each listening socket, and its number there.
    pub(super) sockets: Vec<(usize, usize)>,
    pub(super) accepting: bool,
    pub(super) shard: Shard<K>,
    pub(super) common: Arc<Common<K>>,
    pub(super) slots: Slots<Connection>,
    pub(super) timers: Timers,
    pub(super) handshakes: usize,
    pub(super) options: Options,
    pub(super) incarnation: u64,
    /// Where its shared index is, if it has one.
    shared_index: Option<IndexLocation>,
    /// Connections with more to do without an event.
    again: Vec<Key>,
    /// Connections over the fabric; `None` without one.
    pub(super) fabric: Option<FabricPeers>,
    pieces: Pieces,
    pub(super) files: Files,
    /// Reads of files may have ended.
    pub(super) files_woken: bool,
    pub(super) watches_files: bool,
    /// The slot of each of the shard's peers, by the peer's index.
    pub(super) peer_keys: Vec<Option<Key>>,
    /// Peers whose reads have ended.
    pub(super) ready: Vec<PeerId>,
    /// Whether the thread spins for a while before it sleeps.
    pub(super) look: Look,
}

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
        let listeners = entrances.into_iter().map(|entrance| Listener {
            acceptor: Acceptor::new(entrance.listening),
            tls: entrance.tls,
            admission: entrance.admission,
        });
        let listeners: Vec<_> = listeners.collect();
        let sockets = |(at, listener): (usize, &Listener)| {
            (0..listener.acceptor.sockets()).map(move |socket| (at, socket))
        };
        let sockets = listeners.iter().enumerate().flat_map(sockets).collect();
        let fabric = options
            .fabric
            .clone()
            .map(|provider| FabricPeers::new(provider, &mut shard));
        let shared_index = publish_index(&mut shard, &options, incarnation, &common.metrics);
        Ok(Self {
            poll,
            listeners,
            sockets,
            accepting: false,
            shard,
            common,
            slots: Slots::default(),
            timers: Timers::new(options.handshake),
            handshakes: 0,
            options,
            incarnation,
            shared_index,
            again: Vec::new(),
            fabric,
            pieces: exchange::pieces(),
            files: Files::default(),
            files_woken: false,
            watches_files: false,
            peer_keys: Vec::new(),
            ready: Vec::new(),
            look: Look::default(),
        })
    }

    /// Serve until the owner closes.
    pub(super) fn run(mut self) {
        while !self.is_done() {
            self.open();
            let at_once =
                !self.again.is_empty() || self.files.is_due(&self.shard) || self.answers_are_due();
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
            Watched::Files => self.files_woken = true,
            Watched::Listener => {
                if let Some(&(listener, socket)) = self.sockets.get(token.key.index as usize) {
                    self.accept(listener, socket);
                }
            }
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
            command(&mut self.shard, &mut self.files);
        }
        self.watch_files();
    }

    fn end(mut self) {
        let keys: Vec<Key> = self.slots.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.remove(key);
        }
        self.listeners.clear();
        self.files.end();
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.common.metrics
    }

    // --- one connection ---

    pub(super) fn step(&mut self, key: Key) {
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
        self.handshakes -= 1;
        self.common.metrics.peers.fetch_add(1, Ordering::Relaxed);
        self.resume_accepting();
        self.serve(key);
    }

    /// One turn of a peer: receive its requests, send its answers.
    pub(super) fn serve(&mut self, key: Key) {
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
        self.retire();
    }

    /// A peer's connection has ended, for a reason of the peer's.
    pub(super) fn lose(&mut self, key: Key, fault: &Fault) {
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
    pub(super) fn remove(&mut self, key: Key) {
        match self.slots.remove(key) {
            None => {}
            Some(Connection::Handshake(handshake)) => {
                self.handshakes -= 1;
                if let Some(wire) = handshake.wire() {
                    self.poll.remove(wire.socket());
                }
                if let Some(endpoint) = handshake.endpoint {
                    self.remove_endpoint(endpoint);
                }
                handshake.hang_up();
                self.resume_accepting();
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
                self.retire();
            }
        }
    }
}
