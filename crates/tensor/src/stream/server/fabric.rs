//! Connections over the fabric beside the stream: the server's thread answers them between those of its sockets.
//!
//! A connection has two slots: one for its endpoint's descriptor, and one for its lifeline, which is watched only for
//! its end. The endpoints are shared with the shard, which settles them before rows change. Both run in the same
//! thread, so the mutex is never contended; it is there because shard and endpoints move into that thread, and must
//! be `Send`.
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_base::poll::{Ready, Token};
use forebay_base::readiness;
use forebay_base::slots::{Key, Slots};
use forebay_transport::stream::Wire;
use rustix::event::PollFlags;

use super::connection::{Connection, Watched};
use super::reactor::Reactor;
use crate::error::{Class, Error};
use crate::fabric::{Provider, ResponderEndpoint};
use crate::handshake::{Hello, Welcome};
use crate::responder::Shard;
use crate::sys::span::Span;

/// How long a write waits for rows that are being sent to a peer. Then that peer's fabric connection ends, and it
/// continues over its stream: a device sends 1 GiB in less time, unless the peer's machine is gone.
const SETTLING: Duration = Duration::from_millis(500);
/// In a welcome: the fabric is offered.
const OFFERED: u8 = 1;

#[derive(Default)]
struct Endpoints {
    open: Slots<Endpoint>,
    /// Requests came while rows were settled, and are not answered yet.
    is_due: bool,
}

struct Endpoint {
    endpoint: Box<dyn ResponderEndpoint>,
    /// Its slot, once its lifeline is admitted.
    key: Option<Key>,
}

impl Endpoints {
    /// Wait until the fabric reads none of these bytes for a connected peer; a peer that takes too long is fenced.
    fn settle(&mut self, span: Span) {
        let (start, bytes) = (span.address().as_ptr() as usize, span.bytes());
        let mut deadline = None; // one for all: several dead peers delay the thread no longer than one
        for (_, Endpoint { endpoint, .. }) in self.open.iter_mut() {
            if !endpoint.is_sending(start, bytes) {
                continue;
            }
            let deadline = deadline.get_or_insert_with(|| Instant::now() + SETTLING);
            if let Err(error) = endpoint.settle(start, bytes, *deadline) {
                endpoint.fence(error);
            }
            self.is_due |= endpoint.is_due();
        }
    }
}

/// The fabric connections of a server.
pub(super) struct FabricPeers {
    provider: Arc<dyn Provider>,
    endpoints: Arc<Mutex<Endpoints>>,
}

impl FabricPeers {
    pub(super) fn new<K>(provider: Arc<dyn Provider>, shard: &mut Shard<K>) -> Self {
        let endpoints = Arc::<Mutex<Endpoints>>::default();
        let settled = Arc::clone(&endpoints);
        shard.before_writes(move |span| lock(&settled).settle(span));
        Self {
            provider,
            endpoints,
        }
    }

    fn endpoints(&self) -> MutexGuard<'_, Endpoints> {
        lock(&self.endpoints)
    }
}

/// Whether the peer has closed its end of a lifeline. Bytes that it sends there are ignored.
pub(super) fn has_ended(lifeline: &Wire) -> bool {
    !readiness(lifeline.socket(), PollFlags::RDHUP).is_empty()
}

