//! Every interleaving of the queue's lock, flag and signal: no item may wait for a wake-up that is not sent.
//! The same for two threads that wait for one source: neither may sleep while its answer is there and nobody reads.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p forebay-base --test loom --release`
#![cfg(loom)]

use forebay_base::waiters::{Reader, Waiters};
use forebay_base::wakeup::Wakeup;
use forebay_base::{Error, Queue, Refused};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Take batches as an event loop does, waiting before each, until `wanted` items are there.
fn consume(queue: &Queue<u32>, wanted: usize) -> Vec<u32> {
    let (mut taken, mut batch) = (Vec::new(), Vec::new());
    while taken.len() < wanted {
        queue.wait(); // loom reports a deadlock if a wake-up was lost
        queue.drain(&mut batch).expect("open");
        taken.append(&mut batch);
    }
    taken
}

#[test]
fn no_wake_up_is_lost_with_two_producers() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(8).expect("a queue"));
        let producers = [1, 2].map(|item| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.push(item).expect("room"))
        });
        let mut taken = consume(&queue, 2);
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
        for producer in producers {
            producer.join().expect("no panic");
        }
    });
}

#[test]
fn one_producer_keeps_its_order_over_batches() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(8).expect("a queue"));
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || (1..=3).for_each(|item| queue.push(item).expect("room")))
        };
        assert_eq!(consume(&queue, 3), [1, 2, 3]);
        producer.join().expect("no panic");
    });
}

#[test]
fn closing_beside_a_push_ends_the_consumer_and_loses_nothing() {
    loom::model(|| {
        let queue = Arc::new(Queue::new(8).expect("a queue"));
        let producer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || match queue.push(7) {
                Ok(()) => 1,
                Err(Refused::Closed { item: 7 }) => 0,
                Err(other) => panic!("{other:?}"),
            })
        };
        let closer = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.close())
        };
        let (mut taken, mut batch) = (0, Vec::new());
        loop {
            queue.wait();
            match queue.drain(&mut batch) {
                Ok(_) => taken += batch.drain(..).count(),
                Err(Error::Closed) => break,
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(taken, producer.join().expect("no panic"));
        closer.join().expect("no panic");
    });
}

/// A source of answers, and the threads that wait for them.
#[derive(Default)]
struct Source {
    waiters: Waiters,
    /// What has come and was not read.
    arrived: Vec<u64>,
    /// What was read, and its thread has not taken.
    read: Vec<u64>,
}

impl Source {
    /// Read what has come, and wake the threads that it is for.
    fn receive(&mut self) {
        for number in std::mem::take(&mut self.arrived) {
            self.read.push(number);
            self.waiters.wake(number);
        }
    }

    fn take(&mut self, number: u64) -> bool {
        let found = self.read.iter().position(|&it| it == number);
        found.map(|at| self.read.swap_remove(at)).is_some()
    }
}

/// Wait for an answer as a blocked thread does.
fn wait_for(number: u64, shared: &Mutex<Source>, readable: &Wakeup) {
    let own = std::sync::Arc::new(Wakeup::new().expect("a wakeup"));
    loop {
        let mut source = shared.lock().expect("no panic");
        if source.take(number) {
            source.waiters.end(Some(number));
            return;
        }
        let leads = source.waiters.reader() == Reader::None;
        let lead = source.waiters.enter(leads, Some((number, &own)));
        drop(source);
        let slept_on = if leads { readable } else { &*own };
        slept_on.wait(); // loom reports a deadlock if a wake-up was lost
        slept_on.clear();
        let mut source = shared.lock().expect("no panic");
        if source.waiters.leave(lead) {
            source.receive();
        }
    }
}

/// With at most two preemptions: there are too many interleavings for more.
#[test]
fn of_two_threads_one_reads_for_both_and_neither_sleeps_on() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let shared = Arc::new(Mutex::new(Source::default()));
        let readable = Arc::new(Wakeup::new().expect("a wakeup"));
        let threads = [1, 2].map(|number| {
            let (shared, readable) = (Arc::clone(&shared), Arc::clone(&readable));
            thread::spawn(move || wait_for(number, &shared, &readable))
        });
        for number in [2, 1] {
            shared.lock().expect("no panic").arrived.push(number);
            readable.raise();
        }
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}
