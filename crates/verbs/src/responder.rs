//! The owner's end of a connection: it takes requests from its inbox, and writes rows into the peer's blocks.
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_memory::{Lease, Region};
use forebay_tensor::fabric::{BlockRange, Source};
use forebay_tensor::{Error, Key};

use crate::device::Device;
use crate::discovery::Adapter;
use crate::link::{Event, Lifeline, Link, Unconnected};
use crate::registry::{Registry, local_part};
use crate::requests::{Outbox, allocate};
use crate::sys::bytes::copy_out;
use crate::sys::layout::access;
use crate::sys::pair::{LocalPart, RemotePart};
use crate::sys::registration::Registration;
use crate::window::{Bound, SlotWindow};
use crate::wire::{
    Answer, Ask, Exposed, Hello, Request, SLOT_BYTES, Status, encode_answer, exchange_inboxes,
    protocol,
};
use crate::{PULL_BYTES_MAX, Registering};

/// Tensors that may be exposed to one peer.
const EXPOSED_MAX: u32 = 64;
/// Operations posted per slot: binding a key and the answer, for two requests. The peer sees an answer before this end
/// sees its completion, and may send the next request in between.
const SENDS_PER_SLOT: u32 = 4;
/// Longer than any device takes to bind a window.
const BINDING: Duration = Duration::from_secs(1);

#[derive(Debug)]
enum Posted {
    /// Rows, kept until the device has sent them.
    Answer {
        /// Their address and size.
        part: LocalPart,
        _rows: Option<Lease>,
        _registration: Option<Registration>,
    },
    Bound,
    Withdrawn {
        _bound: Bound,
    },
}

/// Serves one peer. For one thread at a time; only [`Responder::wait`] and [`Responder::settle`] block.
#[derive(Debug)]
pub struct Responder {
    /// Tensors that the peer may read, each through its own window. Windows are dropped before their queue pair.
    exposed: Vec<(Key, SlotWindow)>,
    /// The peer's key on the inbox.
    _inbox_window: SlotWindow,
    link: Link<Posted>,
    inbox: Lease,
    /// Descriptions of exposed tensors that are being sent, one per slot.
    outbox: Outbox,
    registry: Arc<Registry>,
    adapter: Adapter,
    registering: Registering,
    events: Vec<Event<Posted>>,
}

impl Responder {
    /// Connect to a `Puller` over a stream between the two, granting it at most `slots`.
    /// `region` must be attached to `registry`. The stream stays open, and may carry other messages afterwards.
    ///
    /// # Errors
    ///
    /// As `Puller::connect`.
    pub fn connect(
        adapter: &Adapter,
        registry: &Arc<Registry>,
        region: &Region,
        stream: Box<dyn Lifeline>,
        slots: u32,
        registering: Registering,
    ) -> Result<Self, Error> {
        let (link, _) = Link::connect(adapter, stream, slots, sends_of(slots))?;
        let places = (adapter, registry, registering);
        let (mut made, ours) = Self::assemble(link, slots, region, places)?;
        if exchange_inboxes(ours, made.link.lifeline())? != RemotePart::default() {
            return Err(protocol("both ends are owners: neither sends requests"));
        }
        Ok(made)
    }

    /// Connect to a requester by its `Offer::introduction`, granting it at most
    /// `slots_max` slots. Returns the answer for the requester too. The caller watches the stream for its end.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] for an invalid introduction, [`Error::Broken`] if the device refuses. Does not wait for the
    /// requester.
    pub fn accept(
        device: &Device,
        introduction: &[u8],
        slots_max: u32,
    ) -> Result<(Self, Vec<u8>), Error> {
        let peer = Hello::read(introduction)?;
        let slots = peer.slots.min(slots_max);
        let unconnected = Unconnected::new(&device.adapter, slots, sends_of(slots))?;
        let ours = unconnected.ours;
        let link = unconnected.connect(&peer, None)?;
        let places = (&device.adapter, &device.registry, Registering::Once);
        let (made, inbox) = Self::assemble(link, slots, &device.requests, places)?;
        Ok((made, encode_answer(&ours, inbox)))
    }

    /// Make the end, and bind the peer's key on its inbox, which is returned too.
    fn assemble(
        mut link: Link<Posted>,
        slots: u32,
        region: &Region,
        (adapter, registry, registering): (&Adapter, &Arc<Registry>, Registering),
    ) -> Result<(Self, RemotePart), Error> {
        let inbox = allocate(region, slots)?;
        let outbox = Outbox::new(region, registry, slots)?;
        let mut inbox_window = SlotWindow::new(&adapter.domain)?;
        let posted = (Posted::Bound, |bound| Posted::Withdrawn { _bound: bound });
        let ours = inbox_window
            .cover(&mut link, registry, &inbox, access::REMOTE_WRITE, posted)?
            .part(0);
        // The device would refuse a request before the binding is done, so the peer gets the key afterwards.
        let mut events = Vec::new();
        link.wait(&mut events, Some(Instant::now() + BINDING))?;
        if events.is_empty() {
            let why = "the device did not bind a window in time".to_owned();
            return Err(Error::Broken { why });
        }
        let made = Self {
            link,
            exposed: Vec::new(),
            inbox,
            _inbox_window: inbox_window,
            outbox,
            registry: Arc::clone(registry),
            adapter: adapter.clone(),
            registering,
            events: Vec::new(),
        };
        Ok((made, ours))
    }

