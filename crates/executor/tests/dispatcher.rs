//! The dispatcher from Rust: a crew of threads, and workers that are the other ends of socket pairs.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_executor::dispatcher::{
    Dispatcher, Finished, FinishedKind, Order, Settings, StartedWorker, Waited,
};
use forebay_executor::machine::Policy;
use forebay_executor::message::{Reader, Value, Writer};
use forebay_executor::request::{Blob, Death, Options};
use forebay_transport::calls::{Connection, Options as Ends};
use forebay_transport::link::Head;
use forebay_transport::stream::unix;
use forebay_transport::wire::{Codec, Role};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

const PATIENCE: Duration = Duration::from_secs(120);

fn dispatcher(workers_max: u32) -> Dispatcher {
    let policy = Policy {
        workers_max,
        guaranteed: [0; 3],
        burst_run_ms_min: 0,
        memory_limit: None,
        cores_milli: 4_000,
        durable: false,
        ..Policy::default()
    };
    Dispatcher::start(Settings {
        policy,
        ..Settings::default()
    })
    .expect("a dispatcher")
}

/// What is told to the dispatcher of a worker, and the end that is the worker's.
fn started_worker(process: Pid) -> (StartedWorker, Connection) {
    let (ours, theirs) = unix::pair().expect("a pair");
    let caller = Connection::new(ours, Ends::new(Role::Caller, "a worker")).expect("ours");
    let worker = Connection::new(theirs, Ends::new(Role::Server, "the server")).expect("theirs");
    let ready = StartedWorker {
        connection: Arc::new(caller),
        pid: process.as_raw_nonzero().get(),
        pidfd: pidfd(process),
        generation: 0,
        is_measured: true,
    };
    (ready, worker)
}

fn pidfd(process: Pid) -> OwnedFd {
    pidfd_open(process, PidfdFlags::empty()).expect("it lives")
}

/// Answer every call with its own blob, until told to leave.
fn echo(worker: &Connection) {
    let deadline = || Instant::now().checked_add(PATIENCE);
    while let Ok(Some(call)) = worker.next_call(deadline()) {
        let mut reader = Reader::new(call.head.as_slice());
        reader.array().expect("a call");
        if reader.text().expect("a method") == "end" {
            return;
        }
        reader.array().expect("arguments");
        let Ok(Value::Bin(blob)) = reader.value() else {
            panic!("no blob");
        };
        let mut reply = Writer::default();
        reply.array(2).unsigned(0).binary(blob);
        let head = reply.into_bytes();
        worker
            .reply(call.id, Codec::Msgpack, Head::Borrowed(&head), Vec::new())
            .expect("answered");
    }
}

fn orders(dispatcher: &Dispatcher) -> Vec<Order> {
    match dispatcher.orders(Some(PATIENCE)).expect("polled") {
        Waited::Items(orders) if !orders.is_empty() => orders,
        other => panic!("no orders: {other:?}"),
    }
}

fn started(dispatcher: &Dispatcher) -> u32 {
    match orders(dispatcher)[..] {
        [Order::Start { slot, .. }] => slot,
        ref other => panic!("{other:?}"),
    }
}

fn finished(dispatcher: &Dispatcher, count: usize) -> Vec<Finished> {
    let mut all = Vec::new();
    while all.len() < count {
        match dispatcher.finished().take(Some(PATIENCE)).expect("polled") {
            Waited::Items(some) if !some.is_empty() => all.extend(some),
            other => panic!("{} of {count}, then {other:?}", all.len()),
        }
    }
    all
}

fn submit(dispatcher: &Dispatcher, number: u8) -> u64 {
    let arguments: Blob = vec![number].into();
    dispatcher
        .submit("@call".into(), arguments, Arc::new(Options::default()))
        .expect("submitted")
}

#[test]
fn a_worker_answers_each_ticket_with_its_own_result() {
    let dispatcher = dispatcher(1);
    let tickets: Vec<_> = (0..200).map(|n| (submit(&dispatcher, n), n)).collect();
    let slot = started(&dispatcher);
    let (ready, worker) = started_worker(getpid());
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&worker));
        dispatcher.worker_ready(slot, ready).expect("told");
        let mut ends = finished(&dispatcher, tickets.len());
        ends.sort_by_key(|end| end.ticket);
        for (end, (ticket, number)) in ends.iter().zip(tickets) {
            assert_eq!((end.ticket, end.kind), (ticket, FinishedKind::Result));
            assert_eq!(&*end.payload, [number]);
        }
        dispatcher.close();
    });
}

