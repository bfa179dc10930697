//! The requester's end of a connection: pulls in slots, reads of exposed tensors.
//!
//! A pull is written into the owner's inbox, and its rows are written into the caller's block: two messages, no copy,
//! and nothing is registered or bound while the pulls of a slot go to one block. The answer frees the slot.
mod completions;
mod guard;
mod offer;
mod pull;
mod slot;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use forebay_memory::{Lease, Region};
use forebay_tensor::fabric::FabricPull;
use forebay_tensor::{Error, Key};

pub use self::offer::Offer;
use self::pull::check_inside;
pub use self::pull::{Arrival, Prepared};
pub use self::slot::Settled;
use self::slot::{Pending, Slot};
use crate::Registering;
use crate::discovery::Adapter;
use crate::link::{Event, Lifeline, Link};
use crate::registry::{Registry, local_part};
use crate::sys::bytes::copy_in;
use crate::sys::layout::access;
use crate::sys::pair::RemotePart;
use crate::sys::registration::Registration;
use crate::window::{Bound, SlotWindow};
use crate::wire::{Ask, Exposed, Request, SLOT_BYTES, exchange_inboxes, protocol};

/// Operations posted per slot: revoke the old key, bind a new one, send the request.
const SENDS_PER_SLOT: u32 = 3;
/// Reads that may be posted at once.
const READS_MAX: u32 = 64;

#[derive(Debug)]
enum Posted {
    Request(u32),
    Bound,
    /// Revoked a key that no pull uses, to release its block.
    Released {
        _bound: Bound,
    },
    /// Revoked the key of an unfinished pull, which ends with this error.
    Revoked {
        slot: u32,
        error: Error,
        _bound: Bound,
    },
    Read {
        token: u64,
        into: Lease,
    },
}

/// Memory that requests are sent from, one place per slot.
#[derive(Debug)]
struct Outbox {
    outbox: Lease,
    outbox_registration: Arc<Registration>,
}

/// Pulls over one connection. For one thread at a time; only [`Puller::wait`] blocks.
#[derive(Debug)]
pub struct Puller {
    /// Windows are dropped before their queue pair.
    slots: Vec<Slot>,
    link: Link<Posted>,
    ends: Outbox,
    inbox: RemotePart,
    registry: Arc<Registry>,
    adapter: Adapter,
    registering: Registering,
    events: Vec<Event<Posted>>,
    ready: Vec<Arrival>,
}

impl Puller {
    /// Connect to a [`Responder`](crate::Responder) over a stream between the two. `region` must be attached to
    /// `registry`. The stream stays open as long as the connection, and may carry other messages afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] and [`Error::Limit`] before anything happened, else [`Error::Broken`] or [`Error::Protocol`].
    /// Waits for the peer as long as the stream's timeouts allow.
    pub fn connect(
        adapter: &Adapter,
        registry: &Arc<Registry>,
        region: &Region,
        stream: Box<dyn Lifeline>,
        slots: u32,
        registering: Registering,
    ) -> Result<Self, Error> {
        let outbox = allocate(region, slots as usize * SLOT_BYTES)?;
        let outbox_registration = registry.find(&outbox)?;
        let sends = slots
            .saturating_mul(SENDS_PER_SLOT)
            .saturating_add(READS_MAX);
        let (mut link, peer) = Link::connect(adapter, stream, slots, sends)?;
        let granted = slots.min(peer.slots);
        let inbox = exchange_inboxes(RemotePart::default(), link.lifeline())?;
        if inbox == RemotePart::default() {
            return Err(protocol(
                "both ends are requesters: neither accepts requests",
            ));
        }
        let ends = Outbox {
            outbox,
            outbox_registration,
        };
        let places = (adapter, registry, registering);
        Ok(Self::assemble(link, granted, inbox, ends, places))
    }

    fn assemble(
        link: Link<Posted>,
        granted: u32,
        inbox: RemotePart,
        ends: Outbox,
        (adapter, registry, registering): (&Adapter, &Arc<Registry>, Registering),
    ) -> Self {
        Self {
            link,
            slots: (0..granted).map(|_| Slot::default()).collect(),
            ends,
            inbox,
            registry: Arc::clone(registry),
            adapter: adapter.clone(),
            registering,
            events: Vec::new(),
            ready: Vec::new(),
        }
    }

    /// How many requests may be in flight.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Whether a slot is free.
    pub fn has_free_slot(&self) -> bool {
        self.slots.iter().any(Slot::is_free)
    }

    /// Begin a pull.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if no slot is free, [`Error::Config`] if the block's region is not registered or the
    /// destination is not inside of it; why the connection is over.
    pub fn pull(&mut self, pull: FabricPull) -> Result<(), Error> {
        let prepared = self.prepare(pull)?;
        self.post(prepared)
    }

    /// Take a slot for a pull and bind a key on its destination for the owner; nothing is sent yet.
    ///
    /// # Errors
    ///
    /// As [`Puller::pull`].
    pub fn prepare(&mut self, pull: FabricPull) -> Result<Prepared, Error> {
        let ask = Ask::Pull {
            first: pull.first,
            rows: pull.rows,
        };
        self.prepare_request(ask, pull)
    }