fn lock(endpoints: &Mutex<Endpoints>) -> MutexGuard<'_, Endpoints> {
    endpoints.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Send> Reactor<K> {
    /// The fabric offer of a welcome.
    pub(super) fn verbs_offer(&self, hello: Hello) -> Vec<u8> {
        let asked = hello.fabrics & Hello::VERBS != 0 && self.fabric.is_some();
        if asked { vec![OFFERED] } else { Vec::new() }
    }

    /// Accept the fabric connection that a lifeline introduces.
    pub(super) fn connect_fabric(
        &mut self,
        key: Key,
        introduction: &[u8],
    ) -> Result<Welcome, Error> {
        let limits = self.options.limits;
        let Some(fabric) = &self.fabric else {
            return Err(Error::Refused {
                class: Class::Config,
                text: "this server serves no RDMA verbs: it has no device, or uses another fabric"
                    .to_owned(),
            });
        };
        self.check_room(fabric.endpoints().open.len())?;
        let (endpoint, answer) = fabric.provider.accept(introduction, limits.slots)?;
        let endpoint = Endpoint {
            endpoint,
            key: None,
        };
        let number = fabric.endpoints().open.insert(endpoint);
        if let Some(Connection::Handshake(handshake)) = self.slots.get_mut(key) {
            handshake.endpoint = Some(number);
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
    pub(super) fn admit_lifeline(&mut self, key: Key, wire: Wire, endpoint: Key) {
        let own = self.slots.insert(Connection::Endpoint(endpoint, key));
        self.poll.remove(wire.socket());
        let token = Token::new(Watched::Connection, key);
        let watched = self.poll.add_for_end(wire.socket(), token);
        let lifeline = Connection::Lifeline(Box::new(wire), own);
        drop(self.slots.replace(key, lifeline));
        self.handshakes -= 1;
        self.resume_accepting();
        let Some(fabric) = &self.fabric else { return };
        self.common
            .metrics
            .fabric_peers
            .fetch_add(1, Ordering::Relaxed);
        let mut endpoints = fabric.endpoints();
        let Some(endpoint) = endpoints.open.get_mut(endpoint) else {
            return;
        };
        endpoint.key = Some(own);
        let token = Token::new(Watched::Connection, own);
        let added = self.poll.add(&endpoint.endpoint, token, Ready::READ);
        drop(endpoints);
        if watched.and(added).is_err() {
            return self.remove(key);
        }
        self.answer_fabric(own); // requests that came before it was watched
    }

    /// Answer the requests of one connection.
    pub(super) fn answer_fabric(&mut self, key: Key) {
        let Some(Connection::Endpoint(number, _)) = self.slots.get_mut(key) else {
            return;
        };
        let (number, Some(fabric)) = (*number, &self.fabric) else {
            return;
        };
        let mut endpoints = fabric.endpoints();
        let Some(endpoint) = endpoints.open.get_mut(number) else {
            return;
        };
        let turned = endpoint.endpoint.turn(&self.shard);
        drop(endpoints);
        match turned {
            Ok(answered) => {
                let metrics = &self.common.metrics;
                metrics
                    .fabric_pulls
                    .fetch_add(answered as u64, Ordering::Relaxed);
            }
            Err(error) => {
                self.metrics()
                    .fail(&self.metrics().broken, error.to_string());
                self.remove(key);
            }
        }
    }

    /// Whether requests came while rows were settled.
    pub(super) fn answers_are_due(&self) -> bool {
        self.fabric
            .as_ref()
            .is_some_and(|fabric| fabric.endpoints().is_due)
    }

    /// Answer those requests, and remove connections that were fenced.
    pub(super) fn answer_due(&mut self) {
        if !self.answers_are_due() {
            return;
        }
        let Some(fabric) = &self.fabric else { return };
        let mut endpoints = fabric.endpoints();
        endpoints.is_due = false;
        let is_due = |(_, endpoint): &(Key, &Endpoint)| endpoint.endpoint.is_due();
        let due = endpoints.open.iter().filter(is_due);
        let due: Vec<_> = due.filter_map(|(_, endpoint)| endpoint.key).collect();
        drop(endpoints);
        for key in due {
            self.answer_fabric(key);
        }
    }

    /// Whether the fabric is sending rows.
    pub(super) fn is_fabric_sending(&self) -> bool {
        let sends = |fabric: &FabricPeers| {
            let endpoints = fabric.endpoints();
            endpoints
                .open
                .iter()
                .any(|(_, endpoint)| endpoint.endpoint.is_sending(0, usize::MAX))
        };
        self.fabric.as_ref().is_some_and(sends)
    }

    /// Remove an endpoint, which fences its peer.
    pub(super) fn remove_endpoint(&mut self, endpoint: Key) {
        let Some(fabric) = &self.fabric else { return };
        let gone = fabric.endpoints().open.remove(endpoint);
        if let Some(endpoint) = gone
            && endpoint.key.is_some()
        {
            self.poll.remove(&endpoint.endpoint);
            self.common
                .metrics
                .fabric_peers
                .fetch_sub(1, Ordering::Relaxed);
        }
    }
}
