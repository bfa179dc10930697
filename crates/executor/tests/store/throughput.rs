//! What a request costs the store, by the number of requests in a commit.
//!
//! One at a time, or they measure each other:
//! `cargo test --release -p forebay-executor --test store -- --ignored --exact throughput::throughput --nocapture`

use std::collections::VecDeque;
use std::time::Instant;

use forebay_executor::op::Op;
use forebay_executor::request::Options;
use forebay_executor::store::{Answer, StoreConfig, Synchronous};
use rustix::time::{ClockId, clock_gettime};

use crate::given::{self, Directory, Driven, claim, end, request};

const BODY_BYTES: usize = 600;

fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    #[allow(clippy::cast_precision_loss)]
    let us = time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3;
    us
}

/// Requests per second and microseconds of CPU per request.
///
/// Each commit accepts and claims one group and ends the one before it, as under a steady load.
fn run(synchronous: Synchronous, group: u64, requests: u64) -> (f64, f64) {
    let directory = Directory::new();
    let config = StoreConfig {
        synchronous,
        ..given::config(directory.path())
    };
    let (mut driven, _) = Driven::with(config);
    let (began, cpu) = (Instant::now(), cpu_us());
    let mut running = 0..0;
    for first in (1..=requests).step_by(usize::try_from(group).expect("small")) {
        let ids = first..(first + group).min(requests + 1);
        let body = |id| request(id, [7; BODY_BYTES], Options::default());
        let accepts = ids.clone().map(|id| Op::Accept(body(id)));
        let claims = ids.clone().map(|id| claim(id, 1));
        driven.commit(accepts.chain(claims).chain(running.map(end)).collect());
        running = ids;
    }
    driven.commit(running.map(end).collect());
    #[allow(clippy::cast_precision_loss)]
    let count = requests as f64;
    let taken = (
        count / began.elapsed().as_secs_f64(),
        (cpu_us() - cpu) / count,
    );
    driven.store.close();
    taken
}

#[test]
#[ignore = "a measurement: run it with --release --nocapture"]
fn throughput() {
    println!("group  NORMAL req/s  CPU us  FULL req/s  CPU us");
    for (group, requests) in [(1, 1_000), (16, 8_000), (64, 20_000), (256, 40_000)] {
        let (normal, normal_cpu) = run(Synchronous::Normal, group, requests);
        let (full, full_cpu) = run(Synchronous::Full, group, requests);
        println!("{group:5}  {normal:12.0}  {normal_cpu:6.1}  {full:10.0}  {full_cpu:6.1}");
    }
}

/// Time to open a store with many unfinished requests; a restart is to go on within a second.
#[test]
#[ignore = "a measurement: run it with --release --nocapture"]
fn recovery() {
    const REQUESTS: u64 = 100_000;
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    for first in (1..=REQUESTS).step_by(1_000) {
        let body = |id| Op::Accept(request(id, [7; BODY_BYTES], Options::default()));
        driven.commit((first..first + 1_000).map(body).collect());
    }
    driven.store.close();
    let began = Instant::now();
    let (_driven, recovery) = Driven::open(directory.path());
    println!(
        "{} requests restored in {:?}",
        recovery.restored.len(),
        began.elapsed()
    );
    assert_eq!(recovery.restored.len() as u64, REQUESTS);
}

/// Requests per second with so many under way, each change given on its own: commits take what has arrived.
fn stream(synchronous: Synchronous, under_way: u64, requests: u64) -> f64 {
    let directory = Directory::new();
    let config = StoreConfig {
        synchronous,
        ..given::config(directory.path())
    };
    let (mut driven, _) = Driven::with(config);
    let began = Instant::now();
    let (mut next, mut left) = (1, requests);
    // What was given and is not answered: a request's beginning, or its end.
    let mut given: VecDeque<(u64, bool)> = VecDeque::new();
    let mut submit = |driven: &Driven, given: &mut VecDeque<(u64, bool)>| {
        if next <= requests {
            let accepted = request(next, [7; BODY_BYTES], Options::default());
            driven
                .store
                .write(vec![Op::Accept(accepted), claim(next, 1)]);
            given.push_back((next, false));
            next += 1;
        }
    };
    (0..under_way).for_each(|_| submit(&driven, &mut given));
    let mut half = 0;
    while left > 0 {
        let Answer::Committed(mut count) = driven.answer() else {
            panic!("not committed");
        };
        count += std::mem::take(&mut half);
        while let Some(&(id, is_end)) = given.front() {
            let ops = if is_end { 1 } else { 2 };
            if count < ops {
                break;
            }
            count -= ops;
            given.pop_front();
            if is_end {
                left -= 1;
                submit(&driven, &mut given);
            } else {
                driven.store.write(vec![end(id)]);
                given.push_back((id, true));
            }
        }
        half = count;
    }
    #[allow(clippy::cast_precision_loss)]
    let rate = requests as f64 / began.elapsed().as_secs_f64();
    driven.store.close();
    rate
}

/// What `executor.durable.full_vs_normal` has beneath it.
#[test]
#[ignore = "a measurement: run it with --release --nocapture"]
fn streaming() {
    println!("under way  NORMAL req/s  FULL req/s");
    for (under_way, requests) in [(1, 500), (16, 5_000), (128, 20_000), (1_024, 60_000)] {
        let normal = stream(Synchronous::Normal, under_way, requests);
        let full = stream(Synchronous::Full, under_way, requests);
        println!("{under_way:9}  {normal:12.0}  {full:10.0}");
    }
}
