//! A reader of the feed: where it is, what it wants, and what it has missed.

use std::sync::Arc;

use super::chain::{Chain, Of};
use super::event::{Event, EventKind};
use super::ring::Feed;
use crate::id::RequestId;

/// Places that a reader looks at for one item: about 20 us.
const LOOKED_MAX: usize = 4_096;

/// How many places a reader may still look at for an item, in its chains as well as in the ring.
#[derive(Debug)]
pub struct Looks(usize);

impl Default for Looks {
    fn default() -> Self {
        Self(LOOKED_MAX)
    }
}

impl Looks {
    fn take(&mut self) -> Option<()> {
        self.0 = self.0.checked_sub(1)?;
        Some(())
    }
}

/// What a reader wants: an event passes that fits each of what is given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventFilter {
    names: Vec<Arc<str>>,
    ids: Vec<RequestId>,
    submitter: Option<Arc<str>>,
    /// One bit for each kind; `None`: all.
    kinds: Option<u16>,
}

const _: () = assert!(EventKind::ALL.len() <= u16::BITS as usize);

impl EventFilter {
    /// Only events of one request.
    pub fn of_request(id: RequestId) -> Self {
        Self::default().with_ids(vec![id])
    }

    /// Only events of requests with these names.
    #[must_use]
    pub fn with_names(mut self, mut names: Vec<Arc<str>>) -> Self {
        names.sort_unstable();
        names.dedup();
        self.names = names;
        self
    }

    /// Only events of these requests.
    #[must_use]
    pub fn with_ids(mut self, mut ids: Vec<RequestId>) -> Self {
        ids.sort_unstable();
        ids.dedup();
        self.ids = ids;
        self
    }

    /// Only events of requests of this submitter.
    #[must_use]
    pub fn with_submitter(mut self, submitter: Arc<str>) -> Self {
        self.submitter = Some(submitter);
        self
    }

    /// Only events of these kinds.
    #[must_use]
    pub fn with_kinds(mut self, kinds: impl IntoIterator<Item = EventKind>) -> Self {
        self.kinds = Some(kinds.into_iter().fold(0, |bits, kind| bits | bit(kind)));
        self
    }

    /// The names whose chains are read: where ids are given, those are fewer.
    fn chained_names(&self) -> &[Arc<str>] {
        if self.ids.is_empty() {
            &self.names
        } else {
            &[]
        }
    }

    /// Whether it reads chains, and not each place.
    fn is_chained(&self) -> bool {
        !self.ids.is_empty() || !self.names.is_empty()
    }

    /// Whether an event passes, of those that its chains lead to.
    fn passes(&self, feed: &Feed, event: &Event<'_>) -> bool {
        let kind = self.kinds.is_none_or(|bits| bits & bit(event.kind) != 0);
        let submitter = self.submitter.as_deref();
        let named = || self.names.is_empty() || feed.is_named(event.number, &self.names);
        kind && submitter.is_none_or(|one| event.submitter == Some(one))
            && (self.ids.is_empty() || named())
    }
}

fn bit(kind: EventKind) -> u16 {
    1 << kind as u16
}

/// Where a reader is in one chain.
#[derive(Clone, Copy, Debug)]
struct Position {
    of: Of,
    /// The last place of the chain that it looked at, or 0.
    at: u64,
}

impl Position {
    /// The next place of the chain behind the cursor.
    fn next(&mut self, feed: &Feed, cursor: u64, looks: &mut Looks) -> Found {
        let chain = feed.chain(self.of);
        let Some((first, last)) = chain.and_then(|chain| Some((chain.first()?, chain.last()?)))
        else {
            return Found::None;
        };
        if last <= cursor {
            self.at = last;
            return Found::None;
        }
        let mut next = if self.at < first {
            Some(first)
        } else {
            feed.next(self.of, self.at)
        };
        // Of a reader that comes back: its place is looked for once, in so many turns as it takes.
        while let Some(number) = next {
            if looks.take().is_none() {
                return Found::Later;
            }
            if number > cursor {
                return Found::At(number);
            }
            self.at = number;
            next = feed.next(self.of, number);
        }
        Found::None
    }
}

/// What a search for the next place has found.
enum Found {
    At(u64),
    None,
    /// It has looked at as many as it may.
    Later,
}

/// What a reader gets next.
#[derive(Debug, PartialEq)]
pub enum Next<'a> {
    Event(Event<'a>),
    /// It has missed events, none of which has a number before `first` or behind `last`.
    Gap {
        first: u64,
        last: u64,
    },
    /// It has all that there is.
    Nothing,
    /// It has looked at as many places as it may: it goes on in the next turn.
    Later,
}

