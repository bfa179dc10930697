//! The ring of events, bounded by their number and their bytes, with its chains and its metrics.

use std::collections::VecDeque;
use std::sync::Arc;

use super::chain::{Chain, Of};
use super::event::{Event, Happening};
use super::exposition::Exposition;
use super::metrics::Metrics;
use super::names::{NAME_BYTES, NAMELESS, NameChains};
use super::parked::ParkedProgress;
use super::requests::RequestChains;
use crate::id::RequestId;
use crate::limit::{FEED_BYTES_MAX, FEED_EVENTS_MAX};
use crate::request::{Millis, Request, Status};

/// Bits of a number below the milliseconds of its server's start: a server that appends a million events a
/// millisecond would be needed to reach the numbers of the next one.
const NUMBER_BITS: u32 = 20;
/// What a place costs beside what its event holds: itself, and its share of the chains.
pub(super) const PLACE_BYTES: usize = size_of::<Place>() + 64;

/// How much a ring keeps.
#[derive(Clone, Copy, Debug)]
pub struct FeedBounds {
    pub events_max: usize,
    pub bytes_max: usize,
}

impl FeedBounds {
    /// Of a feed that only counts.
    pub const NOTHING: Self = Self {
        events_max: 0,
        bytes_max: 0,
    };
}

impl Default for FeedBounds {
    fn default() -> Self {
        Self {
            events_max: FEED_EVENTS_MAX,
            bytes_max: FEED_BYTES_MAX,
        }
    }
}

/// One event in the ring. A link is the distance to the next place of its chain; 0: there is none yet.
#[derive(Debug)]
struct Place {
    at: Millis,
    id: Option<RequestId>,
    name: u32,
    next_of_name: u32,
    next_of_request: u32,
    happening: Happening,
}

/// The newest events of a server.
#[derive(Debug)]
pub struct Feed {
    bounds: FeedBounds,
    /// The number before the first of this server.
    base: u64,
    /// The number of the first place.
    first: u64,
    /// The newest event that was dropped. A superseded one does not count: nobody misses it.
    dropped: u64,
    places: VecDeque<Place>,
    /// Bytes of all places.
    bytes: usize,
    names: NameChains,
    requests: RequestChains,
    /// The newest progress of each request that has not ended and whose place was dropped.
    parked: ParkedProgress,
    metrics: Metrics,
}

/// Numbers.
impl Feed {
    /// The empty feed of a server. Its numbers are above those of every earlier server on the same store, given that
    /// `begins` is so far above theirs that they have not reached it.
    pub fn new(begins: Millis, bounds: FeedBounds) -> Self {
        let base = begins << NUMBER_BITS;
        Self {
            bounds,
            base,
            first: base + 1,
            dropped: base,
            places: VecDeque::new(),
            bytes: 0,
            names: NameChains::default(),
            requests: RequestChains::default(),
            parked: ParkedProgress::default(),
            metrics: Metrics::default(),
        }
    }

    /// The number of the newest event.
    pub fn newest(&self) -> u64 {
        self.first + self.places.len() as u64 - 1
    }

    /// The number of the oldest event that is kept; behind the newest one if none is.
    pub fn oldest(&self) -> u64 {
        self.first
    }

    /// The newest event that was dropped, if that is one of this server.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The number before the first of this server.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// How many events are kept, superseded ones included, and all bytes.
    pub fn kept(&self) -> (usize, usize) {
        (self.places.len(), self.bytes + self.parked.bytes())
    }

    /// Add the counters, and how much is kept.
    pub fn expose(&self, to: &mut Exposition) {
        self.metrics.expose(to);
        let (events, bytes) = self.kept();
        to.gauge("forebay_feed_events", &[], events as u64);
        to.gauge("forebay_feed_bytes", &[], bytes as u64);
        to.counter("forebay_feed_events_total", &[], self.newest() - self.base);
    }

    /// The counters, for what is no event.
    pub fn metrics_mut(&mut self) -> &mut Metrics {
        &mut self.metrics
    }
}

