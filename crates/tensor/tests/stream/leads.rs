//! Who drives a link, where several could.
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use forebay_tensor::stream::{Batch, Deadline, Port, StreamError, Until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connect::{
    Kept, assert_well, begin, failure, finish, link, link_with, publish, run, server,
};
use super::liar;
use super::sys::borrow;

/// Turn a port until it tells of something, or panic after half a minute.
fn hear(port: &Port<Kept>) -> Vec<u64> {
    let patience = Timespec {
        tv_sec: 30,
        tv_nsec: 0,
    };
    let mut tickets = Vec::new();
    while tickets.is_empty() {
        let descriptor = borrow(port.fileno());
        let mut watched = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        assert_eq!(poll(&mut watched, Some(&patience)), Ok(1), "nobody rang");
        port.turn(&mut tickets).expect("turned");
    }
    tickets
}

#[test]
fn a_thread_waits_beside_a_port_that_nobody_turns() {
    let (server, address) = server();
    let (handle, _) = publish(&server, "tensor", 4, 1 << 20);
    let link = link(&address);
    let port = Port::new().expect("port");
    let (outs, works): (Vec<_>, Vec<_>) = (0..8).map(|_| handle.slice(0, 4)).unzip();
    let suspended = link.start((&port, 1, false), (outs, 8), works, (None, None));
    let (out, work) = handle.slice(0, 1);
    assert_well(&run(&link, vec![out], vec![work]));
    assert_eq!(hear(&port), [1], "it leads again");
    assert_well(&suspended.expect("begun"));
}

#[test]
fn a_port_that_is_waited_for_leads_in_place_of_one_that_is_not() {
    let (server, address) = server();
    let (handle, _) = publish(&server, "tensor", 4, 1 << 20);
    let link = link(&address);
    let (idle, waited) = (Port::new().expect("port"), Port::new().expect("port"));
    let (outs, works): (Vec<_>, Vec<_>) = (0..8).map(|_| handle.slice(0, 4)).unzip();
    let suspended = link.start((&idle, 1, false), (outs, 8), works, (None, None));
    for ticket in 2..50 {
        let (out, work) = handle.slice(0, 1);
        let told = (&waited, ticket, false);
        let batch = link.start(told, (vec![out], 1), [work], (None, None));
        let batch = batch.expect("begun");
        let mut tickets = Vec::new();
        while tickets.is_empty() {
            waited.wait(&mut tickets).expect("waited");
        }
        assert_eq!(tickets, [ticket]);
        assert_well(&batch);
    }
    assert_eq!(hear(&idle), [1], "it leads again");
    assert_well(&suspended.expect("begun"));
}

#[test]
fn a_port_has_its_batches_after_others_were_refused() {
    let (address, _stalled) = liar::silent();
    let link = link_with(&address, |limits| {
        limits.slots = 1;
        limits.waiting_max = 1;
    });
    let port = Port::new().expect("port");
    let start = |ticket, timeout| {
        let (out, work) = liar::any_pull();
        let begun = link.start(
            (&port, ticket, false),
            (vec![out], 1),
            [work],
            (timeout, None),
        );
        begun.expect("begun")
    };
    let late = start(1, Some(Duration::from_secs(3)));
    let _waits = start(2, None);
    for ticket in 3..8 {
        assert!(start(ticket, None).is_done(), "no more may wait");
    }
    let mut tickets = Vec::new();
    port.turn(&mut tickets).expect("turned");
    assert_eq!(tickets, [3, 4, 5, 6, 7]);
    let waited = link.wait(&late, Until::All, Deadline::after(Duration::from_millis(1)));
    assert!(
        matches!(waited, Err(StreamError::Deadline { .. })),
        "{waited:?}"
    );
    assert_eq!(hear(&port), [1], "the thread gave the lead back");
    assert!(matches!(failure(&late, 0), StreamError::Deadline { .. }));
}

#[test]
fn who_sleeps_on_a_socket_gets_its_answer_beside_others_that_look() {
    let (server, address) = server();
    let (handle, _) = publish(&server, "tensor", 4, 64);
    let link = link_with(&address, |limits| {
        limits.liveness = Duration::from_secs(1000);
    });
    let (looking, over) = channel::<()>();
    std::thread::scope(|scope| {
        let _looking = looking; // dropped in a panic too, so that the others end
        let link = &link;
        scope.spawn(move || {
            while over.try_recv() == Err(TryRecvError::Empty) {
                assert!(link.probe());
                std::thread::yield_now(); // a lock is not fair
            }
        });
        for _ in 0..300 {
            let (out, work) = handle.slice(0, 4);
            let begun = Instant::now();
            assert_well(&run(link, vec![out], vec![work]));
            assert!(begun.elapsed() < Duration::from_secs(10), "it slept on");
        }
    });
}

#[test]
fn memory_that_was_given_up_comes_back_though_nobody_waits() {
    let (address, _stalled) = liar::silent();
    let link = link_with(&address, |limits| {
        limits.liveness = Duration::from_secs(2);
    });
    let (out, work) = liar::any_pull();
    let batch = begin(&link, vec![Arc::clone(&out)], vec![work]);
    link.cancel(&batch);
    finish(&link, &batch);
    drop(batch);
    assert!(Arc::strong_count(&out) > 1, "the server may still write it");
    let port: Port<Kept> = Port::new().expect("port");
    link.keep_driving(&port);
    while link.is_open() {
        let descriptor = borrow(port.fileno());
        let mut watched = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        poll(&mut watched, None).expect("rang");
        port.turn(&mut Vec::new()).expect("turned");
    }
    assert_eq!(Arc::strong_count(&out), 1);
}

#[test]
fn a_port_that_attends_leads_after_a_thread_did() {
    let (server, address) = server();
    let (handle, _) = publish(&server, "tensor", 4, 1 << 20);
    let link = link(&address);
    let port = Port::new().expect("port");
    let (outs, works): (Vec<_>, Vec<_>) = (0..8).map(|_| handle.slice(0, 4)).unzip();
    let memory = Arc::clone(&outs[7]);
    let batch = Batch::new(outs, 8);
    link.begin(&batch, works, None).expect("begun");
    link.keep_driving(&port);
    let soon = Deadline::after(Duration::ZERO);
    assert!(link.wait(&batch, Until::All, soon).is_err(), "it leads");
    link.cancel(&batch);
    drop(batch);
    while Arc::strong_count(&memory) > 1 {
        let descriptor = borrow(port.fileno());
        let mut watched = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        poll(&mut watched, None).expect("rang");
        port.turn(&mut Vec::new()).expect("turned");
    }
    assert_eq!(link.counters().outstanding, 0);
}

#[test]
fn whoever_wants_something_of_a_thread_that_panicked_hears_so() {
    let (server, address) = server();
    let (handle, _) = publish(&server, "tensor", 4, 64);
    let link = link(&address);
    let panicked = server.run(|_| panic!("as this test wants it"));
    assert!(
        matches!(panicked, Err(StreamError::Panicked { .. })),
        "{panicked:?}"
    );
    let later = server.run(|_| ());
    assert!(
        matches!(later, Err(StreamError::Panicked { .. })),
        "{later:?}"
    );
    let (out, work) = handle.slice(0, 4);
    assert!(matches!(
        failure(&run(&link, vec![out], vec![work]), 0),
        StreamError::Tensor { .. }
    ));
}

#[test]
fn whether_there_are_verbs_is_told_while_somebody_else_has_the_link() {
    let (address, _stalled) = liar::silent();
    let link = link(&address);
    let (out, work) = liar::any_pull();
    let batch = Batch::new(vec![out], 1);
    let works = std::iter::once_with(|| {
        // The link is locked while it takes what is asked for.
        let (asked, (tell, told)) = (Arc::clone(&link), channel());
        let asks = Builder::new().spawn(move || tell.send(asked.has_verbs()));
        let has_verbs = told.recv_timeout(Duration::from_secs(10));
        assert_eq!(has_verbs, Ok(false), "it waited for the link");
        drop(asks.expect("a thread").join());
        work
    });
    link.begin(&batch, works, None).expect("begun");
}
