//! Connections over the fabric beside the stream: the server's thread answers them between those of its sockets.
//!
//! A connection has two slots: one for its endpoint's descriptor, and one for its lifeline, which is watched only for
//! its end. The endpoints are shared with the shard, which settles them before rows change. Both run in the same
//! thread, so the mutex is never contended; it is there because shard and endpoints move into that thread, and must
//! be `Send`.
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_base::poll::{Poll, Ready, Token};
use forebay_base::readiness;
use forebay_base::slots::{Key, Slots};
use forebay_transport::stream::Wire;
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::connection::Watched;
use crate::error::Error;
use crate::fabric::{Provider, ResponderEndpoint};
use crate::responder::Shard;
use crate::sys::span::Span;

/// How long a write waits for rows that are being sent to a peer. Then that peer's fabric connection ends, and it
/// continues over its stream: a device sends 1 GiB in less time, unless the peer's machine is gone.
const SETTLING: Duration = Duration::from_millis(500);

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

    /// How many endpoints there are.
    pub(super) fn count(&self) -> usize {
        self.endpoints().open.len()
    }

    /// Accept a connection: its endpoint, and the answer to the introduction.
    pub(super) fn accept(&self, introduction: &[u8], slots: u32) -> Result<(Key, Vec<u8>), Error> {
        let (endpoint, answer) = self.provider.accept(introduction, slots)?;
        let endpoint = Endpoint {
            endpoint,
            key: None,
        };
        Ok((self.endpoints().open.insert(endpoint), answer))
    }

    /// The lifeline of an endpoint is admitted: watch the endpoint, as the connection `own`. `None` if it is gone.
    pub(super) fn admit(
        &self,
        endpoint: Key,
        own: Key,
        poll: &Poll<Watched>,
    ) -> Option<Result<(), Errno>> {
        let mut endpoints = self.endpoints();
        let endpoint = endpoints.open.get_mut(endpoint)?;
        endpoint.key = Some(own);
        let token = Token::new(Watched::Connection, own);
        Some(poll.add(&endpoint.endpoint, token, Ready::READ))
    }

    /// Answer the requests of one connection; returns how many. `None` if its endpoint is gone.
    pub(super) fn answer<K: Send>(
        &self,
        endpoint: Key,
        shard: &Shard<K>,
    ) -> Option<Result<usize, Error>> {
        let mut endpoints = self.endpoints();
        Some(endpoints.open.get_mut(endpoint)?.endpoint.turn(shard))
    }

    /// Whether requests came while rows were settled.
    pub(super) fn is_due(&self) -> bool {
        self.endpoints().is_due
    }

    /// The connections that have such requests, or were fenced.
    pub(super) fn take_due(&self) -> Vec<Key> {
        let mut endpoints = self.endpoints();
        if !std::mem::take(&mut endpoints.is_due) {
            return Vec::new();
        }
        let is_due = |(_, endpoint): &(Key, &Endpoint)| endpoint.endpoint.is_due();
        let due = endpoints.open.iter().filter(is_due);
        due.filter_map(|(_, endpoint)| endpoint.key).collect()
    }

    /// Whether the fabric is sending rows.
    pub(super) fn is_sending(&self) -> bool {
        let endpoints = self.endpoints();
        let mut open = endpoints.open.iter();
        open.any(|(_, endpoint)| endpoint.endpoint.is_sending(0, usize::MAX))
    }

    /// Remove an endpoint, which fences its peer. Returns whether it was admitted.
    pub(super) fn remove(&self, endpoint: Key, poll: &Poll<Watched>) -> bool {
        let gone = self.endpoints().open.remove(endpoint);
        let admitted = gone.filter(|endpoint| endpoint.key.is_some());
        if let Some(endpoint) = &admitted {
            poll.remove(&endpoint.endpoint);
        }
        admitted.is_some()
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
