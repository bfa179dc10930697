//! What is given up: by rule, by age, by size.

use std::sync::Arc;

use forebay_executor::id::{EPOCH_MS, RequestId, SEQUENCE_BITS};
use forebay_executor::op::Op;
use forebay_executor::request::{Ending, Failure, Options, Outcome, Request, Status};
use forebay_executor::store::{
    Answer, Fetched, PruneRule, Pruned, Question, RetentionAges, StoreConfig,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::given::{self, Directory, Driven, accept, blob, claim, end, end_with, request};

fn ids(directory: &Directory) -> Vec<i64> {
    given::numbers(directory, "SELECT id FROM requests ORDER BY id")
}

fn pruned(driven: &mut Driven, rule: PruneRule) -> Pruned {
    driven.store.prune(rule, 5);
    loop {
        match driven.answer() {
            Answer::Pruned { ticket: 5, done } => return done.expect("pruned"),
            Answer::Forgotten(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn failed(id: u64) -> Op {
    end_with(id, Status::Failed, Outcome::Failed(Failure::OutcomeUnknown))
}

#[test]
fn a_rule_takes_what_it_names_and_nothing_that_is_unfinished() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit((1..=6).map(accept).collect());
    driven.commit(vec![end(1), failed(2), end(3), failed(4), claim(5, 1)]);

    let rule = PruneRule {
        statuses: vec![Status::Failed],
        dry_run: true,
        ..PruneRule::default()
    };
    assert_eq!(pruned(&mut driven, rule.clone()).count, 2);
    assert_eq!(ids(&directory).len(), 6, "it was a dry run");
    let wet = PruneRule {
        dry_run: false,
        ..rule
    };
    assert_eq!(pruned(&mut driven, wet).count, 2);
    assert_eq!(ids(&directory), [1, 3, 5, 6]);
    let named = PruneRule {
        ids: Some([3, 5, 77].map(RequestId).to_vec()),
        ..PruneRule::default()
    };
    assert_eq!(pruned(&mut driven, named).count, 1);
    assert_eq!(ids(&directory), [1, 5, 6]);
    assert_eq!(pruned(&mut driven, PruneRule::default()).count, 1);
    assert_eq!(ids(&directory), [5, 6]);
}

/// A row that is read is one that can be retried.
#[test]
fn a_request_that_the_writer_is_to_remove_is_not_read_to_be_retried() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::with(StoreConfig {
        locked_ms_max: 600_000,
        ..given::config(directory.path())
    });
    driven.commit(vec![accept(1), accept(2)]);
    driven.commit(vec![failed(1), failed(2)]);
    let row = |driven: &mut Driven, id| {
        driven.store.fetch(RequestId(id), Question::Row, id);
        match driven.answer() {
            Answer::Fetched { found, .. } => matches!(found, Fetched::Row(_)),
            other => panic!("{other:?}"),
        }
    };
    let path = directory.path().join("requests.db");
    let writer = rusqlite::Connection::open(path).expect("opens");
    writer.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let rule = PruneRule {
        ids: Some(vec![RequestId(1)]),
        ..PruneRule::default()
    };
    driven.store.prune(rule, 5);
    assert!(
        !row(&mut driven, 1),
        "the writer waits, and then removes it"
    );
    assert!(row(&mut driven, 2));
    writer.execute_batch("COMMIT").expect("let go");
    match driven.answer() {
        Answer::Pruned { done, .. } => assert_eq!(done.expect("pruned").count, 1),
        other => panic!("{other:?}"),
    }
    assert!(!row(&mut driven, 1) && row(&mut driven, 2));
}

#[test]
fn many_go_in_steps_and_leave_neither_arguments_nor_files() {
    let directory = Directory::new();
    let config = StoreConfig {
        result_bytes_max: 10,
        ..given::config(directory.path())
    };
    let (mut driven, _) = Driven::with(config);
    driven.commit((1..=1_000).map(accept).collect());
    let large = Outcome::Succeeded(blob([1; 100]));
    driven.commit(
        (1..=999)
            .map(end)
            .chain([end_with(1_000, Status::Succeeded, large)])
            .collect(),
    );
    let log = directory
        .path()
        .join("logs")
        .join(format!("{}.log", RequestId(5)));
    std::fs::write(&log, "five").expect("written");
    let done = pruned(&mut driven, PruneRule::default());
    assert_eq!(done.count, 1_000);
    assert!(done.bytes > 100_000, "{done:?}");
    for table in ["requests", "arguments"] {
        let count = given::numbers(&directory, &format!("SELECT count(*) FROM {table}"));
        assert_eq!(count, [0], "{table}");
    }
    assert!(!log.exists());
    let results = std::fs::read_dir(directory.path().join("results")).expect("listed");
    assert_eq!(results.count(), 0);
    driven.store.close();
    let (_driven, recovery) = Driven::open(directory.path());
    assert_eq!(recovery.last, RequestId(1_000), "an id is not given twice");
}

#[test]
fn the_disk_has_back_what_a_prune_freed_in_the_database() {
    const COUNT: u64 = 100;
    const BYTES: usize = 200_000;
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let large = |id| Op::Accept(request(id, vec![7; BYTES], Options::default()));
    driven.commit((1..=COUNT).map(large).collect());
    driven.commit((1..=COUNT).map(end).collect());
    assert_eq!(pruned(&mut driven, PruneRule::default()).count, COUNT);
    // Written back from the log, a step at a time, while nobody writes.
    let database = directory.path().join("requests.db");
    let changes = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("inotify");
    inotify::add_watch(&changes, &database, WatchFlags::MODIFY).expect("watched");
    let taken = || std::fs::metadata(&database).map(|file| file.len());
    let kept = COUNT * BYTES as u64 / 2;
    let mut largest = 0;
    loop {
        let bytes = taken().expect("is there");
        largest = largest.max(bytes);
        if largest > kept && bytes < kept {
            break;
        }
        let timeout = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        let mut watched = [PollFd::new(&changes, PollFlags::IN)];
        let ready = poll(&mut watched, Some(&timeout)).expect("poll");
        assert_eq!(ready, 1, "{bytes} bytes, at most {largest}");
        while rustix::io::read(&changes, &mut [0; 4_096]).is_ok() {}
    }
}

#[test]
fn whoever_read_a_row_may_still_retry_it() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(1), accept(2), failed(1), failed(2)]);
    driven.store.fetch(RequestId(1), Question::Row, 1);
    assert!(matches!(driven.answer(), Answer::Fetched { .. }));
    assert_eq!(pruned(&mut driven, PruneRule::default()).count, 1);
    assert_eq!(ids(&directory), [1]);
}

