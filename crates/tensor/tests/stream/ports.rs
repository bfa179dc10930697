//! Links that a loop or a thread drives for others.
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_tensor::stream::{Port, StreamError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connect::{Kept, assert_well, failure, link, publish, run, server};
use super::liar;
use super::sys::borrow;

/// Turn until `count` different tickets were told.
fn hear(port: &Port<Kept>, count: usize) -> HashSet<u64> {
    let mut heard = HashSet::new();
    while heard.len() < count {
        let mut tickets = Vec::new();
        match port.wait(&mut tickets) {
            Ok(()) | Err(StreamError::Interrupted) => heard.extend(tickets),
            Err(error) => panic!("{error}"),
        }
    }
    heard
}

fn is_readable(port: &Port<Kept>) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let descriptor = borrow(port.fileno());
    let mut watched = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(&mut watched, Some(&now)).expect("polled") == 1
}

#[test]
fn a_port_tells_of_each_batch_once_it_is_done() {
    let (server, address) = server();
    let (handle, content) = publish(&server, "tensor", 100, 1000);
    let links: Vec<_> = (0..3).map(|_| link(&address)).collect();
    let port = Port::new().expect("port");
    for round in 0..20 {
        let batches: Vec<_> = (0..12u64)
            .map(|ticket| {
                let (out, work) = handle.slice(ticket * 8, 8);
                let told = (&port, ticket, false);
                let link = &links[usize::try_from(ticket % 3).expect("small")];
                let lent = (vec![Arc::clone(&out)], 1);
                (
                    out,
                    link.start(told, lent, [work], (None, None)).expect("begun"),
                )
            })
            .collect();
        assert_eq!(hear(&port, 12), (0..12).collect(), "round {round}");
        for ((out, batch), at) in batches.iter().zip(0..) {
            assert_well(batch);
            assert!(out.content() == content[at * 8000..(at + 1) * 8000]);
        }
    }
    assert!(!is_readable(&port), "nothing is due");
}

#[test]
fn threads_and_a_port_use_one_link() {
    let (server, address) = server();
    let (handle, content) = publish(&server, "tensor", 100, 1000);
    let link = link(&address);
    let port = Port::new().expect("port");
    std::thread::scope(|scope| {
        for number in 0..3u64 {
            let (link, handle, content) = (&link, &handle, &content);
            scope.spawn(move || {
                for round in 0..300 {
                    let first = (number * 31 + round) % 100;
                    let (out, work) = handle.slice(first, 1);
                    assert_well(&run(link, vec![Arc::clone(&out)], vec![work]));
                    let from = usize::try_from(first).expect("fits") * 1000;
                    assert!(out.content() == content[from..from + 1000]);
                }
            });
        }
        for ticket in 0..300u64 {
            let (out, work) = handle.slice(ticket % 100, 1);
            let begun = link.start((&port, ticket, false), (vec![out], 1), [work], (None, None));
            assert_eq!(hear(&port, 1), HashSet::from([ticket]));
            assert_well(&begun.expect("begun"));
        }
    });
}

#[test]
fn each_end_is_told_where_that_is_asked_for() {
    let (server, address) = server();
    let (handle, _) = publish(&server, "tensor", 100, 100_000);
    let link = link(&address);
    let port = Port::new().expect("port");
    let (outs, works): (Vec<_>, Vec<_>) = (0..40).map(|at| handle.slice(at, 20)).unzip();
    let batch = link
        .start((&port, 7, true), (outs, 40), works, (None, None))
        .expect("begun");
    let mut arrived = Vec::new();
    while arrived.len() < 40 {
        assert_eq!(hear(&port, 1), HashSet::from([7]));
        batch.take_arrived(&mut arrived);
    }
    assert_well(&batch);
    assert_eq!(arrived.iter().collect::<HashSet<_>>().len(), 40);
}

#[test]
fn a_port_keeps_deadlines_and_hears_of_a_server_that_stops() {
    let (address, stalled) = liar::silent();
    let link = super::connect::link_with(&address, |limits| {
        limits.liveness = Duration::from_millis(300);
    });
    let port = Port::new().expect("port");
    let begin = |ticket, timeout| {
        let (out, work) = liar::any_pull();
        link.start(
            (&port, ticket, false),
            (vec![out], 1),
            [work],
            (timeout, None),
        )
        .expect("begun")
    };
    let (late, broken) = (begin(1, Some(Duration::from_millis(20))), begin(2, None));
    assert_eq!(hear(&port, 2), HashSet::from([1, 2]));
    assert!(matches!(failure(&late, 0), StreamError::Deadline { .. }));
    assert!(matches!(failure(&broken, 0), StreamError::Tensor { .. }));
    drop(stalled);
}

#[test]
fn a_closed_port_wakes_its_thread_and_gives_its_links_back() {
    let (server, address) = server();
    let (handle, _) = publish(&server, "tensor", 100, 1000);
    let link = link(&address);
    let port = Port::new().expect("port");
    let (out, work) = handle.slice(0, 1);
    let batch = link
        .start((&port, 1, false), (vec![out], 1), [work], (None, None))
        .expect("begun");
    port.close();
    port.close();
    super::connect::finish(&link, &batch);
    assert_well(&batch);
    let mut tickets = Vec::new();
    assert!(matches!(
        port.wait(&mut tickets),
        Err(StreamError::Closed { .. })
    ));
}

#[test]
fn a_port_that_was_closed_tells_its_last_tickets_and_then_that_it_is_closed() {
    let (server, address) = server();
    let (handle, _) = publish(&server, "tensor", 100, 1000);
    let link = link(&address);
    let port = Port::new().expect("port");
    let (out, work) = handle.slice(0, 8);
    let lent = (vec![Arc::clone(&out)], 1);
    let batch = link.start((&port, 7, false), lent, [work], (None, None));
    let _batch = batch.expect("begun");
    link.close();
    port.close();
    let mut tickets = Vec::new();
    port.wait(&mut tickets).expect("the tickets");
    assert_eq!(tickets, [7]);
    tickets.clear();
    // One eventfd rings for both, and the turn above has taken its ring.
    let closed = port.wait(&mut tickets);
    assert!(
        matches!(closed, Err(StreamError::Closed { .. })),
        "{closed:?}"
    );
}
