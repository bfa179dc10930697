//! The requester's end of a connection: pulls in slots, reads of exposed tensors.
//!
//! A pull is written into the owner's inbox, and its rows are written into the caller's block: two messages, no copy,
//! and nothing is registered or bound while the pulls of a slot go to one block. The answer frees the slot.
mod completions;
mod offer;
mod pull;
mod slot;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use forebay_memory::{Lease, Region};
use forebay_tensor::fabric::FabricPull;
use forebay_tensor::{Error, Key};

pub use self::offer::Offer;
pub use self::pull::{Arrival, Prepared};
use self::pull::{Kind, check_inside};
pub use self::slot::Settled;
use self::slot::SlotTable;
use crate::Registering;
use crate::discovery::Adapter;
use crate::link::{Event, Lifeline, Link};
use crate::registry::{Registry, local_part};
use crate::requests::Outbox;
use crate::sys::layout::access;
use crate::sys::pair::RemotePart;
use crate::window::Bound;
use crate::wire::{Ask, Exposed, Request, SLOT_BYTES, exchange_inboxes, protocol};

/// Operations posted per slot: revoke the old key, bind a new one, send the request.
const SENDS_PER_SLOT: u32 = 3;
/// Reads that may be posted at once.
const READS_MAX: u32 = 64;

/// Operations that a requester with this many slots may have posted.
fn sends_of(slots: u32) -> u32 {
    slots
        .saturating_mul(SENDS_PER_SLOT)
        .saturating_add(READS_MAX)
}

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

/// Pulls over one connection. For one thread at a time; only [`Puller::wait`] blocks.
#[derive(Debug)]
pub struct Puller {
    /// Windows are dropped before their queue pair.
    slots: SlotTable,
    link: Link<Posted>,
    outbox: Outbox,
    inbox: RemotePart,
    registry: Arc<Registry>,
    adapter: Adapter,
    registering: Registering,
    events: Vec<Event<Posted>>,
    ready: Vec<Arrival>,
}

impl Puller {
    /// Connect to a `Responder` over a stream between the two. `region` must be attached to
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
        let outbox = Outbox::new(region, registry, slots)?;
        let (mut link, peer) = Link::connect(adapter, stream, slots, sends_of(slots))?;
        let granted = slots.min(peer.slots);
        let inbox = exchange_inboxes(RemotePart::default(), link.lifeline())?;
        if inbox == RemotePart::default() {
            return Err(protocol(
                "both ends are requesters: neither accepts requests",
            ));
        }
        let places = (adapter, registry, registering);
        Ok(Self::assemble(link, granted, inbox, outbox, places))
    }

    fn assemble(
        link: Link<Posted>,
        granted: u32,
        inbox: RemotePart,
        outbox: Outbox,
        (adapter, registry, registering): (&Adapter, &Arc<Registry>, Registering),
    ) -> Self {
        Self {
            link,
            slots: SlotTable::new(granted),
            outbox,
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
        self.slots.has_free()
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
        let free = self.slots.best(&pull.into).ok_or(Error::Limit {
            limit: "slots",
            value: self.slots.len() as u64 + 1,
            maximum: self.slots.len() as u64,
            advice: "take arrivals first",
        })?;
        let into = self.give_key(free, &pull)?;
        let (tensor, room) = (pull.tensor, pull.bytes as u64);
        let request = Request {
            ask,
            turn: self.slots.take(free, pull),
            tensor,
            into,
            room,
        };
        self.outbox.write(free, &request.encode());
        Ok(Prepared { slot: free })
    }

    /// Give the owner a key on the destination.
    fn give_key(&mut self, slot: u32, pull: &FabricPull) -> Result<RemotePart, Error> {
        if self.registering == Registering::PerTransfer {
            let registration =
                self.registry
                    .register(&pull.into, pull.at, pull.bytes, access::REMOTE_WRITE)?;
            let key = registration.remote_key();
            self.slots.register(slot, registration);
            let address = pull.into.as_ptr().as_ptr() as u64 + pull.at as u64;
            return Ok(RemotePart { address, key });
        }
        let window = self.slots.window(slot, &self.adapter.domain)?;
        let posted = (Posted::Bound, |bound| Posted::Released { _bound: bound });
        let bound = window.cover(
            &mut self.link,
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
        let from = self.outbox.part(prepared.slot, SLOT_BYTES);
        let at = u64::from(prepared.slot) * SLOT_BYTES as u64;
        let to = RemotePart {
            address: self.inbox.address.wrapping_add(at),
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

    // --- memory of destinations, taken back before their pulls have ended ---

    /// Cancel a pull: its block is in quarantine until its answer has come or the peer is fenced.
    /// Returns whether there was such a pull.
    pub fn cancel(&mut self, token: u64) -> bool {
        self.slots.cancel(token)
    }

    /// Revoke the owner's key for a pull, which ends with `error` once the device has done that: nothing can be
    /// written to its block any more. If the owner answers later the device breaks the connection. Returns whether
    /// there was such a pull.
    ///
    /// # Errors
    ///
    /// Why the connection is over.
    pub fn revoke(&mut self, token: u64, error: Error) -> Result<bool, Error> {
        let Some((slot, window)) = self.slots.lose(token) else {
            return Ok(false);
        };
        let Some(window) = window else {
            let result = Err(error);
            self.ready.push(Arrival(Kind::Slot { slot, result }));
            return Ok(true);
        };
        let revoked = |bound| Posted::Revoked {
            slot,
            error,
            _bound: bound,
        };
        window.revoke(&mut self.link, revoked)
    }

    /// Revoke the keys, and drop the leases, that idle slots keep on a block.
    /// The block is free once [`Puller::wait`] has taken the completions. Returns how many keys there were.
    ///
    /// # Errors
    ///
    /// Why the connection is over.
    pub fn release_keys(&mut self, block: &Lease) -> Result<usize, Error> {
        let mut left = 0;
        let windows = self.slots.idle_windows();
        for window in windows.filter(|window| window.covers(block)) {
            window.revoke(&mut self.link, |bound| Posted::Released { _bound: bound })?;
            left += 1;
        }
        Ok(left)
    }

    /// The same for the blocks of all idle slots: the arena needs the memory.
    ///
    /// # Errors
    ///
    /// Why the connection is over.
    pub fn release_all_keys(&mut self) -> Result<usize, Error> {
        let mut left = 0;
        for window in self.slots.idle_windows() {
            left += usize::from(
                window.revoke(&mut self.link, |bound| Posted::Released { _bound: bound })?,
            );
        }
        Ok(left)
    }

    /// Whether the device may still be revoking keys.
    pub fn is_releasing_keys(&self) -> bool {
        let is_left = |posted: &Posted| matches!(posted, Posted::Released { .. });
        self.link.broken().is_none() && self.link.posted().any(is_left)
    }

    /// Whether the memory of a block is registered, so that a pull can go there.
    pub fn reaches(&self, block: &Lease) -> bool {
        self.registry.find(block).is_ok()
    }

    /// Fence the peer: from now on it can write nothing. All pending pulls end with why the connection is over:
    /// `error`, or an earlier reason. Posted reads are dropped with the connection.
    pub fn break_off(&mut self, error: Error) -> Vec<Settled> {
        let error = self.link.fence(error);
        self.slots.settle_all(&error)
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