/// Appending.
impl Feed {
    /// Append an event of a request.
    pub fn append(&mut self, at: Millis, request: &Request, happening: Happening) {
        let (id, submission) = (request.id, &request.submission);
        if matches!(happening, Happening::Progress(_)) {
            // First: what is dropped for this one is missed by nobody if this one replaces it.
            self.supersede(self.requests.get(id).map_or(0, |known| known.progress));
        }
        let keeps = self.make_room();
        let name = self.names.index(&submission.name);
        let metrics = &mut self.metrics;
        let row = self.names.counted(name, |text| metrics.row(text));
        self.metrics.count(row, &happening);
        if !keeps {
            return;
        }
        let number = self.newest() + 1;
        let known = self.requests.open(id);
        if known.submitter.is_none() {
            known.submitter = Some(Arc::clone(&submission.submitter));
        }
        match &happening {
            Happening::Progress(_) => {
                self.parked.forget(id);
                known.progress = number;
            }
            Happening::Ended {
                status, attempt, ..
            } => {
                known.ended = Some((*status, *attempt));
                known.end = number;
                self.parked.forget(id);
            }
            _ => known.ended = None,
        }
        self.push(at, Some(id), name, happening);
    }

    /// Append that a submission was refused; `id` if it had one.
    pub fn refused(
        &mut self,
        at: Millis,
        name: &Arc<str>,
        id: Option<RequestId>,
        code: &'static str,
    ) {
        self.metrics.refused(code);
        if !self.make_room() {
            return;
        }
        let name = self.names.index(name);
        if let Some(id) = id {
            self.requests.open(id);
        }
        self.push(at, id, name, Happening::Refused(code));
    }

    /// Append an event that is about no request.
    pub fn note(&mut self, at: Millis, happening: Happening) {
        self.metrics.count_other(&happening);
        if !self.make_room() {
            return;
        }
        self.push(at, None, NAMELESS, happening);
    }

    /// Drop what is too many with one event more: before that is appended, so that the array need not grow for it.
    /// False if no events are kept; one gets its number all the same.
    fn make_room(&mut self) -> bool {
        let keeps = self.bounds.events_max > 0;
        self.first += u64::from(!keeps);
        while keeps && self.places.len() >= self.bounds.events_max {
            self.drop_first();
        }
        keeps
    }

    fn push(&mut self, at: Millis, id: Option<RequestId>, name: u32, happening: Happening) {
        let number = self.newest() + 1;
        self.bytes += self.cost(name, &happening);
        self.places.push_back(Place {
            at,
            id,
            name,
            next_of_name: 0,
            next_of_request: 0,
            happening,
        });
        let before = self.names.chain_mut(name);
        if let Some(before) = before.and_then(|chain| chain.append(number)) {
            self.place_mut(before).next_of_name = distance(before, number);
        }
        let known = id.and_then(|id| self.requests.get_mut(id));
        if let Some(before) = known.and_then(|known| known.chain.append(number)) {
            self.place_mut(before).next_of_request = distance(before, number);
        }
        self.trim();
    }

    /// Drop what is above the bound. Of that, progress without a place may have the half.
    fn trim(&mut self) {
        let bytes_max = self.bounds.bytes_max;
        while self.kept().1 > bytes_max {
            if self.parked.bytes() > bytes_max / 2 {
                self.parked.forget_oldest();
            } else {
                self.drop_first();
            }
        }
    }

    /// The bytes of a place. A name that was refused is kept for its event alone; others are of the application.
    fn cost(&self, name: u32, happening: &Happening) -> usize {
        let named = match happening {
            Happening::Refused(_) => NAME_BYTES + self.names.text(name).map_or(0, str::len),
            _ => 0,
        };
        PLACE_BYTES + happening.held_bytes() + named
    }

    /// Empty a place that a newer one makes needless, if it is kept.
    fn supersede(&mut self, number: u64) {
        if number >= self.first {
            let place = self.place_mut(number);
            let held = place.happening.held_bytes();
            place.happening = Happening::Superseded;
            self.bytes -= held;
        }
    }

    fn drop_first(&mut self) {
        let Some(place) = self.places.pop_front() else {
            return;
        };
        let number = self.first;
        self.first += 1;
        self.bytes -= self.cost(place.name, &place.happening);
        let superseded = place.happening == Happening::Superseded;
        if !superseded {
            self.dropped = number;
        }
        if let Some(chain) = self.names.chain_mut(place.name) {
            chain.drop_first(behind(number, place.next_of_name), superseded);
            self.names.release(place.name);
        }
        if let Some(id) = place.id
            && let Some(known) = self.requests.get_mut(id)
        {
            if let Happening::Progress(record) = place.happening
                && known.end < number
            {
                self.parked.keep(id, number, record);
            }
            let next = behind(number, place.next_of_request);
            known.chain.drop_first(next, superseded);
            self.requests.release(id);
        }
    }

