//! What an observer reads: pages with their filters, and how much of the database that takes.

use std::sync::Arc;

use forebay_executor::id::{EPOCH_MS, RequestId, SEQUENCE_BITS};
use forebay_executor::op::Op;
use forebay_executor::request::{Failure, Lane, Options, Outcome, Request, Status};
use forebay_executor::store::{DatabaseReader, Filter};
use proptest::prelude::*;

use crate::given::{Directory, Driven, accept, claim, end, end_with, request};

const DAY_MS: u64 = 86_400_000;

/// A request of this name and submitter, accepted then.
fn given(id: u64, name: &str, submitter: &str, lane: Lane, accepted_at: u64) -> Op {
    let options = Options {
        lane,
        ..Options::default()
    };
    let mut given = Request::clone(&request(id, *b"\x80", options));
    given.accepted_at = accepted_at;
    given.submission.name = name.into();
    given.submission.submitter = submitter.into();
    Op::Accept(Arc::new(given))
}

/// The same, submitted by that request.
fn child(accept: Op, parent: Option<RequestId>) -> Op {
    let Op::Accept(request) = accept else {
        panic!("no accept: {accept:?}");
    };
    let mut request = Request::clone(&request);
    let options = Options::clone(&request.submission.options);
    request.submission.options = Arc::new(Options { parent, ..options });
    Op::Accept(Arc::new(request))
}

/// The ids of all pages, one after another, and how many pages there were.
fn listed(reader: &DatabaseReader, filter: &Filter, most: usize) -> (Vec<u64>, usize) {
    let (mut ids, mut cursor, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = reader.page(filter, cursor, most).expect("a page");
        assert!(page.requests.len() <= most);
        ids.extend(page.requests.iter().map(|one| one.id.0));
        pages += 1;
        cursor = page.next;
        if cursor.is_none() {
            return (ids, pages);
        }
    }
}

fn failed(id: u64, status: Status) -> Op {
    end_with(id, status, Outcome::Failed(Failure::OutcomeUnknown))
}

#[test]
fn a_request_is_read_with_all_that_is_kept_of_it() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![
        accept(1),
        accept(2),
        claim(2, 1),
        failed(2, Status::Dead),
    ]);
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    let waits = reader.request(RequestId(1)).expect("read").expect("there");
    assert_eq!((waits.status, waits.attempts), (Status::Queued, 0));
    assert_eq!(waits.ended_at, None);
    assert_eq!(
        reader.arguments(RequestId(1)).expect("read").as_deref(),
        Some(&b"\x80"[..])
    );
    let ended = reader.request(RequestId(2)).expect("read").expect("there");
    assert_eq!((&*ended.name, ended.lane), ("digits", Lane::Long));
    assert_eq!(ended.claimed_at, Some(1_760_000_100_002));
    assert_eq!(ended.peak_bytes, Some(60 << 20));
    let failure = ended.failure.expect("a failure");
    assert!(failure.contains("outcome_unknown"), "{failure}");
    assert_eq!(
        reader.status(RequestId(2)).expect("read"),
        Some(Status::Dead)
    );
    for nothing in [
        reader.request(RequestId(3)).expect("read").map(|_| ()),
        reader.status(RequestId(3)).expect("read").map(|_| ()),
        reader.arguments(RequestId(3)).expect("read").map(|_| ()),
        reader.options(RequestId(3)).expect("read").map(|_| ()),
    ] {
        assert_eq!(nothing, None);
    }
}

#[test]
fn a_filter_that_fits_little_takes_many_bounded_pages() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let rows = (1..=25_000).map(|id| {
        let rare = id % 12_000 == 1;
        let name = if rare { "rare" } else { "usual" };
        let submitter = if rare { "rare" } else { "usual" };
        given(id, name, submitter, Lane::Long, 1_760_000_000_000 + id)
    });
    driven.commit(rows.collect());
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    let rare = vec![24_001, 12_001, 1];
    let by_submitter = Filter {
        submitter: Some("rare".into()),
        ..Filter::default()
    };
    assert_eq!(listed(&reader, &by_submitter, 100), (rare.clone(), 3));
    // A name has an index: the others are not looked at.
    let by_name = Filter {
        name: Some("rare".into()),
        ..Filter::default()
    };
    assert_eq!(listed(&reader, &by_name, 100), (rare, 1));
}