#[test]
fn the_death_of_a_worker_fails_what_it_ran_and_its_place_is_used_again() {
    let dispatcher = dispatcher(1);
    let ticket = submit(&dispatcher, 1);
    let slot = started(&dispatcher);
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .expect("a process");
    let (mortal, silent) = started_worker(Pid::from_child(&child));
    dispatcher.worker_ready(slot, mortal).expect("told");
    let deadline = Instant::now().checked_add(PATIENCE);
    assert!(silent.next_call(deadline).expect("open").is_some());
    child.kill().expect("killed");
    assert_eq!(orders(&dispatcher), [Order::Died { slot }]);
    child.wait().expect("reaped");
    let death = Death {
        pid: 7,
        signal: Some(9),
        ..Death::of("signal")
    };
    dispatcher.worker_died(slot, death).expect("told");
    let ends = finished(&dispatcher, 1);
    assert_eq!(
        (ends[0].ticket, ends[0].kind),
        (ticket, FinishedKind::Failure)
    );
    let text = String::from_utf8_lossy(&ends[0].payload).into_owned();
    assert!(text.contains(r#""cause":"signal","pid":7"#), "{text}");

    let again = submit(&dispatcher, 2);
    let slot = started(&dispatcher);
    let (ready, worker) = started_worker(getpid());
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&worker));
        dispatcher.worker_ready(slot, ready).expect("told");
        let ends = finished(&dispatcher, 1);
        assert_eq!(
            (ends[0].ticket, ends[0].kind),
            (again, FinishedKind::Result)
        );
        dispatcher.close();
    });
}

#[test]
fn a_worker_that_talks_nonsense_fails_its_request_and_says_so() {
    let dispatcher = dispatcher(1);
    submit(&dispatcher, 1);
    let slot = started(&dispatcher);
    let (ready, worker) = started_worker(getpid());
    dispatcher.worker_ready(slot, ready).expect("told");
    let deadline = Instant::now().checked_add(PATIENCE);
    let call = worker.next_call(deadline).expect("open").expect("a call");
    let nonsense = Head::Borrowed(b"\xc1");
    worker
        .reply(call.id, Codec::Msgpack, nonsense, Vec::new())
        .expect("sent");
    let ends = finished(&dispatcher, 1);
    assert_eq!(ends[0].kind, FinishedKind::Failure);
    let text = String::from_utf8_lossy(&ends[0].payload).into_owned();
    assert!(text.contains("its worker replied with"), "{text}");
    dispatcher.close(); // before its worker goes, which is this process
}

#[test]
fn a_worker_that_nobody_waits_for_is_sent_away() {
    let dispatcher = dispatcher(1);
    let (ready, _worker) = started_worker(getpid());
    dispatcher.worker_ready(5, ready).expect("told");
    assert_eq!(orders(&dispatcher), [Order::Stop { slot: 5 }]);
}

#[test]
fn who_asks_while_it_is_closed_is_not_left_waiting() {
    for _ in 0..200 {
        let dispatcher = dispatcher(1);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while dispatcher.figures().is_ok() {}
                tell.send(()).expect("somebody waits");
            });
            dispatcher.close();
            let done = told.recv_timeout(PATIENCE);
            done.expect("an answer, or that it is closed");
        });
    }
}

#[test]
fn a_death_that_is_told_late_does_not_take_the_next_worker_away() {
    let dispatcher = dispatcher(1);
    submit(&dispatcher, 1);
    let slot = started(&dispatcher);
    let (ready, worker) = started_worker(getpid());
    dispatcher.worker_ready(slot, ready).expect("told");
    let before = Death {
        pid: 7,
        signal: Some(9),
        ..Death::of("signal")
    };
    dispatcher.worker_died(slot, before).expect("told");
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&worker));
        assert_eq!(finished(&dispatcher, 1)[0].kind, FinishedKind::Result);
        dispatcher.close();
    });
}