#[test]
fn a_key_is_free_when_its_request_is_gone() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let options = Options {
        idempotency: Some("once".into()),
        ..Options::default()
    };
    let keyed = Op::Accept(request(1, *b"\x80", options));
    driven.commit(vec![keyed, accept(2), end(1), end(2)]);
    driven.store.prune(PruneRule::default(), 5);
    let Answer::Forgotten(forgotten) = driven.answer() else {
        panic!("nothing forgotten");
    };
    assert_eq!(forgotten, [RequestId(1)]);
}

/// Wait until the store has given up all that it will: the answer to a question comes behind the retention's steps.
fn settled(driven: &mut Driven, directory: &Directory, left: usize) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while ids(directory).len() > left {
        assert!(
            std::time::Instant::now() < deadline,
            "{} are left",
            ids(directory).len()
        );
        driven.store.fetch(RequestId(0), Question::Ending, 9);
        assert!(matches!(driven.answer(), Answer::Fetched { .. }));
    }
}

#[test]
fn the_old_go_by_themselves() {
    let directory = Directory::new();
    let config = StoreConfig {
        retention_every_ms: 20,
        retention_age_ms: 86_400_000,
        ..given::config(directory.path())
    };
    let (mut driven, _) = Driven::with(config);
    // As the fixtures have it, 1 and 2 were accepted and ended in 2025; 3 has not ended.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("after 1970");
    let now = u64::try_from(now.as_millis()).expect("a time");
    let young = (now - EPOCH_MS) << SEQUENCE_BITS;
    driven.commit(vec![accept(1), accept(2), accept(3), accept(young)]);
    driven.commit(vec![end(1), end(2)]);
    let Op::End {
        id,
        ending,
        deaths,
        claimed,
    } = end(young)
    else {
        unreachable!("an end")
    };
    let mut ending = (*ending).clone();
    ending.at = now;
    driven.commit(vec![Op::End {
        id,
        ending: std::sync::Arc::new(ending),
        deaths,
        claimed,
    }]);
    settled(&mut driven, &directory, 2);
    assert_eq!(ids(&directory), [3, young.cast_signed()]);
}