#[test]
fn children_are_looked_for_behind_their_parent_alone() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let rows = (1..=25_000).map(|id| {
        let parent = [14_000, 22_000]
            .into_iter()
            .find(|one| id == one + 7 || id == one + 90);
        child(accept(id), parent.map(RequestId))
    });
    driven.commit(rows.collect());
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    let of = |parent| Filter {
        parent: Some(RequestId(parent)),
        ..Filter::default()
    };
    assert_eq!(listed(&reader, &of(22_000), 9), (vec![22_090, 22_007], 1));
    assert_eq!(listed(&reader, &of(14_000), 9), (vec![14_090, 14_007], 2));
    assert_eq!(listed(&reader, &of(24_999), 9), (vec![], 1));
}

#[test]
fn what_runs_is_found_without_a_walk_over_what_waits() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let waiting = (1..=25_000).map(|id| given(id, "work", "ann", Lane::Long, 1_760_000_000_000));
    driven.commit(waiting.collect());
    driven.commit(vec![claim(2, 1), claim(12_500, 1), claim(3, 1)]);
    driven.commit(vec![end(3)]);
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    let running = |submitter: &str| Filter {
        statuses: vec![Status::Running],
        submitter: Some(submitter.into()),
        ..Filter::default()
    };
    // Each page looks at 10,000 rows at most.
    assert_eq!(listed(&reader, &running("ann"), 100), (vec![12_500, 2], 1));
    assert_eq!(listed(&reader, &running("bob"), 100), (vec![], 1));
    let either = Filter {
        statuses: vec![Status::Running, Status::Failed],
        ..Filter::default()
    };
    assert_eq!(listed(&reader, &either, 1), (vec![12_500, 2], 2));
}

#[test]
fn times_are_found_without_a_walk_over_what_came_before_and_after() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let first = EPOCH_MS + 1_000 * DAY_MS;
    // An hour apart: 1,250 days. The clock of every 100th was three hours behind.
    let at = |number: u64| first + number * DAY_MS / 24;
    let id = |number: u64| (at(number) - EPOCH_MS) << SEQUENCE_BITS;
    let rows = (0..30_000).map(|number| {
        let behind = if number % 100 == 0 { DAY_MS / 8 } else { 0 };
        given(id(number), "a", "b", Lane::Long, at(number) - behind)
    });
    driven.commit(rows.collect());
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    for (since, until) in [(100, 110), (15_001, 15_100), (29_990, 30_000)] {
        let filter = Filter {
            since: Some(at(since)),
            until: Some(at(until)),
            ..Filter::default()
        };
        let wanted = (0..30_000).filter(|number| {
            let behind = if number % 100 == 0 { 3 } else { 0 };
            (since..until).contains(&(number - behind.min(*number)))
        });
        let mut wanted: Vec<_> = wanted.map(id).collect();
        wanted.reverse();
        assert_eq!(listed(&reader, &filter, 1_000), (wanted, 1), "{since}");
    }
}

#[test]
fn a_page_of_what_is_unfinished_or_failed_passes_over_a_hundred_thousand_that_succeeded() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let count = 30_000;
    driven.commit((1..=count).map(accept).collect());
    let ends = (1..=count).filter_map(|id| match id {
        7 | 20_000 => None,
        9 | 25_000 => Some(failed(id, Status::Failed)),
        11 => Some(failed(id, Status::Dead)),
        _ => Some(end(id)),
    });
    driven.commit(ends.collect());
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    let of = |statuses: &[Status]| Filter {
        statuses: statuses.to_vec(),
        ..Filter::default()
    };
    let unsuccessful = [Status::Failed, Status::Dead, Status::Queued];
    let found = listed(&reader, &of(&unsuccessful), 100);
    assert_eq!(found, (vec![25_000, 20_000, 11, 9, 7], 1));
    assert_eq!(listed(&reader, &of(&[Status::Dead]), 100), (vec![11], 1));
    assert_eq!(listed(&reader, &of(&[Status::Running]), 100), (vec![], 1));
    let (ids, pages) = listed(&reader, &of(&unsuccessful), 2);
    assert_eq!((ids.len(), pages), (5, 3));
}

