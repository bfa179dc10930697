//! The feed against a list that keeps everything: no event is missed without a gap, and none comes twice.

use std::sync::Arc;

use proptest::prelude::*;

use super::event::{EventKind, Happening, ServerState};
use super::names::NAME_BYTES;
use super::reader::{EventFilter, FeedReader, Looks, Next};
use super::ring::{Feed, FeedBounds, PLACE_BYTES};
use crate::id::RequestId;
use crate::request::{Cause, Lane, Options, Request, Status, Submission};

const NAMES: [&str; 3] = ["ann", "bob", "eve"];
const START: u64 = 1_000;

#[derive(Clone, Debug)]
enum Deed {
    /// An event of a request: which one, and what.
    Append(u8, u8),
    /// One about no request.
    Note,
    Refused(u8),
    /// A reader comes, with what it wants, from now on, from the beginning, or from a number of long ago.
    Come(u8, u8),
    /// A reader reads at most so many events.
    Read(u8, u8),
    Leave(u8),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        8 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| Deed::Append(a, b)),
        1 => Just(Deed::Note),
        1 => any::<u8>().prop_map(Deed::Refused),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| Deed::Come(a, b)),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(a, b)| Deed::Read(a, b)),
        1 => any::<u8>().prop_map(Deed::Leave),
    ]
}

/// What the list knows of an event.
#[derive(Clone, Debug)]
struct Known {
    number: u64,
    kind: EventKind,
    id: Option<RequestId>,
    name: Option<&'static str>,
    submitter: Option<&'static str>,
    superseded: bool,
    /// It was dropped when nothing had superseded it.
    lost: bool,
}

/// What a reader wants, as the list understands it.
#[derive(Clone, Debug)]
struct Wanted {
    names: Vec<&'static str>,
    ids: Vec<RequestId>,
    submitter: Option<&'static str>,
    kinds: Option<Vec<EventKind>>,
}

impl Wanted {
    fn drawn(from: u8) -> Self {
        let bit = |bit: u8| from & (1 << bit) != 0;
        let names = if bit(0) {
            NAMES[usize::from(from >> 6) % 3..].to_vec()
        } else {
            Vec::new()
        };
        let ids = if bit(1) {
            vec![RequestId(u64::from(from % 5)), RequestId(2)]
        } else {
            Vec::new()
        };
        Self {
            names,
            ids,
            submitter: bit(2).then_some("s1"),
            kinds: bit(3).then(|| vec![EventKind::Ended, EventKind::Progress, EventKind::Server]),
        }
    }

    fn filter(&self) -> EventFilter {
        let mut filter = EventFilter::default();
        if !self.names.is_empty() {
            filter = filter.with_names(self.names.iter().map(|name| (*name).into()).collect());
        }
        if !self.ids.is_empty() {
            filter = filter.with_ids(self.ids.clone());
        }
        if let Some(submitter) = self.submitter {
            filter = filter.with_submitter(submitter.into());
        }
        match &self.kinds {
            Some(kinds) => filter.with_kinds(kinds.iter().copied()),
            None => filter,
        }
    }

    fn passes(&self, one: &Known) -> bool {
        (self.names.is_empty() || one.name.is_some_and(|name| self.names.contains(&name)))
            && (self.ids.is_empty() || one.id.is_some_and(|id| self.ids.contains(&id)))
            && self
                .submitter
                .is_none_or(|wanted| one.submitter == Some(wanted))
            && self
                .kinds
                .as_ref()
                .is_none_or(|kinds| kinds.contains(&one.kind))
    }
}

struct Reading {
    wanted: Wanted,
    reader: FeedReader,
    /// It has been told of everything up to here.
    told: u64,
}

fn request(number: usize) -> Request {
    Request {
        id: RequestId(number as u64),
        accepted_at: 0,
        submission: Submission {
            name: NAMES[number % 3].into(),
            code: "code".into(),
            submitter: format!("s{}", number % 2).into(),
            arguments: Vec::new().into(),
            options: Arc::new(Options::default()),
        },
    }
}

struct World {
    feed: Feed,
    requests: Vec<Request>,
    /// The number and the length of the newest progress of each that has not ended.
    progress: Vec<Option<(u64, usize)>>,
    list: Vec<Known>,
    readers: Vec<Reading>,
}

impl World {
    fn new(bounds: FeedBounds) -> Self {
        Self {
            feed: Feed::new(START, bounds),
            requests: (0..6).map(request).collect(),
            progress: vec![None; 6],
            list: Vec::new(),
            readers: Vec::new(),
        }
    }