/// One reader. It holds nothing of the feed.
#[derive(Debug)]
pub struct FeedReader {
    filter: EventFilter,
    positions: Vec<Position>,
    /// It has had everything up to this number.
    cursor: u64,
    /// It comes from an earlier server, whose events are not kept.
    is_foreign: bool,
}

impl FeedReader {
    /// A reader from a cursor on: the number of the last event that it had, 0 for all that is kept, none for what
    /// happens from now on. Its end is [`Self::close`].
    ///
    /// # Errors
    /// The cursor, which was not given yet.
    pub fn open(feed: &mut Feed, filter: EventFilter, cursor: Option<u64>) -> Result<Self, u64> {
        let newest = feed.newest();
        if let Some(ahead) = cursor.filter(|cursor| *cursor > newest) {
            return Err(ahead);
        }
        let mut chains: Vec<Of> = Vec::new();
        chains.extend(filter.ids.iter().map(|id| feed.pin_request(*id)));
        chains.extend(
            filter
                .chained_names()
                .iter()
                .map(|name| feed.pin_name(name)),
        );
        let positions = chains.into_iter().map(|of| Position { of, at: 0 });
        Ok(Self {
            filter,
            positions: positions.collect(),
            cursor: match cursor {
                None => newest,
                Some(0) => feed.oldest() - 1,
                Some(number) => number,
            },
            is_foreign: cursor.is_some_and(|cursor| cursor > 0 && cursor < feed.base()),
        })
    }

    /// It leaves: its chains need not be kept for it.
    pub fn close(self, feed: &mut Feed) {
        for position in self.positions {
            feed.unpin(position.of);
        }
    }

    /// Whether there may be something for it.
    pub fn has_news(&self, feed: &Feed) -> bool {
        if self.is_foreign {
            return true;
        }
        if !self.filter.is_chained() {
            return self.cursor < feed.newest();
        }
        let mut chains = self.positions.iter().filter_map(|one| feed.chain(one.of));
        chains.any(|chain| chain.has_news(self.cursor))
    }

    /// Whether a gap is what it gets next.
    pub fn has_missed(&self, feed: &Feed) -> bool {
        self.missed(feed).is_some()
    }

    /// What it gets next; it has had that then.
    pub fn next<'a>(&mut self, feed: &'a Feed, looks: &mut Looks) -> Next<'a> {
        if let Some(last) = self.missed(feed) {
            let first = self.cursor + 1;
            self.is_foreign = false;
            self.cursor = feed.oldest() - 1;
            return Next::Gap { first, last };
        }
        loop {
            let number = match self.next_place(feed, looks) {
                Found::At(number) => number,
                Found::Later => return Next::Later,
                Found::None => {
                    self.cursor = feed.newest();
                    return Next::Nothing;
                }
            };
            self.cursor = number;
            let event = feed.event(number);
            if let Some(event) = event.filter(|event| self.filter.passes(feed, event)) {
                return Next::Event(event);
            }
        }
    }

    /// The newest number that it has missed, if it has missed any.
    fn missed(&self, feed: &Feed) -> Option<u64> {
        let dropped = if self.filter.is_chained() {
            let chains = self.positions.iter().filter_map(|one| feed.chain(one.of));
            chains.map(Chain::dropped).max().unwrap_or(0)
        } else {
            feed.dropped()
        };
        if self.is_foreign {
            return Some(dropped.max(feed.base()));
        }
        (dropped > self.cursor).then_some(dropped)
    }

    /// The next place that it looks at: the oldest of its chains, or of all.
    fn next_place(&mut self, feed: &Feed, looks: &mut Looks) -> Found {
        let cursor = self.cursor;
        if !self.filter.is_chained() {
            // Behind it superseded places alone may have been dropped.
            let next = feed.oldest().max(cursor + 1);
            return match looks.take() {
                _ if next > feed.newest() => Found::None,
                Some(()) => Found::At(next),
                None => Found::Later,
            };
        }
        let mut oldest: Option<u64> = None;
        for position in &mut self.positions {
            match position.next(feed, cursor, looks) {
                Found::At(next) => {
                    oldest = Some(oldest.map_or(next, |oldest| oldest.min(next)));
                }
                Found::None => {}
                Found::Later => return Found::Later,
            }
        }
        oldest.map_or(Found::None, Found::At)
    }
}
