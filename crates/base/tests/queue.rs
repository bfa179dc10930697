//! The queue with a real eventfd and real threads.
#![cfg(not(loom))]
#![allow(clippy::disallowed_methods)] // plain threads stand for the systems that push

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use forebay_base::{Error, Queue, Refused};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Whether the descriptor is readable within `seconds`.
fn readable<T>(queue: &Queue<T>, seconds: i64) -> bool {
    let mut watched = [PollFd::new(queue, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    poll(&mut watched, Some(&timeout)).expect("poll") == 1
}

/// Wait until there is something to drain; miri, which has no poll, looks again and again.
fn something_comes<T>(queue: &Queue<T>) -> bool {
    if cfg!(miri) {
        thread::yield_now();
        return true;
    }
    readable(queue, 20)
}

#[test]
#[cfg_attr(miri, ignore = "polls a descriptor, which miri cannot")]
fn a_push_makes_the_descriptor_readable_and_a_drain_makes_it_quiet() {
    let queue = Queue::new(8).expect("a queue");
    assert!(!readable(&queue, 0));
    queue.push(1).expect("room");
    assert!(readable(&queue, 0));
    let mut batch = Vec::new();
    assert_eq!(queue.drain(&mut batch).expect("open"), 1);
    assert!(!readable(&queue, 0));
}

#[test]
fn a_batch_costs_one_write() {
    let queue = Queue::new(1000).expect("a queue");
    for item in 0..1000 {
        queue.push(item).expect("room");
    }
    let mut writes = [0_u8; 8]; // an eventfd reads as the number of its writes
    rustix::io::read(&queue, &mut writes).expect("readable");
    assert_eq!(u64::from_ne_bytes(writes), 1);
}

#[test]
fn a_full_queue_gives_the_item_back_and_names_the_limit() {
    let queue = Queue::new(2).expect("a queue");
    queue.push("a").expect("room");
    queue.push("b").expect("room");
    let refused = queue.push("c").expect_err("full");
    assert!(
        refused.to_string().contains("queue_items_max (2)"),
        "{refused}"
    );
    assert_eq!(refused.into_item(), "c");
    queue.drain(&mut Vec::new()).expect("open");
    queue.push("c").expect("room again");
}

#[test]
fn a_queue_without_room_for_one_item_is_refused() {
    assert!(matches!(
        Queue::<()>::new(0),
        Err(Error::Limit { limit: 0 })
    ));
}

#[test]
fn a_drain_appends_to_what_the_batch_holds() {
    let queue = Queue::new(8).expect("a queue");
    queue.push(2).expect("room");
    let mut batch = vec![1];
    assert_eq!(queue.drain(&mut batch).expect("open"), 1);
    assert_eq!(batch, [1, 2]);
}

#[test]
#[cfg_attr(miri, ignore = "polls a descriptor, which miri cannot")]
fn closing_hands_out_the_rest_then_says_closed_and_stays_readable() {
    let queue = Queue::new(8).expect("a queue");
    queue.push(1).expect("room");
    queue.close();
    queue.close();
    assert!(matches!(queue.push(2), Err(Refused::Closed { item: 2 })));
    let mut batch = Vec::new();
    assert_eq!(queue.drain(&mut batch).expect("the rest"), 1);
    for _ in 0..2 {
        assert!(readable(&queue, 0));
        assert!(matches!(queue.drain(&mut batch), Err(Error::Closed)));
    }
}

#[test]
fn eight_threads_lose_no_item_and_keep_their_order() {
    const THREADS: usize = 8;
    const ITEMS: usize = if cfg!(miri) { 40 } else { 20_000 };
    let queue = Arc::new(Queue::new(if cfg!(miri) { 16 } else { 512 }).expect("a queue"));
    let refusals = Arc::new(AtomicUsize::new(0));
    let producers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (queue, refusals) = (Arc::clone(&queue), Arc::clone(&refusals));
            thread::spawn(move || {
                for item in 0..ITEMS {
                    let mut next = (thread, item);
                    while let Err(refused) = queue.push(next) {
                        next = refused.into_item();
                        refusals.fetch_add(1, Ordering::Relaxed);
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut next = [0; THREADS];
    let mut batch = Vec::new();
    while next.iter().sum::<usize>() < THREADS * ITEMS {
        assert!(
            something_comes(&queue),
            "a wake-up was lost; next of each thread: {next:?}"
        );
        queue.drain(&mut batch).expect("open");
        for (thread, item) in batch.drain(..) {
            assert_eq!(item, next[thread], "thread {thread} out of order");
            next[thread] += 1;
        }
    }
    for producer in producers {
        producer.join().expect("no panic");
    }
    assert!(queue.is_empty());
}

#[test]
fn a_refusal_is_printed_whatever_its_item_is() {
    struct Unprintable;
    let queue = Queue::new(1).expect("a queue");
    queue.push(Unprintable).expect("room");
    let full = queue.push(Unprintable).expect_err("full");
    assert_eq!(format!("{full:?}"), "Full { limit: 1, .. }");
    queue.close();
    let closed = queue.push(Unprintable).expect_err("closed");
    assert_eq!(format!("{closed:?}"), "Closed { .. }");
}