    /// Answer requests, after waiting for one until `deadline`. Returns how many were answered.
    ///
    /// # Errors
    ///
    /// Why the connection is over. The peer can write nothing from then on.
    pub fn wait(&mut self, source: &dyn Source, deadline: Option<Instant>) -> Result<usize, Error> {
        let mut events = mem::take(&mut self.events);
        let waited = self.link.wait(&mut events, deadline);
        let answered = self.answer_all(source, events);
        waited.and(answered)
    }

    /// Answer requests, for an event loop that watches [`Responder::as_fd`](std::os::fd::AsFd::as_fd): afterwards the
    /// descriptor becomes readable with the next request. The loop must watch the stream for its end too.
    ///
    /// # Errors
    ///
    /// As [`Responder::wait`].
    pub fn turn(&mut self, source: &dyn Source) -> Result<usize, Error> {
        let mut events = mem::take(&mut self.events);
        let turned = self.link.turn(&mut events);
        let answered = self.answer_all(source, events);
        turned.and(answered)
    }

    /// Whether the device may still read one of these bytes for an answer.
    pub fn is_sending(&self, start: usize, bytes: usize) -> bool {
        let (start, end) = (start as u64, (start + bytes) as u64);
        let reads = |posted: &Posted| match posted {
            Posted::Answer { part, .. } => {
                part.address < end && start < part.address + u64::from(part.bytes)
            }
            Posted::Bound | Posted::Withdrawn { .. } => false,
        };
        self.broken().is_none() && self.link.posted().any(reads)
    }

    /// Wait until the device reads none of these bytes any more, because they are about to change. Requests that come
    /// meanwhile are answered by the next [`Responder::turn`], which is due then.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] once `deadline` has passed; why the connection is over, after which nothing is read.
    pub fn settle(&mut self, start: usize, bytes: usize, deadline: Instant) -> Result<(), Error> {
        while self.is_sending(start, bytes) {
            let late = Instant::now().saturating_duration_since(deadline);
            if !late.is_zero() {
                return Err(Error::Timeout { late });
            }
            let mut events = Vec::new();
            let waited = self.link.wait(&mut events, Some(deadline));
            // Completed operations need nothing more; received ones are requests.
            let requests = events.drain(..);
            let requests = requests.filter(|each| matches!(each, Event::Received { .. }));
            self.events.extend(requests);
            waited?;
        }
        Ok(())
    }

    /// Whether requests came that no turn has answered.
    pub(crate) fn has_requests(&self) -> bool {
        !self.events.is_empty()
    }

    fn answer_all(
        &mut self,
        source: &dyn Source,
        mut events: Vec<Event<Posted>>,
    ) -> Result<usize, Error> {
        let mut answered = 0;
        for each in events.drain(..) {
            if let Event::Received { immediate, bytes } = each {
                answered += 1;
                let done = self.answer(source, immediate, bytes);
                // On any error: the peer would wait for its answer for ever.
                done.map_err(|error| self.link.fence(error))?;
            }
        }
        self.events = events; // keep its capacity
        Ok(answered)
    }

    fn answer(&mut self, source: &dyn Source, slot: u32, bytes: u32) -> Result<(), Error> {
        let at = slot as usize * SLOT_BYTES;
        if at >= self.inbox.len() || bytes as usize != SLOT_BYTES {
            return Err(protocol("a request in a slot that was not granted"));
        }
        let mut request = [0; SLOT_BYTES];
        copy_out(&self.inbox, at, &mut request);
        let request = Request::decode(&request)?;
        let served = match request.ask {
            Ask::Pull { first, rows } => self.serve_rows(source, &request, first, rows),
            Ask::Expose => self.expose(source, &request, slot),
        };
        let (status, served) = match served {
            Ok(served) => (Status::Ok, Some(served)),
            Err(Failed::Refused(status)) => (status, None),
            Err(Failed::Broken(error)) => return Err(error),
        };
        let answer = Answer {
            status,
            slot,
            turn: request.turn,
        };
        self.send(answer, served, request.into)
    }

