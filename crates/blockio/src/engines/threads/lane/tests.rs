//! The order of turns, and the owner of memory that comes back.
use std::sync::Arc;

use super::{ALONE, Ended, HANDED, Lane, Lanes};
use crate::batch::{Batch, Files, Operations};
use crate::completion::Completions;
use crate::engines::threads::waiter::{Waited, Waiter};
use crate::file::{BlockFile, Mode};
use crate::operation::Operation;
use crate::quarantine::Quarantine;
use crate::sys::lent;

const BYTES: u32 = 16;

/// Memory of a batch of reads from a file of zeros.
struct Owner {
    operations: Vec<Operation>,
    bytes: Vec<u8>,
    results: Vec<i64>,
}

impl Owner {
    fn new(count: usize) -> Self {
        let operation = Operation {
            length: BYTES,
            ..Operation::default()
        };
        Self {
            operations: vec![operation; count],
            bytes: vec![1; BYTES as usize],
            results: vec![i64::MIN; count],
        }
    }

    fn batch(&mut self) -> Batch {
        let (listed, memory, results) =
            lent::whole(&mut self.operations, &mut self.bytes, &mut self.results);
        let file = BlockFile::open("/dev/zero", Mode::Read, false).expect("it is there");
        let listed = Operations::Listed(listed);
        Batch::new(listed, Files::One(file), memory, results, false).expect("within bounds")
    }
}

fn lanes() -> (Lanes, Arc<Quarantine>) {
    let quarantine = Arc::new(Quarantine::new(u64::MAX));
    (Lanes::new(4, Arc::clone(&quarantine)), quarantine)
}

fn callers_lane(owner: &mut Owner) -> (Lane, Arc<Waiter>) {
    let waiter = Arc::new(Waiter::default());
    let mut lane = Lane::new(4, Some(Arc::clone(&waiter)));
    lane.flight.admit(owner.batch(), None, ALONE, None);
    (lane, waiter)
}

fn carry_out_one(lanes: &mut Lanes, ended: &mut Vec<Ended>) -> usize {
    let job = lanes.next(ended).expect("there is an operation");
    let result = job.transfer.carry_out();
    lanes.complete(&job, result, ended);
    job.lane
}

/// A caller with a long list must not keep the threads from the lists of others.
#[test]
fn lanes_take_turns() {
    let (mut lanes, _) = lanes();
    let (mut first, mut second) = (Owner::new(10), Owner::new(2));
    let (lane, _) = callers_lane(&mut first);
    let first_lane = lanes.insert(lane);
    let (lane, waiter) = callers_lane(&mut second);
    let second_lane = lanes.insert(lane);
    let mut ended = Vec::new();
    let order: Vec<_> = (0..6)
        .map(|_| carry_out_one(&mut lanes, &mut ended))
        .collect();
    let [one, two] = [first_lane, second_lane];
    assert_eq!(order, [one, two, one, two, one, one]);
    let [Ended::Wake(woken)] = &ended[..] else {
        panic!("one caller's batch has ended");
    };
    woken.end();
    assert_eq!(waiter.wait(), Waited::Ended);
    assert!(
        lanes.remove_ended(first_lane).is_none(),
        "four reads are left"
    );
    assert!(lanes.remove_ended(second_lane).is_some());
    assert_eq!(second.results, [16, 16]);
    assert_eq!(second.bytes, [0; 16]);
}

/// The memory of a caller that has gone stays its keeper's while a thread may write it.
#[test]
fn what_was_given_up_keeps_its_keeper_until_the_threads_let_go() {
    let (mut lanes, quarantine) = lanes();
    let mut owner = Owner::new(3);
    let (lane, _) = callers_lane(&mut owner);
    let index = lanes.insert(lane);
    let mut ended = Vec::new();
    let job = lanes.next(&mut ended).expect("three operations");
    let kept = Arc::new(());
    assert_eq!(
        lanes.give_up(index, Box::new(Arc::clone(&kept)), &mut ended),
        1
    );
    assert!(
        lanes.next(&mut ended).is_none(),
        "nothing more of it is issued"
    );
    assert_eq!((ended.len(), quarantine.batches()), (0, 1));
    lanes.complete(&job, 16, &mut ended);
    assert!(matches!(ended[..], [Ended::Drop(_)]));
    assert_eq!((Arc::strong_count(&kept), quarantine.batches()), (2, 0));
    ended.clear();
    assert_eq!(Arc::strong_count(&kept), 1);
}

/// Once a close has given up on a thread that hangs, the memory that it may write is leaked.
#[test]
#[cfg_attr(miri, ignore = "it leaks on purpose, which miri reports")]
fn what_has_not_ended_in_time_leaks() {
    let (mut lanes, _) = lanes();
    let mut owner = Owner::new(2);
    let kept = Arc::new(());
    let done = Arc::new(Completions::new(4).expect("there is a descriptor"));
    let mut ended = Vec::new();
    lanes.hand(
        owner.batch(),
        Box::new(Arc::clone(&kept)),
        7,
        &done,
        &mut ended,
    );
    let job = lanes.next(&mut ended).expect("two operations");
    lanes.detach_all(&mut ended);
    assert_eq!(lanes.leak(), (1, true));
    assert_eq!(lanes.leak(), (1, false));
    lanes.complete(&job, 16, &mut ended);
    ended.clear();
    assert_eq!(Arc::strong_count(&kept), 2, "its keeper is leaked");
}

/// A caller that gets an error has its memory back.
#[test]
fn a_refused_batch_gives_its_keeper_back_and_tells_nobody() {
    let (mut lanes, quarantine) = lanes();
    let mut owner = Owner::new(2);
    let kept = Arc::new(());
    let done = Arc::new(Completions::new(4).expect("there is a descriptor"));
    let mut ended = Vec::new();
    lanes.hand(
        owner.batch(),
        Box::new(Arc::clone(&kept)),
        7,
        &done,
        &mut ended,
    );
    drop(lanes.refuse(HANDED, 7));
    assert_eq!(Arc::strong_count(&kept), 1);
    assert!(lanes.next(&mut ended).is_none());
    assert_eq!((ended.len(), quarantine.batches()), (0, 0));
}
