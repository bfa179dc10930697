//! What becomes of stored times when the wall's clock is set.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use forebay_executor::clock::Clock;
use forebay_executor::id::{EPOCH_MS, RequestId, SEQUENCE_BITS};
use forebay_executor::op::Op;
use forebay_executor::request::{Failure, Options, Request};
use forebay_executor::store::{Answer, Fetched, PruneRule, Question, StoreConfig};
use rusqlite::Connection;

use crate::given::{self, Directory, Driven, end, request};

const DAY_MS: u64 = 86_400_000;
const NOW: u64 = 1_795_219_200_000;

fn config(directory: &Directory, clock: Clock) -> StoreConfig {
    StoreConfig {
        clock,
        retention_every_ms: 1,
        retention_age_ms: 7 * DAY_MS,
        ..given::config(directory.path())
    }
}

fn id_of(at: u64) -> u64 {
    (at - EPOCH_MS) << SEQUENCE_BITS
}

/// A clock that was set back by ten years.
fn set_back() -> u64 {
    NOW - 3_650 * DAY_MS
}

#[test]
fn no_two_servers_begin_their_events_at_one_number_whatever_the_clock_says() {
    let directory = Directory::new();
    let mut begun = Vec::new();
    for clock in [
        Clock::beside(|| NOW),
        Clock::beside(set_back),
        Clock::beside(set_back),
    ] {
        let (mut driven, recovery) = Driven::with(config(&directory, clock));
        begun.push(recovery.feed_begins);
        if begun.len() == 1 {
            driven.commit(vec![accepted(NOW, Options::default())]);
        }
    }
    assert!(begun[0] >= NOW);
    for pair in begun.windows(2) {
        assert!(pair[1] - pair[0] >= 1 << 16, "{begun:?}");
    }
}

fn accepted(at: u64, options: Options) -> Op {
    let given = request(id_of(at), *b"\x80", options);
    Op::Accept(Arc::new(Request {
        accepted_at: at,
        ..Request::clone(&given)
    }))
}

fn ended(id: u64, at: u64) -> Op {
    let Op::End {
        id,
        ending,
        deaths,
        claimed,
    } = end(id)
    else {
        unreachable!("an end")
    };
    let mut ending = (*ending).clone();
    ending.at = at;
    Op::End {
        id,
        ending: Arc::new(ending),
        deaths,
        claimed,
    }
}

/// Milliseconds since the first call: a wall's clock goes on between two servers.
fn passed() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(FIRST.elapsed().as_millis()).expect("a short test")
}

/// When requests ended, as it is stored.
fn ends(directory: &Directory) -> Vec<u64> {
    let ends = given::numbers(directory, "SELECT ended_at FROM requests ORDER BY id");
    ends.into_iter().map(i64::cast_unsigned).collect()
}

fn is_there(driven: &mut Driven, id: u64) -> bool {
    driven.store.fetch(RequestId(id), Question::Ending, 7);
    match driven.answer() {
        Answer::Fetched { found, .. } => matches!(found, Fetched::Ending(_)),
        other => panic!("{other:?}"),
    }
}

/// Whether it stays over a hundred looks for what is too old.
fn stays(driven: &mut Driven, id: u64) -> bool {
    let end = Instant::now() + Duration::from_millis(100);
    while Instant::now() < end {
        if !is_there(driven, id) {
            return false;
        }
    }
    true
}

#[test]
fn what_ends_after_a_step_of_the_clock_is_as_old_as_it_is() {
    static WALL: AtomicU64 = AtomicU64::new(NOW);
    let directory = Directory::new();
    let clock = Clock::beside(|| WALL.load(Ordering::Relaxed));
    let (mut driven, _) = Driven::with(config(&directory, clock));
    for wall in [NOW + 8 * DAY_MS, NOW - 8 * DAY_MS] {
        WALL.store(wall, Ordering::Relaxed);
        let at = clock.now();
        driven.commit(vec![accepted(at, Options::default()), ended(id_of(at), at)]);
        assert!(stays(&mut driven, id_of(at)), "{wall}");
    }
}

#[test]
fn times_of_a_clock_that_was_wrong_are_put_right_by_the_next_server_once() {
    for wrong in [NOW + DAY_MS, NOW - 8 * DAY_MS] {
        static WALL: AtomicU64 = AtomicU64::new(0);
        let directory = Directory::new();
        WALL.store(wrong, Ordering::Relaxed);
        let clock = Clock::beside(|| WALL.load(Ordering::Relaxed) + passed());
        let (mut driven, _) = Driven::with(config(&directory, clock));
        let (at, began) = (clock.now(), passed());
        let delayed = Options {
            not_before: Some(at + 4_000),
            ..Options::default()
        };
        let done = id_of(at);
        driven.commit(vec![
            accepted(at, Options::default()),
            ended(done, at),
            accepted(at + 1, delayed),
        ]);
        driven.store.close();
        WALL.store(NOW, Ordering::Relaxed);
        for _ in 0..3 {
            let clock = Clock::beside(|| WALL.load(Ordering::Relaxed) + passed());
            let (mut driven, recovery) = Driven::with(config(&directory, clock));
            let due = recovery.restored[0].wake_at.expect("it waits");
            assert!(due.abs_diff(NOW + began + 4_000) < 2_000, "{wrong} {due}");
            assert!(stays(&mut driven, done), "{wrong}");
        }
    }
}