    /// Request a key to read a whole tensor with; `into` has room for [`Exposed::BYTES`].
    /// Once the request has settled, [`Exposed::of`] decodes it from there.
    ///
    /// # Errors
    ///
    /// As [`Puller::pull`].
    pub fn expose(&mut self, token: u64, tensor: Key, into: Lease) -> Result<(), Error> {
        let pull = FabricPull {
            token,
            tensor,
            first: 0,
            rows: 0,
            into,
            at: 0,
            bytes: Exposed::BYTES,
        };
        let prepared = self.prepare_request(Ask::Expose, pull)?;
        self.post(prepared)
    }

    fn prepare_request(&mut self, ask: Ask, pull: FabricPull) -> Result<Prepared, Error> {
        check_inside(&pull.into, pull.at, pull.bytes)?;
        let free: u32 = self.best_slot(&pull.into).ok_or(Error::Limit {
            limit: "slots",
            value: self.slots.len() as u64 + 1,
            maximum: self.slots.len() as u64,
            advice: "take arrivals first",
        })?;
        let into = self.give_key(free, &pull)?;
        let slot = &mut self.slots[free as usize];
        slot.turn = slot.turn.wrapping_add(1);
        slot.is_sending = true;
        let request = Request {
            ask,
            turn: slot.turn,
            tensor: pull.tensor,
            into,
            room: pull.bytes as u64,
        };
        slot.pending = Some(Pending {
            token: pull.token,
            into: pull.into,
            bytes: pull.bytes,
            quarantined: None,
            is_over: false,
        });
        copy_in(
            &self.ends.outbox,
            free as usize * SLOT_BYTES,
            &request.encode(),
        );
        Ok(Prepared { slot: free })
    }

    /// A free slot: preferably one with a key on the block already, then one without a key, then any.
    fn best_slot(&self, block: &Lease) -> Option<u32> {
        let free = (0..).zip(&self.slots).filter(|(_, slot)| slot.is_free());
        let rank = |(_, slot): &(u32, &Slot)| match &slot.window {
            Some(window) if window.covers(block) => 0,
            Some(window) if !window.is_idle() => 2,
            _ => 1,
        };
        let mut best: Option<(u32, u32)> = None;
        for each in free {
            let rank = rank(&each);
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, each.0));
            }
            if rank == 0 {
                break;
            }
        }
        best.map(|(_, at)| at)
    }

    /// Give the owner a key on the destination.
    fn give_key(&mut self, slot: u32, pull: &FabricPull) -> Result<RemotePart, Error> {
        let Self { link, slots, .. } = self;
        let slot = &mut slots[slot as usize];
        if self.registering == Registering::PerTransfer {
            let registration =
                self.registry
                    .register(&pull.into, pull.at, pull.bytes, access::REMOTE_WRITE)?;
            let key = registration.remote_key();
            slot.registration = Some(registration);
            let address = pull.into.as_ptr().as_ptr() as u64 + pull.at as u64;
            return Ok(RemotePart { address, key });
        }
        let window = match &mut slot.window {
            Some(window) => window,
            none => none.insert(SlotWindow::new(&self.adapter.domain)?),
        };
        let posted = (Posted::Bound, |bound| Posted::Released { _bound: bound });
        let bound = window.cover(
            link,
            &self.registry,
            &pull.into,
            access::REMOTE_WRITE,
            posted,
        )?;
        Ok(bound.part(pull.at))
    }

    /// Send a prepared request.
    ///
    /// # Errors
    ///
    /// Why the connection is over.
    #[allow(clippy::needless_pass_by_value)] // a prepared request is posted once
    pub fn post(&mut self, prepared: Prepared) -> Result<(), Error> {
        let at = prepared.slot as usize * SLOT_BYTES;
        let from = local_part(
            &self.ends.outbox_registration,
            &self.ends.outbox,
            at,
            SLOT_BYTES,
        );
        let to = RemotePart {
            address: self.inbox.address.wrapping_add(at as u64),
            key: self.inbox.key,
        };
        self.link.post(Posted::Request(prepared.slot), |pair| {
            pair.write(0, from, to, Some(prepared.slot))
        })
    }

    /// Read bytes of an exposed tensor, from byte `from` on, into a part of a block, without the owner's CPU.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if either part is out of range, [`Error::Limit`] if too many reads are posted;
    /// why the connection is over.
    pub fn read(
        &mut self,
        token: u64,
        exposed: &Exposed,
        from: u64,
        (into, at, bytes): (Lease, usize, usize),
    ) -> Result<(), Error> {
        check_inside(&into, at, bytes)?;
        if from > exposed.bytes || bytes as u64 > exposed.bytes - from {
            return Err(Error::Config {
                setting: "the first byte to read",
                value: from,
                advice: "stay inside of the tensor",
            });
        }
        let registration = self.registry.find(&into)?;
        let to = local_part(&registration, &into, at, bytes);
        let from = RemotePart {
            address: exposed.part.address.wrapping_add(from),
            key: exposed.part.key,
        };
        self.link
            .post(Posted::Read { token, into }, |pair| pair.read(0, from, to))
    }
}

impl AsFd for Puller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }
}

impl Drop for Puller {
    fn drop(&mut self) {
        // Before the windows are dropped: the owner can write nothing from here on.
        self.link.close();
    }
}

/// Allocate memory for requests.
pub(super) fn allocate(region: &Region, bytes: usize) -> Result<Lease, Error> {
    region
        .allocate(bytes.max(1))
        .map_err(|error| Error::Broken {
            why: format!("no memory for requests: {error}"),
        })
}