#[test]
fn runs_are_the_newest_of_many_oldest_first() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(1)]);
    for attempt in 1..=5 {
        let park = Op::Park {
            id: RequestId(1),
            attempt,
            wake_at: 5,
            failure: Failure::OutcomeUnknown,
            deaths: 0,
        };
        driven.commit(vec![claim(1, attempt), park]);
    }
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    let runs = reader.runs(RequestId(1), 3).expect("read");
    let attempts: Vec<_> = runs.iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [3, 4, 5]);
}

/// A request of the model: what a filter asks for, and its status.
type Given = (u8, u8, u8, u8);

fn word(number: u8) -> String {
    format!("w{number}")
}

/// Each sixth request has no parent, the others have one of the first five.
fn parent_of(id: u64) -> Option<RequestId> {
    let parent = id % 6;
    (0 < parent && parent < id).then_some(RequestId(parent))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pages_are_what_a_look_at_every_row_gives(
        rows in prop::collection::vec((0..3_u8, 0..2_u8, 0..3_u8, 0..6_u8), 1..40),
        statuses in prop::collection::vec(0..6_u8, 0..4),
        name in prop::option::of(0..3_u8),
        submitter in prop::option::of(0..2_u8),
        lane in prop::option::of(0..3_u8),
        times in (prop::option::of(0..45_u64), prop::option::of(0..45_u64)),
        parent in prop::option::of(1..6_u64),
        most in 1..7_usize,
    ) {
        let directory = Directory::new();
        let (mut driven, _) = Driven::open(directory.path());
        let lanes = [Lane::Short, Lane::Long, Lane::Async];
        let all = [Status::Queued, Status::Running, Status::Succeeded, Status::Failed, Status::Cancelled, Status::Dead];
        let numbered = || rows.iter().enumerate().map(|(at, row)| (at as u64 + 1, *row));
        let mut ops = Vec::new();
        for (id, (name, submitter, lane, status)) in numbered() {
            let row = given(id, &word(name), &word(submitter), lanes[usize::from(lane)], id);
            ops.push(child(row, parent_of(id)));
            match all[usize::from(status)] {
                Status::Queued => {}
                Status::Running => ops.push(claim(id, 1)),
                Status::Succeeded => ops.push(end(id)),
                other => ops.push(failed(id, other)),
            }
        }
        driven.commit(ops);
        let filter = Filter {
            statuses: statuses.iter().map(|one| all[usize::from(*one)]).collect(),
            name: name.map(word),
            submitter: submitter.map(word),
            lane: lane.map(|lane| lanes[usize::from(lane)]),
            since: times.0,
            until: times.1,
            parent: parent.map(RequestId),
        };
        let fits = |(id, (of, by, place, status)): &(u64, Given)| {
            (statuses.is_empty() || statuses.contains(status))
                && name.is_none_or(|name| name == *of)
                && submitter.is_none_or(|submitter| submitter == *by)
                && lane.is_none_or(|lane| lane == *place)
                && times.0.is_none_or(|since| *id >= since)
                && times.1.is_none_or(|until| *id < until)
                && parent.is_none_or(|parent| parent_of(*id) == Some(RequestId(parent)))
        };
        let mut wanted: Vec<_> = numbered().filter(fits).map(|(id, _)| id).collect();
        wanted.reverse();
        let reader = DatabaseReader::open(directory.path()).expect("opens");
        prop_assert_eq!(listed(&reader, &filter, most).0, wanted);
    }
}