    fn send(
        &mut self,
        answer: Answer,
        served: Option<Served>,
        into: RemotePart,
    ) -> Result<(), Error> {
        let nothing = Served {
            part: self.outbox.part(0, 0),
            rows: None,
            registration: None,
        };
        let Served {
            part,
            rows,
            registration,
        } = served.unwrap_or(nothing);
        let posted = Posted::Answer {
            part,
            _rows: rows,
            _registration: registration,
        };
        self.link.post(posted, |pair| {
            pair.write(0, part, into, Some(answer.encode()))
        })
    }

    fn serve_rows(
        &mut self,
        source: &dyn Source,
        request: &Request,
        first: u64,
        rows: u64,
    ) -> Result<Served, Failed> {
        let range = source.rows(request.tensor, first, rows)?;
        let BlockRange {
            block,
            offset: at,
            bytes,
        } = range.ok_or(Failed::Refused(Status::NotInBlock))?;
        if request.room != bytes as u64 || bytes > PULL_BYTES_MAX {
            return Err(Failed::Refused(Status::Room));
        }
        let (part, registration) = if self.registering == Registering::PerTransfer {
            let registration = self.registry.register(block, at, bytes, 0)?;
            (
                local_part(&registration, block, at, bytes),
                Some(registration),
            )
        } else {
            // Not registered: it is in another region, or the kernel did not pin its chunk.
            let registration = self.registry.find(block);
            let registration = registration.map_err(|_| Failed::Refused(Status::NotInBlock))?;
            (local_part(&registration, block, at, bytes), None)
        };
        Ok(Served {
            part,
            rows: Some(block.clone()),
            registration,
        })
    }

    /// Let the peer read a tensor, and send it the key.
    fn expose(
        &mut self,
        source: &dyn Source,
        request: &Request,
        slot: u32,
    ) -> Result<Served, Failed> {
        let block = source.whole(request.tensor)?;
        let block = block.ok_or(Failed::Refused(Status::NotInBlock))?;
        if request.room != Exposed::BYTES as u64 {
            return Err(Failed::Refused(Status::Room));
        }
        let of_it = |(key, window): &(Key, SlotWindow)| *key == request.tensor && !window.is_idle();
        let idle = |(_, window): &(Key, SlotWindow)| window.is_idle();
        let known = self.exposed.iter().position(of_it);
        let index = match known.or_else(|| self.exposed.iter().position(idle)) {
            Some(index) => index,
            None if self.exposed.len() == EXPOSED_MAX as usize => {
                return Err(Failed::Refused(Status::Limit));
            }
            None => {
                self.exposed
                    .push((request.tensor, SlotWindow::new(&self.adapter.domain)?));
                self.exposed.len() - 1
            }
        };
        let posted = (Posted::Bound, |bound| Posted::Withdrawn { _bound: bound });
        let (key, window) = &mut self.exposed[index];
        *key = request.tensor;
        let bound = window.cover(
            &mut self.link,
            &self.registry,
            block,
            access::REMOTE_READ,
            posted,
        )?;
        let exposed = Exposed {
            part: bound.part(0),
            bytes: block.len() as u64,
        };
        self.outbox.write(slot, &exposed.encode());
        Ok(Served {
            part: self.outbox.part(slot, Exposed::BYTES),
            rows: None,
            registration: None,
        })
    }

    /// Take the peer's key on a tensor back. It takes effect when the device has processed it, in
    /// [`Responder::wait`]; a later read breaks the connection. Returns whether the peer had a key.
    ///
    /// # Errors
    ///
    /// Why the connection is over.
    pub fn withdraw(&mut self, tensor: Key) -> Result<bool, Error> {
        let Some(index) = self.exposed.iter().position(|(key, _)| *key == tensor) else {
            return Ok(false);
        };
        let window = &mut self.exposed[index].1; // the window stays, for the next tensor
        window.revoke(&mut self.link, |bound| Posted::Withdrawn { _bound: bound })
    }

    /// Fence the peer and end the connection: from now on it can write nothing.
    pub fn fence(&mut self, error: Error) -> Error {
        self.link.fence(error)
    }

    /// Why the connection is over, if it is.
    pub fn broken(&self) -> Option<&Error> {
        self.link.broken()
    }
}

impl AsFd for Responder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // Before the windows are dropped: the peer can write nothing from here on.
        self.link.close();
    }
}

fn sends_of(slots: u32) -> u32 {
    slots
        .saturating_mul(SENDS_PER_SLOT)
        .saturating_add(2 * EXPOSED_MAX + 1)
}

/// The content of an answer, and what must be kept until it is sent.
struct Served {
    part: LocalPart,
    rows: Option<Lease>,
    registration: Option<Registration>,
}

/// Why a request is not served.
enum Failed {
    /// The peer gets this status.
    Refused(Status),
    /// The connection is over.
    Broken(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        match error {
            Error::Stale { .. } => Self::Refused(Status::Stale),
            Error::OutOfRange { .. } => Self::Refused(Status::OutOfRange),
            other => Self::Broken(other),
        }
    }
}
