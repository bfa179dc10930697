//! Every interleaving of the queue's lock, flag and signal: no item may wait for a wake-up that is not sent.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p forebay-base --test loom --release`
#![cfg(loom)]

use forebay_base::{Error, Queue, Refused};
use loom::sync::Arc;
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