    fn place_mut(&mut self, number: u64) -> &mut Place {
        let index = index(self.first, number);
        &mut self.places[index]
    }
}

/// Reading.
impl Feed {
    /// The chain of a request, which stays until [`Self::unpin`].
    pub(super) fn pin_request(&mut self, id: RequestId) -> Of {
        self.requests.open(id).chain.pin();
        Of::Request(id)
    }

    /// The chain of a name, which stays until [`Self::unpin`].
    pub(super) fn pin_name(&mut self, name: &Arc<str>) -> Of {
        let name = self.names.index(name);
        if let Some(chain) = self.names.chain_mut(name) {
            chain.pin();
        }
        Of::Name(name)
    }

    /// A reader of a chain has left.
    pub(super) fn unpin(&mut self, chain: Of) {
        match chain {
            Of::Request(id) => {
                if let Some(known) = self.requests.get_mut(id) {
                    known.chain.unpin();
                }
                self.requests.release(id);
            }
            Of::Name(name) => {
                if let Some(chain) = self.names.chain_mut(name) {
                    chain.unpin();
                }
                self.names.release(name);
            }
        }
    }

    /// How a request ended, with its attempts, if that is known here.
    pub fn ended(&self, id: RequestId) -> Option<(Status, u32)> {
        self.requests.get(id)?.ended
    }

    /// Whether a request has ended behind this number, as far as that is known here.
    pub fn ends_behind(&self, id: RequestId, number: u64) -> bool {
        let known = self.requests.get(id);
        known.is_some_and(|known| known.ended.is_some() && known.end > number)
    }

    /// The newest progress of a request that has not ended, unless newer ones needed its room.
    pub fn progress(&self, id: RequestId) -> Option<&Arc<[u8]>> {
        let known = self.requests.get(id).filter(|it| it.end < it.progress);
        let place = known.and_then(|known| self.place(known.progress));
        match place.map(|place| &place.happening) {
            Some(Happening::Progress(record)) => Some(record),
            _ => self.parked.get(id),
        }
    }

    /// The event of a number; `None` if it was superseded, dropped or not given yet.
    pub fn event(&self, number: u64) -> Option<Event<'_>> {
        let place = self.place(number)?;
        let known = place.id.and_then(|id| self.requests.get(id));
        Some(Event {
            number,
            at: place.at,
            id: place.id,
            name: self.names.text(place.name),
            submitter: known.and_then(|known| known.submitter.as_deref()),
            kind: place.happening.kind()?,
            happening: &place.happening,
        })
    }

    /// Whether the request of an event has this name.
    pub(super) fn is_named(&self, number: u64, names: &[Arc<str>]) -> bool {
        let name = self
            .place(number)
            .and_then(|place| self.names.text(place.name));
        name.is_some_and(|name| names.iter().any(|one| **one == *name))
    }

    pub(super) fn chain(&self, of: Of) -> Option<&Chain> {
        match of {
            Of::Request(id) => self.requests.get(id).map(|known| &known.chain),
            Of::Name(name) => self.names.chain(name),
        }
    }

    /// The place behind a kept one in a chain.
    pub(super) fn next(&self, of: Of, number: u64) -> Option<u64> {
        let place = self.place(number)?;
        let link = match of {
            Of::Request(_) => place.next_of_request,
            Of::Name(_) => place.next_of_name,
        };
        behind(number, link)
    }

    fn place(&self, number: u64) -> Option<&Place> {
        let kept = number.checked_sub(self.first)?;
        self.places.get(usize::try_from(kept).ok()?)
    }

    #[cfg(test)]
    pub(super) fn names_known(&self) -> usize {
        self.names.len()
    }

    #[cfg(test)]
    pub(crate) fn requests_known(&self) -> usize {
        self.requests.len()
    }
}

fn index(first: u64, number: u64) -> usize {
    usize::try_from(number - first).unwrap_or(usize::MAX)
}

/// A link, which is short: no more places are kept.
fn distance(from: u64, to: u64) -> u32 {
    u32::try_from(to - from).unwrap_or(0)
}

fn behind(number: u64, link: u32) -> Option<u64> {
    (link > 0).then(|| number + u64::from(link))
}
