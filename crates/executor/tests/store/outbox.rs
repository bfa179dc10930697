//! Calls of hooks are on disk with the ends that they are about, and leave it when they were answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_executor::id::RequestId;
use forebay_executor::limit::OUTBOX_REPORTS_MAX;
use forebay_executor::op::Op;
use forebay_executor::request::{Failure, Options, Outcome, Status};
use forebay_executor::store::{
    Answer, DatabaseReader, Delivery, HookOutbox, HookRule, OutboxReport, Question, StoreConfig,
};

use crate::given::{Directory, Driven, accept, claim, config, end, end_of, end_with, request};

fn rule(hook: &str, (dead, failed): (bool, bool), names: &[&str]) -> HookRule {
    HookRule {
        hook: hook.into(),
        dead,
        failed,
        names: names.iter().map(|&name| name.into()).collect(),
    }
}

/// A store with hooks, and their outbox.
struct Hooked {
    driven: Driven,
    outbox: Arc<HookOutbox>,
    reader: DatabaseReader,
}

impl Hooked {
    fn open(directory: &Directory, rules: Vec<HookRule>) -> Self {
        Self::on(
            directory,
            Arc::new(HookOutbox::new(rules).expect("an outbox")),
        )
    }

    fn on(directory: &Directory, outbox: Arc<HookOutbox>) -> Self {
        let config = StoreConfig {
            outbox: Some(Arc::clone(&outbox)),
            ..config(directory.path())
        };
        let (driven, _) = Driven::with(config);
        let reader = DatabaseReader::open(directory.path()).expect("opens");
        Self {
            driven,
            outbox,
            reader,
        }
    }

    fn waiting(&self, hook: &str) -> Vec<Delivery> {
        self.reader.deliveries(hook, 100_000).expect("read")
    }

    fn ids(&self, hook: &str) -> Vec<Option<RequestId>> {
        let waiting = self.waiting(hook);
        waiting.into_iter().map(|one| one.request).collect()
    }

    /// Report, and wait until it is written.
    fn report(&self, report: OutboxReport) {
        assert!(self.outbox.report(report), "it has room");
        let deadline = Some(Instant::now() + Duration::from_secs(30));
        while self.outbox.reports() > 0 {
            assert!(self.outbox.wait(deadline).expect("no signal"));
            self.outbox.clear();
        }
    }
}

fn dead(id: u64) -> Op {
    let failure = Failure::Refused("no".into());
    end_with(id, Status::Dead, Outcome::Failed(failure))
}

fn failed(id: u64, attempt: u32) -> Op {
    let failure = Failure::Refused("no".into());
    end_of((id, attempt), Status::Failed, Outcome::Failed(failure))
}