#[test]
fn the_oldest_go_when_there_is_too_much() {
    let directory = Directory::new();
    let config = StoreConfig {
        retention_every_ms: 20,
        retention_bytes: 2 << 20,
        ..given::config(directory.path())
    };
    let (mut driven, _) = Driven::with(config);
    for first in (1..=400).step_by(100) {
        let body = |id| Op::Accept(request(id, [9; 10_000], Options::default()));
        driven.commit((first..first + 100).map(body).collect());
        driven.commit((first..first + 100).map(end).collect());
    }
    settled(&mut driven, &directory, 210);
    let left = ids(&directory);
    assert!(left.len() > 100, "{} are left", left.len());
    assert_eq!(left.last(), Some(&400), "the newest stay");
}

/// A request of this name and its end, so many milliseconds ago.
fn ended(id: u64, name: &str, ago_ms: u64) -> [Op; 2] {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = u64::try_from(now.expect("after 1970").as_millis()).expect("a time");
    let at = now - ago_ms;
    let id = ((at - EPOCH_MS) << SEQUENCE_BITS) + id;
    let mut given = Request::clone(&request(id, *b"\x80", Options::default()));
    (given.submission.name, given.accepted_at) = (name.into(), at);
    let Op::End {
        ending,
        deaths,
        claimed,
        ..
    } = end(id)
    else {
        unreachable!("an end")
    };
    let ending = Arc::new(Ending {
        at,
        ..Ending::clone(&ending)
    });
    let end = Op::End {
        id: RequestId(id),
        ending,
        deaths,
        claimed,
    };
    [Op::Accept(Arc::new(given)), end]
}

fn names(directory: &Directory) -> Vec<String> {
    let database = rusqlite::Connection::open(directory.path().join("requests.db"));
    let database = database.expect("opens");
    let mut names = database
        .prepare("SELECT name || ' ' || count(*) FROM requests GROUP BY name ORDER BY name")
        .expect("a statement");
    let names = names.query_map([], |row| row.get(0)).expect("rows");
    names.map(|name| name.expect("a name")).collect()
}

const HOUR_MS: u64 = 3_600_000;

#[test]
fn names_have_ages_of_their_own() {
    let directory = Directory::new();
    let config = StoreConfig {
        retention_every_ms: 20,
        retention_age_ms: 24 * HOUR_MS,
        awaits_ages: true,
        ..given::config(directory.path())
    };
    let (mut driven, _) = Driven::with(config);
    let (mut accepts, mut ends) = (Vec::new(), Vec::new());
    // More of each than one step removes; a day and an hour, half a day, and half an hour old.
    for number in 0..600 {
        for (name, at) in [("brief", 0), ("kept", 1), ("other", 2), ("unnamed", 3)] {
            for (age, ago) in [25 * HOUR_MS, 12 * HOUR_MS, HOUR_MS / 2]
                .into_iter()
                .enumerate()
            {
                let number = number * 12 + age as u64 * 4 + at;
                let [accept, end] = ended(number, name, ago);
                accepts.push(accept);
                ends.push(end);
            }
        }
    }
    driven.commit(accepts);
    driven.commit(ends);
    // Whatever the default says, until it is known who has an age of its own.
    // The reading thread looks at the retention between two questions.
    let until = std::time::Instant::now() + std::time::Duration::from_millis(200);
    while std::time::Instant::now() < until {
        driven.store.fetch(RequestId(0), Question::Ending, 9);
        assert!(matches!(driven.answer(), Answer::Fetched { .. }));
    }
    assert_eq!(ids(&directory).len(), 7_200);
    let ages = [("brief", HOUR_MS), ("kept", 48 * HOUR_MS), ("other", 0)];
    let ages = ages.map(|(name, age)| (name.into(), age));
    driven.store.retain(ages.into_iter().collect());
    settled(&mut driven, &directory, 600 + 1_800 + 1_200);
    assert_eq!(
        names(&directory),
        ["brief 600", "kept 1800", "unnamed 1200"]
    );
    // Without ages of their own all are kept as the settings say.
    driven.store.retain(RetentionAges::default());
    settled(&mut driven, &directory, 600 + 1_200 + 1_200);
    assert_eq!(
        names(&directory),
        ["brief 600", "kept 1200", "unnamed 1200"]
    );
}