#[test]
fn what_ended_under_any_server_of_a_boot_is_as_old_as_it_is_by_the_clock_of_the_next() {
    static SET: AtomicU64 = AtomicU64::new(0);
    let directory = Directory::new();
    let behind = NOW - 8 * DAY_MS;
    let sets = [behind, behind, NOW, NOW, NOW + 8 * DAY_MS, behind, NOW];
    for (number, set) in (0..).zip(sets) {
        SET.store(set, Ordering::Relaxed);
        let clock = Clock::beside(|| SET.load(Ordering::Relaxed) + passed());
        let (mut driven, _) = Driven::with(config(&directory, clock));
        let first = id_of(behind);
        assert!(number == 0 || stays(&mut driven, first), "{number}");
        let (id, at) = (first + number, clock.now());
        let given = request(id, *b"\x80", Options::default());
        driven.commit(vec![Op::Accept(given), ended(id, at)]);
        driven.store.close();
        let ends = ends(&directory);
        assert_eq!(ends.len() as u64, number + 1, "nothing was given up");
        for end in ends {
            assert!(end.abs_diff(set) < 600_000, "{number} {end}");
        }
    }
}

/// Have what is stored be of another boot of the machine.
fn reboot(directory: &Directory) {
    let database = Connection::open(directory.path().join("requests.db")).expect("opens");
    let changed = database.execute(
        "UPDATE facts SET value = 'before' || substr(value, instr(value, '/')) WHERE name = 'clock'",
        [],
    );
    assert_eq!(changed.expect("written"), 1);
    let changed = database.execute("UPDATE facts SET value = 'before' WHERE name = 'boot'", []);
    assert_eq!(changed.expect("written"), 1);
}

fn delayed(id: u64, until: u64) -> Op {
    let options = Options {
        not_before: Some(until),
        ..Options::default()
    };
    Op::Accept(request(id, *b"\x80", options))
}

#[test]
fn a_delay_of_an_earlier_boot_is_left_as_it_is_and_those_of_a_wrong_clock_are_put_right() {
    static SET: AtomicU64 = AtomicU64::new(0);
    const HOUR_MS: u64 = 3_600_000;
    let directory = Directory::new();
    let open = |set| {
        SET.store(set, Ordering::Relaxed);
        let clock = Clock::beside(|| SET.load(Ordering::Relaxed) + passed());
        let (driven, recovery) = Driven::with(config(&directory, clock));
        let restored = recovery.restored.into_iter();
        let waits = restored.map(|one| {
            let until = one.wake_at.expect("it waits");
            (one.request.id.0, until, one.rebooted)
        });
        (driven, clock, waits.collect::<Vec<_>>())
    };
    let (mut driven, clock, _) = open(NOW);
    let due = clock.now() + HOUR_MS;
    driven.commit(vec![delayed(1, due), delayed(2, due)]);
    driven.store.close();
    reboot(&directory);
    for wrong in [NOW - 8 * DAY_MS, NOW + 8 * DAY_MS] {
        // Its clock is wrong, and the second waits again by it.
        let (mut driven, clock, waits) = open(wrong);
        assert_eq!(waits[0], (1, due, true));
        let again = clock.now() + HOUR_MS;
        let park = Op::Park {
            id: RequestId(2),
            attempt: 1,
            wake_at: again,
            failure: Failure::OutcomeUnknown,
            deaths: 0,
        };
        driven.commit(vec![given::claim(2, 1), park, delayed(wrong, again)]);
        driven.store.close();
        // So is that of the next one: the wall's clock decides for the first, and no other.
        let (mut driven, _, waits) = open(wrong);
        assert_eq!(waits[0], (1, due, true));
        assert_eq!(waits[1], (2, again, false));
        driven.commit(vec![given::accept(wrong + 1), end(wrong + 1)]);
        driven.store.close();
        for _ in 0..2 {
            let (_, clock, waits) = open(NOW);
            assert_eq!(waits[0], (1, due, true), "{wrong}");
            let expected = clock.now() + HOUR_MS;
            for (id, until, rebooted) in &waits[1..] {
                assert!(
                    until.abs_diff(expected) < 600_000 && !rebooted,
                    "{wrong} {id}"
                );
            }
        }
    }
}

#[test]
fn what_a_clock_that_was_ahead_named_still_goes_for_its_age() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::with(config(&directory, Clock::beside(|| NOW)));
    let later = NOW + 400 * DAY_MS;
    let old = NOW - 2 * DAY_MS;
    driven.commit(vec![
        accepted(later, Options::default()),
        ended(id_of(later), old),
    ]);
    let rule = PruneRule {
        ended_before: Some(NOW - DAY_MS),
        ..PruneRule::default()
    };
    driven.store.prune(rule, 5);
    match driven.answer() {
        Answer::Pruned { done, .. } => assert_eq!(done.expect("pruned").count, 1),
        other => panic!("{other:?}"),
    }
}