#[test]
fn an_end_calls_the_hooks_that_want_it_and_no_others() {
    let directory = Directory::new();
    let mut hooked = Hooked::open(
        &directory,
        vec![
            rule("all", (true, true), &[]),
            rule("dead", (true, false), &[]),
            rule("other", (true, true), &["other"]),
            rule("digits", (false, true), &["other", "digits"]),
        ],
    );
    let ids = 1..=4;
    hooked.driven.commit(ids.clone().map(accept).collect());
    let cancelled = end_with(4, Status::Cancelled, Outcome::Cancelled);
    hooked
        .driven
        .commit(vec![dead(1), failed(2, 1), end(3), cancelled]);
    let id = |number| Some(RequestId(number));
    assert_eq!(hooked.ids("all"), [id(1), id(2)]);
    assert_eq!(hooked.ids("dead"), [id(1)]);
    assert_eq!(hooked.ids("other"), []);
    assert_eq!(hooked.ids("digits"), [id(2)]);
    let waiting = hooked.waiting("all");
    let told = &waiting[0];
    assert_eq!((told.event.as_str(), told.tries), ("dead", 0));
    assert_eq!(
        (told.name.as_deref(), told.attempt),
        (Some("digits"), Some(1))
    );
    assert_eq!(told.detail, r#"{"cause":"refused","message":"no"}"#);
    assert_eq!(waiting[1].event, "failed");
    assert_ne!(told.token, waiting[1].token);
}

#[test]
fn a_late_end_calls_nobody_and_a_death_after_a_retry_calls_again() {
    let directory = Directory::new();
    let mut hooked = Hooked::open(&directory, vec![rule("all", (true, true), &[])]);
    hooked.driven.commit(vec![accept(1), claim(1, 1)]);
    hooked.driven.commit(vec![dead(1)]);
    hooked.driven.commit(vec![dead(1)]);
    assert_eq!(hooked.ids("all").len(), 1, "the second end is late");
    let retry = Op::Retry {
        id: RequestId(1),
        at: 1,
    };
    hooked.driven.commit(vec![retry, claim(1, 2)]);
    hooked.driven.commit(vec![failed(1, 2)]);
    let attempts: Vec<_> = hooked
        .waiting("all")
        .iter()
        .map(|one| one.attempt)
        .collect();
    assert_eq!(attempts, [Some(1), Some(2)]);
}

#[test]
fn a_request_with_secret_arguments_is_told_without_messages() {
    let directory = Directory::new();
    let mut hooked = Hooked::open(&directory, vec![rule("all", (true, true), &[])]);
    let sealed = Options {
        sealed: true,
        ..Options::default()
    };
    let accepted = Op::Accept(request(1, *b"\x80", sealed));
    hooked.driven.commit(vec![accepted, dead(1)]);
    let waiting = hooked.waiting("all");
    assert_eq!(waiting[0].detail, r#"{"cause":"refused","message":""}"#);
}

#[test]
fn what_is_reported_is_there_after_a_restart() {
    let directory = Directory::new();
    let rules = vec![rule("all", (true, true), &[])];
    let mut hooked = Hooked::open(&directory, rules.clone());
    hooked.driven.commit((1..=4).map(accept).collect());
    hooked.driven.commit((1..=4).map(dead).collect());
    let rows = hooked.waiting("all");
    let row = |index: usize| (rows[index].number, rows[index].token.clone());
    let (number, token) = row(0);
    hooked.report(OutboxReport::Answered { number, token });
    for (index, due_at) in [(1, Some(7)), (2, None)] {
        let (number, token) = row(index);
        hooked.report(OutboxReport::Tried {
            number,
            token,
            tries: 3,
            due_at,
            error: format!("error {index}"),
        });
    }
    hooked.report(OutboxReport::Added {
        hook: "all".into(),
        event: "queue".into(),
        at: 9,
        detail: "{}".into(),
    });
    hooked.driven.store.close();
    let hooked = Hooked::open(&directory, rules);
    let waiting = hooked.waiting("all");
    let told: Vec<_> = waiting
        .iter()
        .map(|one| (one.event.as_str(), one.tries, one.due_at))
        .collect();
    assert_eq!(told, [("dead", 0, 0), ("queue", 0, 0), ("dead", 3, 7)]);
    assert_eq!(waiting[2].token, rows[1].token, "one id for all tries");
    let waiting = |hooks: &[&str]| hooked.reader.waiting(hooks).expect("read");
    assert_eq!((waiting(&["all", "other"]), waiting(&["other"])), (3, 0));
    let counts = hooked.reader.outbox().expect("read");
    assert_eq!((counts[0].waiting, counts[0].given_up), (3, 1));
    assert_eq!(counts[0].error.as_deref(), Some("error 2"));
}

/// Add calls of two hooks: each has one from long ago that waits and one that was given up, and one of now.
fn add_calls(directory: &Directory) {
    let hooks = ["kept", "gone"];
    let rules = hooks.map(|hook| rule(hook, (true, true), &[]));
    let hooked = Hooked::open(directory, rules.to_vec());
    for hook in hooks {
        for at in [1, 2, hooked.driven.store.config().clock.now()] {
            hooked.report(OutboxReport::Added {
                hook: hook.into(),
                event: "disk".into(),
                at,
                detail: "{}".into(),
            });
        }
        let second = hooked.waiting(hook).remove(1);
        hooked.report(OutboxReport::Tried {
            number: second.number,
            token: second.token,
            tries: 5,
            due_at: None,
            error: "away".into(),
        });
    }
}

/// Open a store with these hooks, and close it after the retention has looked; what is left of each hook.
fn left_after_retention(directory: &Directory, rules: Option<Vec<HookRule>>) -> Vec<(String, u64)> {
    let outbox = rules.map(|rules| Arc::new(HookOutbox::new(rules).expect("an outbox")));
    let config = StoreConfig {
        retention_age_ms: 3_600_000,
        outbox,
        ..config(directory.path())
    };
    let (mut driven, _) = Driven::with(config);
    // It looks after it has answered the first; what it asks the writer for is written before the end.
    for ticket in 0..2 {
        driven.store.fetch(RequestId(1), Question::Row, ticket);
        assert!(matches!(driven.answer(), Answer::Fetched { .. }));
    }
    driven.store.close();
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    let counts = reader.outbox().expect("read");
    let counts = counts.into_iter();
    counts
        .map(|one| (one.hook, one.waiting + one.given_up))
        .collect()
}

#[test]
fn what_was_given_up_and_calls_of_a_hook_that_is_gone_expire() {
    let directory = Directory::new();
    add_calls(&directory);
    let rules = vec![rule("kept", (true, true), &[])];
    let left = left_after_retention(&directory, Some(rules));
    assert_eq!(left, [("gone".into(), 1), ("kept".into(), 2)]);
}

#[test]
fn calls_expire_where_no_hook_is_left() {
    let directory = Directory::new();
    add_calls(&directory);
    let left = left_after_retention(&directory, None);
    assert_eq!(left, [("gone".into(), 1), ("kept".into(), 1)]);
}

#[test]
fn a_report_of_a_row_that_is_gone_changes_no_other_row_of_its_number() {
    let directory = Directory::new();
    let mut hooked = Hooked::open(&directory, vec![rule("all", (true, true), &[])]);
    hooked.driven.commit(vec![accept(1), dead(1)]);
    let first = hooked.waiting("all").remove(0);
    let answered = OutboxReport::Answered {
        number: first.number,
        token: first.token,
    };
    hooked.report(answered.clone());
    hooked.driven.commit(vec![accept(2), dead(2)]);
    assert_eq!(hooked.waiting("all")[0].number, first.number, "used again");
    hooked.report(answered);
    assert_eq!(hooked.ids("all"), [Some(RequestId(2))]);
}

#[test]
fn of_too_many_rows_the_oldest_are_dropped_and_counted() {
    const ROWS_MAX: u64 = 10_000;
    let directory = Directory::new();
    let mut hooked = Hooked::open(&directory, vec![rule("all", (true, true), &[])]);
    let ids = 1..=ROWS_MAX + 3;
    let ops = ids.flat_map(|id| [accept(id), dead(id)]);
    hooked.driven.commit(ops.collect());
    let ids = hooked.ids("all");
    assert_eq!(ids.len() as u64, ROWS_MAX);
    assert_eq!(ids[0], Some(RequestId(4)));
    assert_eq!(hooked.outbox.dropped(), 3);
}

#[test]
fn no_more_reports_wait_than_the_limit_and_all_that_were_taken_are_written() {
    let directory = Directory::new();
    let outbox = Arc::new(HookOutbox::new(vec![rule("all", (true, true), &[])]).expect("made"));
    let added = |at| OutboxReport::Added {
        hook: "all".into(),
        event: "disk".into(),
        at,
        detail: "{}".into(),
    };
    // Before its store is open nothing is written, as on a full disk.
    let taken = (0..=OUTBOX_REPORTS_MAX as u64).map(|at| outbox.report(added(at)));
    assert_eq!(taken.filter(|taken| *taken).count(), OUTBOX_REPORTS_MAX);
    assert_eq!((outbox.reports(), outbox.room()), (OUTBOX_REPORTS_MAX, 0));
    let mut hooked = Hooked::on(&directory, outbox);
    hooked.driven.commit(vec![accept(1)]);
    assert_eq!(hooked.outbox.room(), OUTBOX_REPORTS_MAX);
    hooked.report(added(OUTBOX_REPORTS_MAX as u64));
    let ats: Vec<u64> = hooked.waiting("all").iter().map(|one| one.at).collect();
    assert_eq!(ats, (0..=OUTBOX_REPORTS_MAX as u64).collect::<Vec<_>>());
}

#[test]
fn a_store_without_hooks_adds_no_rows_and_keeps_those_that_wait() {
    let directory = Directory::new();
    let mut hooked = Hooked::open(&directory, vec![rule("all", (true, true), &[])]);
    hooked.driven.commit(vec![accept(1), dead(1)]);
    hooked.driven.store.close();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(2), dead(2)]);
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    let waiting = reader.deliveries("all", 9).expect("read");
    assert_eq!(waiting.len(), 1);
}
