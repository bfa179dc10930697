//! How pulls end that do not go well.
use std::sync::Arc;
use std::time::Duration;

use forebay_tensor::Class;
use forebay_tensor::stream::{Batch, Deadline, Options, StreamError, Until};

use super::connect::{
    assert_well, begin, failure, finish, link, places, publish, run, server, server_at,
};

fn class_of(error: &StreamError) -> Class {
    match error {
        StreamError::Tensor { error, .. } => error.class(),
        other => panic!("{other}"),
    }
}

#[test]
fn rows_that_are_not_there_fail_alone() {
    let (server, address) = server();
    let link = link(&address);
    let (handle, _) = publish(&server, "tensor", 10, 4);
    let (good, works): (Vec<_>, Vec<_>) = [handle.slice(0, 10), handle.slice(9, 2)]
        .into_iter()
        .unzip();
    let batch = run(&link, good, works);
    assert_eq!(class_of(&failure(&batch, 1)), Class::OutOfRange);
    assert_eq!(batch.first_failure().map(|(index, _)| index), Some(1));
}

#[test]
fn a_dropped_tensor_is_stale_and_its_memory_is_let_go() {
    let (server, address) = server();
    let link = link(&address);
    let (handle, _) = publish(&server, "tensor", 10, 4);
    server
        .run(|shard| shard.drop_tensor("tensor"))
        .expect("runs")
        .expect("dropped");
    let (out, work) = handle.slice(0, 1);
    let batch = run(&link, vec![out], vec![work]);
    assert_eq!(class_of(&failure(&batch, 0)), Class::Stale);
    server.close();
    assert_eq!(Arc::strong_count(&handle.memory), 1);
}

#[test]
fn a_server_that_closes_ends_what_is_outstanding_with_its_address() {
    for (address, listening) in places() {
        let server = server_at(listening, Options::default());
        let link = link(&address);
        let (handle, _) = publish(&server, "tensor", 4, 1 << 20);
        let (outs, works): (Vec<_>, Vec<_>) = (0..40).map(|_| handle.slice(0, 4)).unzip();
        let batch = begin(&link, outs, works); // much more than fits the sockets
        server.close();
        finish(&link, &batch);
        let (_, error) = batch.first_failure().expect("not all of it was sent");
        assert_eq!(class_of(&error), Class::Broken);
        assert!(error.to_string().contains("unix:///the/server"), "{error}");
        assert!(!link.is_open() && !link.probe());
        let (out, work) = handle.slice(0, 1);
        let late = run(&link, vec![out], vec![work]);
        assert_eq!(class_of(&failure(&late, 0)), Class::Broken);
    }
}

#[test]
fn an_idle_link_finds_out_by_a_probe_that_its_server_is_gone() {
    let (server, address) = server();
    let link = link(&address);
    assert!(link.probe());
    server.close();
    assert!(link.is_open(), "nobody has looked");
    assert!(!link.probe());
}

#[test]
fn a_closed_link_ends_what_is_outstanding_and_takes_nothing_more() {
    let (server, address) = server();
    let link = link(&address);
    let (handle, _) = publish(&server, "tensor", 4, 1 << 20);
    let (outs, works): (Vec<_>, Vec<_>) = (0..10).map(|_| handle.slice(0, 4)).unzip();
    let batch = begin(&link, outs.clone(), works);
    link.close();
    link.close();
    assert!(batch.is_done());
    let (_, error) = batch.first_failure().expect("it was cut off");
    assert!(matches!(error, StreamError::Closed { .. }), "{error}");
    let (out, work) = handle.slice(0, 1);
    let late = run(&link, vec![out], vec![work]);
    assert!(matches!(failure(&late, 0), StreamError::Closed { .. }));
    drop(batch);
    assert!(outs.iter().all(|out| Arc::strong_count(out) == 1));
}

#[test]
fn closing_wakes_a_thread_that_waits() {
    let (address, stalled) = super::liar::silent();
    let link = link(&address);
    let (out, work) = super::liar::any_pull();
    let batch = begin(&link, vec![out], vec![work]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| finish(&link, &batch));
        while link.counters().sent_bytes == 0 {
            std::thread::yield_now();
        }
        link.close();
        waiting.join().expect("no panic");
    });
    assert!(matches!(failure(&batch, 0), StreamError::Closed { .. }));
    drop(stalled);
}

#[test]
fn a_wait_that_ends_early_leaves_the_batch_as_it_is() {
    let (address, stalled) = super::liar::silent();
    let link = link(&address);
    let (out, work) = super::liar::any_pull();
    let batch = begin(&link, vec![out], vec![work]);
    let brief = Duration::from_millis(1);
    let waited = link.wait(&batch, Until::All, Deadline::after(brief));
    assert!(
        matches!(waited, Err(StreamError::Deadline { allowed, .. }) if allowed == brief),
        "{waited:?}"
    );
    assert!(!batch.is_done() && link.is_open());
    drop(stalled);
}

#[test]
fn time_that_runs_out_ends_the_batch_alone() {
    let (address, stalled) = super::liar::silent();
    let link = link(&address);
    let (out, work) = super::liar::any_pull();
    let batch = Batch::new(vec![Arc::clone(&out)], 1);
    link.begin(&batch, [work], Some(Duration::from_millis(20)))
        .expect("begun");
    finish(&link, &batch);
    let late = failure(&batch, 0);
    assert!(
        matches!(&late, StreamError::Deadline { allowed, .. } if *allowed == Duration::from_millis(20))
    );
    assert!(
        late.to_string()
            .ends_with("did not complete the operation within 0.02 s"),
        "{late}"
    );
    assert!(link.is_open());
    drop(batch);
    assert_eq!(Arc::strong_count(&out), 2, "the server may still answer");
    link.close();
    assert_eq!(Arc::strong_count(&out), 1, "it is fenced");
    drop(stalled);
}

#[test]
fn what_was_received_is_answered_by_a_server_that_closes() {
    let [_, (address, listening)] = places();
    let options = Options {
        grace: Duration::from_secs(20),
        ..Options::default()
    };
    let server = server_at(listening, options);
    let link = link(&address);
    let (handle, content) = publish(&server, "tensor", 4, 1 << 20);
    let (out, work) = handle.slice(0, 4);
    let batch = begin(&link, vec![Arc::clone(&out)], vec![work]);
    while server.counters().sent_bytes == 0 {
        std::thread::yield_now();
    }
    server.stop();
    finish(&link, &batch);
    assert_well(&batch);
    assert!(out.content() == content);
}