    fn know(&mut self, kind: EventKind, request: Option<usize>) {
        let number = self.feed.newest() + 1;
        let id = request.map(|index| RequestId(index as u64));
        if kind == EventKind::Progress {
            let mut before = self.list.iter_mut().rev();
            if let Some(before) = before.find(|one| one.kind == kind && one.id == id) {
                before.superseded = true;
            }
        }
        self.list.push(Known {
            number,
            kind,
            id,
            name: request.map(|index| NAMES[index % 3]),
            submitter: request.map(|index| if index % 2 == 1 { "s1" } else { "s0" }),
            superseded: false,
            lost: false,
        });
    }

    fn perform(&mut self, deed: &Deed) -> Result<(), TestCaseError> {
        match deed {
            Deed::Append(which, what) => self.append(*which, *what),
            Deed::Note => {
                self.know(EventKind::Server, None);
                let (state, reason) = (ServerState::Held, Some("because".into()));
                self.feed.note(1, Happening::Server { state, reason });
            }
            Deed::Refused(name) => {
                self.know(EventKind::Refused, None);
                let name = NAMES[usize::from(*name) % 3];
                self.list.last_mut().expect("known").name = Some(name);
                self.feed.refused(1, &name.into(), None, "limit");
            }
            Deed::Come(wanted, from) => self.come(Wanted::drawn(*wanted), *from),
            Deed::Read(which, most) => self.read(*which, *most)?,
            Deed::Leave(which) => {
                if !self.readers.is_empty() {
                    let index = usize::from(*which) % self.readers.len();
                    let left = self.readers.swap_remove(index);
                    left.reader.close(&mut self.feed);
                }
            }
        }
        let oldest = self.feed.oldest();
        let dropped = self.list.iter_mut().filter(|one| one.number < oldest);
        dropped.for_each(|one| one.lost |= !one.superseded);
        for (index, newest) in self.progress.iter().enumerate() {
            let told = self.feed.progress(RequestId(index as u64));
            let told = told.map(|record| record.len());
            let may_be_forgotten = newest.is_some_and(|(number, _)| number < oldest);
            let expected = newest.map(|(_, bytes)| bytes);
            prop_assert!(told == expected || (told.is_none() && may_be_forgotten));
        }
        let kept = self.feed.kept();
        prop_assert_eq!(self.feed.newest(), (START << 20) + self.list.len() as u64);
        prop_assert!(self.feed.requests_known() <= kept.0 + 2 * self.readers.len());
        Ok(())
    }

    fn append(&mut self, which: u8, what: u8) {
        let index = usize::from(which) % self.requests.len();
        let happening = match what % 4 {
            0 => Happening::Accepted {
                lane: Lane::Long,
                parent: None,
            },
            1 => Happening::Started {
                attempt: 1,
                worker: 2,
                queued_ms: 3,
            },
            2 => Happening::Progress(vec![0x80; usize::from(what)].into()),
            _ => Happening::Ended {
                status: Status::Failed,
                attempt: 1,
                queued_ms: 2,
                run_ms: 3,
                cause: Some(Cause::Raised),
            },
        };
        let number = self.feed.newest() + 1;
        match &happening {
            Happening::Progress(record) => self.progress[index] = Some((number, record.len())),
            Happening::Ended { .. } => self.progress[index] = None,
            _ => {}
        }
        self.know(happening.kind().expect("a kind"), Some(index));
        self.feed.append(1, &self.requests[index], happening);
    }

    fn come(&mut self, wanted: Wanted, from: u8) {
        let base = START << 20;
        let newest = self.feed.newest();
        let (cursor, told) = match from % 4 {
            0 => (None, newest),
            1 => (Some(0), self.feed.oldest() - 1),
            2 => {
                let number = base + u64::from(from) % (newest - base + 1);
                (Some(number), number)
            }
            _ => (Some(base - 7), base - 7),
        };
        let reader = FeedReader::open(&mut self.feed, wanted.filter(), cursor);
        let reader = reader.expect("a reader");
        self.readers.push(Reading {
            wanted,
            reader,
            told,
        });
    }

    /// What comes next is the next event that passes, or a gap that is true.
    fn read(&mut self, which: u8, most: u8) -> Result<(), TestCaseError> {
        if self.readers.is_empty() {
            return Ok(());
        }
        let index = usize::from(which) % self.readers.len();
        let Reading {
            wanted,
            reader,
            told,
        } = &mut self.readers[index];
        let oldest = self.feed.oldest();
        for _ in 0..most % 16 {
            let after = *told;
            let owed = |from: u64| {
                let mut due = self.list.iter().filter(move |one| one.number > from);
                due.find(|one| one.number >= oldest && !one.superseded && wanted.passes(one))
            };
            match reader.next(&self.feed, &mut Looks::default()) {
                Next::Event(event) => {
                    let expected = owed(after).map(|one| (one.number, one.kind, one.id, one.name));
                    let got = (event.number, event.kind, event.id, event.name);
                    prop_assert_eq!(expected, Some(got));
                    *told = event.number;
                }
                Next::Gap { first, last } => {
                    prop_assert!(first == after + 1 && first <= last && last < oldest);
                    let mut between = self.list.iter().filter(|one| one.number >= first);
                    let is_foreign = first <= START << 20;
                    prop_assert!(
                        is_foreign || between.any(|one| one.lost),
                        "nothing is missed"
                    );
                    *told = oldest - 1;
                }
                Next::Nothing => {
                    prop_assert!(!reader.has_news(&self.feed));
                    let missed = self
                        .list
                        .iter()
                        .find(|one| one.number > after && !one.superseded && wanted.passes(one));
                    prop_assert!(missed.is_none(), "{missed:?} was never told");
                    *told = self.feed.newest();
                }
                Next::Later => {}
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn readers_get_what_happens_or_a_gap(
        events_max in 1_usize..40,
        places in 1_usize..40,
        deeds in proptest::collection::vec(deed(), 1..300),
    ) {
        let bytes_max = places * (PLACE_BYTES + 100);
        let mut world = World::new(FeedBounds { events_max, bytes_max });
        for deed in &deeds {
            world.perform(deed)?;
            let (events, bytes) = world.feed.kept();
            prop_assert!(events <= events_max && bytes <= bytes_max);
        }
        for reading in world.readers.drain(..) {
            reading.reader.close(&mut world.feed);
        }
        prop_assert!(world.feed.requests_known() <= world.feed.kept().0);
    }
}

/// What a reader gets in a turn of its own.
fn next<'a>(reader: &mut FeedReader, feed: &'a Feed) -> Next<'a> {
    reader.next(feed, &mut Looks::default())
}

#[test]
fn a_reader_of_one_name_looks_at_no_other() {
    let mut world = World::new(FeedBounds::default());
    for step in 0..60_000_u32 {
        let which = if step.is_multiple_of(1_000) { 1 } else { 3 };
        world.append(which, 0);
    }
    let filter = EventFilter::default().with_names(vec![NAMES[1].into()]);
    let mut reader = FeedReader::open(&mut world.feed, filter, Some(0)).expect("a reader");
    for _ in 0..60 {
        assert!(
            matches!(next(&mut reader, &world.feed), Next::Event(_)),
            "without a rest"
        );
    }
    assert_eq!(next(&mut reader, &world.feed), Next::Nothing);
}

#[test]
fn a_reader_that_finds_little_rests_between() {
    let mut world = World::new(FeedBounds::default());
    (0..60_000).for_each(|_| world.append(1, 0));
    let filter = EventFilter::default().with_kinds([EventKind::Server]);
    let mut reader = FeedReader::open(&mut world.feed, filter, Some(0)).expect("a reader");
    assert_eq!(next(&mut reader, &world.feed), Next::Later);
    let rests = (0..60).take_while(|_| next(&mut reader, &world.feed) == Next::Later);
    assert!(rests.count() < 16);
    assert_eq!(next(&mut reader, &world.feed), Next::Nothing);
}

#[test]
fn a_reader_that_comes_back_rests_while_it_looks_for_its_place() {
    let mut world = World::new(FeedBounds::default());
    (0..60_000).for_each(|_| world.append(1, 0));
    let newest = world.feed.newest();
    let filters = [
        EventFilter::default().with_names(vec![NAMES[1].into()]),
        EventFilter::of_request(RequestId(1)),
    ];
    for filter in filters {
        let cursor = Some(newest - 1);
        let mut reader = FeedReader::open(&mut world.feed, filter, cursor).expect("a reader");
        let rests = (0..60).take_while(|_| next(&mut reader, &world.feed) == Next::Later);
        assert_eq!(rests.count(), 60_000 / 4_096);
        // The last look found it.
        assert_eq!(next(&mut reader, &world.feed), Next::Nothing);
    }
}

#[test]
fn an_item_of_few_events_ends_with_the_looks_of_its_turn() {
    let mut world = World::new(FeedBounds::default());
    for step in 0..60_000_u32 {
        if step.is_multiple_of(1_000) {
            world.perform(&Deed::Note).expect("a note");
        } else {
            world.append(1, 0);
        }
    }
    let filter = EventFilter::default().with_kinds([EventKind::Server]);
    let mut reader = FeedReader::open(&mut world.feed, filter, Some(0)).expect("a reader");
    let mut looks = Looks::default();
    let found = (0..60).take_while(|_| {
        let found = reader.next(&world.feed, &mut looks);
        matches!(found, Next::Event(_))
    });
    assert_eq!(found.count(), 5, "of 4,096 places");
}

#[test]
fn a_number_that_was_not_given_yet_is_no_cursor() {
    let mut feed = Feed::new(START, FeedBounds::default());
    let ahead = feed.newest() + 1;
    assert_eq!(
        FeedReader::open(&mut feed, EventFilter::default(), Some(ahead)).err(),
        Some(ahead)
    );
}

#[test]
fn a_flood_of_progress_is_no_gap_for_who_waits_for_the_end() {
    let mut world = World::new(FeedBounds::default());
    let filter = EventFilter::of_request(RequestId(1));
    let mut reader = FeedReader::open(&mut world.feed, filter, None).expect("a reader");
    for _ in 0..200_000 {
        world.append(1, 2);
    }
    world.append(1, 3);
    let kinds: Vec<_> = std::iter::from_fn(|| match next(&mut reader, &world.feed) {
        Next::Event(event) => Some(Some(event.kind)),
        Next::Later => Some(None),
        Next::Gap { .. } => panic!("nothing is missed"),
        Next::Nothing => None,
    })
    .flatten()
    .collect();
    assert_eq!(kinds, [EventKind::Progress, EventKind::Ended]);
    assert!(world.feed.progress(RequestId(1)).is_none(), "it has ended");
}

#[test]
fn a_flood_of_progress_is_no_gap_for_who_reads_everything() {
    let bounds = FeedBounds {
        events_max: 10,
        ..FeedBounds::default()
    };
    let mut world = World::new(bounds);
    let mut reader =
        FeedReader::open(&mut world.feed, EventFilter::default(), None).expect("a reader");
    (0..100).for_each(|_| world.append(1, 2));
    let newest = world.feed.newest();
    assert!(matches!(next(&mut reader, &world.feed), Next::Event(event) if event.number == newest));
    assert_eq!(next(&mut reader, &world.feed), Next::Nothing);
    (0..11).for_each(|_| world.append(1, 0));
    assert!(matches!(next(&mut reader, &world.feed), Next::Gap { .. }));
}

#[test]
fn progress_of_requests_that_wait_is_counted_with_the_events() {
    let bounds = FeedBounds {
        bytes_max: 64 << 10,
        ..FeedBounds::default()
    };
    let mut feed = Feed::new(START, bounds);
    let told = 1_000;
    for number in 0..told {
        let record = vec![0x80; 1_000].into();
        feed.append(1, &request(number), Happening::Progress(record));
        assert!(feed.kept().1 <= bounds.bytes_max);
    }
    for _ in 0..told {
        feed.note(1, Happening::Scheduled);
        assert!(feed.kept().1 <= bounds.bytes_max);
    }
    let kept: Vec<_> = (0..told)
        .filter(|number| feed.progress(RequestId(*number as u64)).is_some())
        .collect();
    let newest: Vec<_> = (told - kept.len()..told).collect();
    assert_eq!(kept, newest, "the oldest are forgotten first");
    assert!(
        (20..=32).contains(&kept.len()),
        "half of the bytes: {}",
        kept.len()
    );
    assert!(feed.kept().0 > 100, "the other half is for events");
    let ended = Happening::Ended {
        status: Status::Failed,
        attempt: 1,
        queued_ms: 2,
        run_ms: 3,
        cause: None,
    };
    let before = feed.kept().1;
    feed.append(1, &request(told - 1), ended);
    assert!(feed.progress(RequestId(told as u64 - 1)).is_none());
    assert!(feed.kept().1 < before, "its record is not kept any more");
}

#[test]
fn names_that_were_refused_are_counted_with_the_events() {
    let bounds = FeedBounds {
        bytes_max: 1 << 20,
        ..FeedBounds::default()
    };
    let mut feed = Feed::new(START, bounds);
    for number in 0..20_000 {
        let name = format!("{number:0256}").into();
        feed.refused(1, &name, None, "unknown");
    }
    let (events, bytes) = feed.kept();
    assert!(bytes <= bounds.bytes_max);
    assert!(events * (PLACE_BYTES + 256 + NAME_BYTES) <= bounds.bytes_max);
    assert!(events > 1_000);
    // Of names without an event there are few.
    assert!(feed.names_known() <= events + 1);
}

#[test]
fn a_feed_without_readers_counts_and_keeps_nothing() {
    let mut world = World::new(FeedBounds::NOTHING);
    (0..10).for_each(|which| world.append(which, which));
    assert_eq!(world.feed.newest(), (START << 20) + 10);
    assert_eq!(
        (world.feed.kept(), world.feed.requests_known()),
        ((0, 0), 0)
    );
    let mut exposition = super::Exposition::default();
    world.feed.expose(&mut exposition);
    assert!(exposition.counters.iter().any(|one| one.value > 0.0));
}
