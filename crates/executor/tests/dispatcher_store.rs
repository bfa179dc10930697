//! The dispatcher with a store, as one client and one worker of its sockets see it.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_executor::dispatcher::{Dispatcher, Handover, Order, Settings, StartedWorker, Waited};
use forebay_executor::id::RequestId;
use forebay_executor::machine::Policy;
use forebay_executor::message::{Reader, Value, Writer};
use forebay_executor::request::{Death, Status};
use forebay_executor::store::{DatabaseReader, Filter, StoreConfig};
use forebay_transport::calls::{Connection, Options as Ends, Outcome, Outgoing, Taker};
use forebay_transport::link::Head;
use forebay_transport::stream::unix;
use forebay_transport::wire::{Codec, Role};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketType, connect, send, sendmsg, socket,
};
use rustix::pipe::pipe;
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

const PATIENCE: Duration = Duration::from_secs(120);
const MANIFEST: &str = r#"{"schema":1,"app":"tests","target":"tests.py:app","code":"0123456789abcdef",
"sources":[],"submitter":null,"requests":[{"name":"echo","doc":"","lane":"async","parameters":[
{"name":"value","doc":"","required":true,"annotation":"Any","schema":{}}]}],"definitions":{},"services":[]}"#;

/// Of the long lane, whose workers are handed requests behind the one that they run.
const AHEAD_MANIFEST: &str = r#"{"schema":1,"app":"tests","target":"tests.py:app","code":"0123456789abcdef",
"sources":[],"submitter":null,"requests":[{"name":"echo","doc":"","lane":"long","ahead":4,"parameters":[
{"name":"value","doc":"","required":true,"annotation":"Any","schema":{}}]}],"definitions":{},"services":[]}"#;

fn deadline() -> Option<Instant> {
    Instant::now().checked_add(PATIENCE)
}

/// A directory of a test's own, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("forebay-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .expect("a directory");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn dispatcher(directory: &Path, change: impl FnOnce(&mut StoreConfig)) -> Dispatcher {
    dispatcher_of(MANIFEST, directory, change)
}

fn dispatcher_of(
    manifest: &str,
    directory: &Path,
    change: impl FnOnce(&mut StoreConfig),
) -> Dispatcher {
    start(manifest, directory, None, change)
}

/// A dispatcher at the socket that another one has given.
fn successor(directory: &Path, given: Handover) -> Dispatcher {
    let dispatcher = start(MANIFEST, directory, Some(given), |_| ());
    dispatcher.begin().expect("open");
    dispatcher
}

fn start(
    manifest: &str,
    directory: &Path,
    passed: Option<Handover>,
    change: impl FnOnce(&mut StoreConfig),
) -> Dispatcher {
    let policy = Policy {
        workers_max: 1,
        guaranteed: [0; 3],
        burst_run_ms_min: 0,
        memory_limit: None,
        cores_milli: 4_000,
        durable: true,
        // However slow this machine is, what runs has not run for long.
        ahead_ms_max: 600_000,
        // A worker is this process, which grows by what the other tests hold.
        worker_growth_max_bytes: u64::MAX,
        ..Policy::default()
    };
    let mut store = StoreConfig::new(directory.join("state"));
    change(&mut store);
    let dispatcher = Dispatcher::start(Settings {
        policy,
        store: Some(store),
        socket: Some(directory.join("s")),
        passed: passed.map(|given| given.clients),
        side_socket: Some(directory.join("side")),
        ..Settings::default()
    })
    .expect("a dispatcher");
    dispatcher.install(manifest.as_bytes()).expect("installed");
    dispatcher
}

/// A client, which sends everything before it reads anything.
struct Client(Connection);

impl Client {
    fn new(directory: &Path) -> Self {
        let socket = unix::connect(&directory.join("s"), Some(PATIENCE)).expect("connected");
        let ends = Ends::new(Role::Caller, "the server");
        Self(Connection::new(socket, ends).expect("a connection"))
    }

    fn call(&self, method: &str, arguments: &[u8]) -> u64 {
        let mut head = Writer::default();
        head.array(3).text(method).raw(arguments).nil();
        let head = head.into_bytes();
        let outgoing = Outgoing {
            codec: Codec::Msgpack,
            one_way: false,
            remaining: None,
            generation: 0,
            head: Head::Borrowed(&head),
            segments: Vec::new(),
        };
        self.0.start(outgoing, Taker::Thread).expect("sent")
    }

    fn submit(&self, method: &str, number: u64) -> u64 {
        let mut value = Writer::default();
        value.map(1).text("value").unsigned(number);
        self.send(method, &value.into_bytes())
    }

    fn submit_bytes(&self, bytes: usize) -> u64 {
        let mut value = Writer::default();
        value.map(1).text("value").binary(&vec![7; bytes]);
        self.send("submit", &value.into_bytes())
    }

    fn send(&self, method: &str, blob: &[u8]) -> u64 {
        let mut arguments = Writer::default();
        arguments.array(4).text("echo").binary(blob).nil().nil();
        self.call(method, &arguments.into_bytes())
    }

    /// Submit and wait for the end, with a submission token as programs do.
    fn run(&self, token: u64) -> u64 {
        let mut value = Writer::default();
        value.map(1).text("value").unsigned(token);
        let mut arguments = Writer::default();
        arguments
            .array(4)
            .text("echo")
            .binary(&value.into_bytes())
            .nil()
            .unsigned(token);
        self.call("run", &arguments.into_bytes())
    }

    /// The head of an answer.
    fn answer(&self, call: u64) -> Vec<u8> {
        match self.0.wait(call, deadline()).expect("an answer") {
            Outcome::Reply(frame) => frame.head.as_slice().to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

/// The worker that the dispatcher wants: this process, at the end of a pair.
fn worker(dispatcher: &Dispatcher) -> Connection {
    let (slot, _) = wanted(dispatcher);
    hire(dispatcher, slot)
}

/// The place and the nonce of the worker that is to be started.
fn wanted(dispatcher: &Dispatcher) -> (u32, u64) {
    match dispatcher.orders(Some(PATIENCE)).expect("polled") {
        Waited::Items(orders) => match orders[..] {
            [Order::Start { slot, nonce, .. }] => (slot, nonce),
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn hire(dispatcher: &Dispatcher, slot: u32) -> Connection {
    hire_as(getpid(), dispatcher, slot)
}

fn hire_as(process: Pid, dispatcher: &Dispatcher, slot: u32) -> Connection {
    let (ours, theirs) = unix::pair().expect("a pair");
    let caller = Connection::new(ours, Ends::new(Role::Caller, "a worker")).expect("ours");
    let worker = Connection::new(theirs, Ends::new(Role::Server, "the server")).expect("theirs");
    let pidfd: OwnedFd = pidfd_open(process, PidfdFlags::empty()).expect("it lives");
    let ready = StartedWorker {
        connection: Arc::new(caller),
        pid: process.as_raw_nonzero().get(),
        pidfd,
        generation: 0,
        is_measured: true,
    };
    dispatcher.worker_ready(slot, ready).expect("told");
    worker
}

/// Answer a run with its arguments.
fn echo(worker: &Connection) {
    echo_after(worker, |_| ());
}

/// Do something of a request, then answer its run with its arguments.
fn echo_after(worker: &Connection, work: impl FnOnce(RequestId)) {
    let call = worker.next_call(deadline()).expect("open").expect("a call");
    let mut reader = Reader::new(call.head.as_slice());
    reader.array().expect("a call");
    assert_eq!(reader.text().expect("a method"), "run");
    reader.array().expect("arguments");
    reader.text().expect("a name");
    let Ok(Value::Bin(blob)) = reader.value() else {
        panic!("no blob");
    };
    work(reader.text().expect("an id").parse().expect("an id"));
    let mut reply = Writer::default();
    reply.array(2).unsigned(0).binary(blob);
    let head = reply.into_bytes();
    worker
        .reply(call.id, Codec::Msgpack, Head::Borrowed(&head), Vec::new())
        .expect("answered");
}

/// The number that a run was given and has returned.
fn returned(head: &[u8]) -> u64 {
    let mut reader = Reader::new(head);
    assert_eq!(reader.array().expect("an answer"), 4);
    assert_eq!(reader.value().expect("a kind"), Value::Int(0));
    reader.value().expect("an id");
    assert_eq!(reader.text().expect("a status"), "succeeded");
    let Ok(Value::Bin(blob)) = reader.value() else {
        panic!("no result");
    };
    let mut reader = Reader::new(blob);
    assert_eq!(reader.map_or_nil().expect("arguments"), Some(1));
    reader.text().expect("a parameter");
    match reader.value().expect("a value") {
        Value::Int(number) => number.unsigned_abs(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_that_waited_for_room_in_the_journal_gets_its_arguments_from_the_disk() {
    const RUNS: u64 = 200;
    let directory = Directory::new("noted");
    let dispatcher = dispatcher(&directory.0, |store| {
        (store.queue_bytes_max, store.journal_entries) = (0, 16);
    });
    let client = Client::new(&directory.0);
    let calls: Vec<u64> = (0..RUNS).map(|n| client.submit("run", n)).collect();
    let worker = worker(&dispatcher);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..RUNS).for_each(|_| echo(&worker)));
        for (number, call) in (0..).zip(calls) {
            assert_eq!(returned(&client.answer(call)), number);
        }
    });
    dispatcher.close(); // before its worker goes, which is this process
}

/// Hand over what is sent until the dispatcher takes nothing more: how many requests it has then.
fn taken(client: &Client, dispatcher: &Dispatcher) -> usize {
    let (mut seen, mut looks) = ((usize::MAX, usize::MAX), 0);
    while looks < 100 {
        client.0.flush().expect("open");
        let unfinished = dispatcher.figures().expect("open").unfinished;
        let now = (client.0.outbox_bytes(), unfinished);
        looks = if now == seen { looks + 1 } else { 0 };
        seen = now;
    }
    seen.1
}

#[test]
fn a_store_that_is_slow_holds_up_who_submits_and_not_the_memory() {
    const EACH: usize = 60_000;
    const MANY: usize = 3_000;
    let directory = Directory::new("slow");
    let dispatcher = dispatcher(&directory.0, |store| {
        (store.queue_bytes_max, store.locked_ms_max) = (0, 600_000);
    });
    let path = directory.0.join("state").join("requests.db");
    let writer = rusqlite::Connection::open(path).expect("opens");
    writer.execute_batch("BEGIN IMMEDIATE").expect("locked");
    let client = Client::new(&directory.0);
    let calls: Vec<u64> = (0..MANY).map(|_| client.submit_bytes(EACH)).collect();
    let taken = taken(&client, &dispatcher);
    assert!(taken * EACH > 64 << 20, "as much as may be: {taken}");
    assert!(taken * EACH < 80 << 20, "and not all: {taken}");
    writer.execute_batch("COMMIT").expect("let go");
    for call in calls {
        let head = client.answer(call);
        let mut reader = Reader::new(&head);
        assert_eq!(reader.array().expect("an answer"), 2);
        assert_eq!(reader.value().expect("a kind"), Value::Int(0));
    }
}

/// The side socket of a worker that has said who it is, and the write end of its output.
fn side(directory: &Path, slot: u32, nonce: u64) -> (OwnedFd, OwnedFd) {
    let side = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    let path = SocketAddrUnix::new(directory.join("side")).expect("an address");
    connect(&side, &path).expect("connected");
    let (reading, writing) = pipe().expect("a pipe");
    let hello = [&[0][..], &slot.to_le_bytes(), &nonce.to_le_bytes()].concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [reading.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let hello = [IoSlice::new(&hello)];
    sendmsg(&side, &hello, &mut control, SendFlags::empty()).expect("said");
    (side, writing)
}

#[test]
fn all_that_a_request_says_before_its_reply_is_in_its_log() {
    const LINES: usize = 200;
    let directory = Directory::new("lines");
    let dispatcher = dispatcher(&directory.0, |_| ());
    let client = Client::new(&directory.0);
    let first = client.submit("run", 0);
    let (slot, nonce) = wanted(&dispatcher);
    let (side, _output) = side(&directory.0, slot, nonce);
    let worker = hire(&dispatcher, slot);
    for (number, call) in std::iter::once(first)
        .chain((1..10).map(|number| client.submit("run", number)))
        .enumerate()
    {
        let mut asked = RequestId(0);
        echo_after(&worker, |id| {
            asked = id;
            for line in 0..LINES {
                let text = format!("line {line}\n");
                let head = [&[1][..], &id.0.to_le_bytes(), &1_u32.to_le_bytes()].concat();
                let record = [&head[..], text.as_bytes()].concat();
                send(&side, &record, SendFlags::empty()).expect("said");
            }
        });
        assert_eq!(returned(&client.answer(call)), number as u64);
        let log = directory.0.join("state/logs").join(format!("{asked}.log"));
        let log = std::fs::read_to_string(log).expect("a log");
        assert_eq!(log.lines().count(), LINES, "of request {number}");
    }
    dispatcher.close();
}

/// The id of a request that was submitted and is on disk.
fn accepted(client: &Client, number: u64) -> RequestId {
    let head = client.answer(client.submit("submit", number));
    let mut reader = Reader::new(&head);
    assert_eq!(reader.array().expect("an answer"), 2);
    assert_eq!(reader.value().expect("a kind"), Value::Int(0));
    reader.text().expect("an id").parse().expect("an id")
}

/// A call about one request, which is not waited for.
fn about(client: &Client, method: &str, id: RequestId, whole: Option<bool>) -> u64 {
    let mut arguments = Writer::default();
    arguments.array(1 + usize::from(whole.is_some()));
    arguments.unsigned(id.0);
    if let Some(whole) = whole {
        arguments.boolean(whole);
    }
    let call = client.call(method, &arguments.into_bytes());
    client.0.flush().expect("open");
    call
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = deadline();
    while !is_so() {
        assert!(Some(Instant::now()) < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// Have the store's reading thread wait until what this gives is dropped: it reads a result that nobody writes.
fn hold_up_reads(directory: &Path, client: &Client, id: RequestId) -> (OwnedFd, u64) {
    let result = directory.join("state/results").join(id.to_string());
    std::fs::remove_file(&result).expect("a result in its file");
    mknodat(CWD, &result, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
    let call = about(client, "wait", id, Some(true));
    let deadline = deadline();
    loop {
        match open(&result, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()) {
            Ok(pipe) => return (pipe, call),
            Err(Errno::NXIO) => assert!(Some(Instant::now()) < deadline, "nobody reads it"),
            Err(errno) => panic!("{errno}"),
        }
        std::thread::yield_now();
    }
}

/// The first worker has died before it heard of a run that it was handed; the run goes to another one in its place, as
/// the same attempt, while its arguments are still being read for the first.
#[test]
fn a_run_whose_arguments_are_read_for_two_dispatches_begins_once() {
    let directory = Directory::new("twice");
    let dispatcher = dispatcher_of(AHEAD_MANIFEST, &directory.0, |store| {
        (store.queue_bytes_max, store.result_bytes_max) = (0, 1);
    });
    let client = Client::new(&directory.0);
    let ended = accepted(&client, 1);
    let mut child = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .expect("a process");
    let (slot, _) = wanted(&dispatcher);
    let mortal = hire_as(Pid::from_child(&child), &dispatcher, slot);
    echo(&mortal);
    client.answer(about(&client, "wait", ended, None));
    let running = accepted(&client, 2);
    assert!(mortal.next_call(deadline()).expect("open").is_some());
    let (reads, held) = hold_up_reads(&directory.0, &client, ended);
    let handed = accepted(&client, 3);
    let runs = |expected: &[RequestId]| {
        let workers = dispatcher.workers().expect("open");
        workers.iter().any(|worker| worker.running == expected)
    };
    until("it is handed", || runs(&[running, handed]));

    child.kill().expect("killed");
    match dispatcher.orders(Some(PATIENCE)).expect("polled") {
        Waited::Items(orders) => assert_eq!(orders, [Order::Died { slot }]),
        other => panic!("{other:?}"),
    }
    child.wait().expect("reaped");
    let death = Death {
        pid: Pid::from_child(&child).as_raw_nonzero().get(),
        signal: Some(9),
        ..Death::of("signal")
    };
    dispatcher.worker_died(slot, death).expect("told");
    assert_eq!(wanted(&dispatcher).0, slot);
    let worker = hire(&dispatcher, slot);
    until("it is dispatched again", || runs(&[handed]));
    drop(reads);
    client.answer(held);
    let last = accepted(&client, 4);
    let mut begun = Vec::new();
    for _ in 0..2 {
        echo_after(&worker, |id| begun.push(id));
    }
    assert_eq!(begun, [handed, last]);
    client.answer(about(&client, "wait", last, None));
    dispatcher.close(); // before its worker goes, which is this process
}

#[test]
fn a_retry_is_told_when_it_is_on_disk_or_that_it_is_not() {
    let directory = Directory::new("retry");
    let dispatcher = dispatcher(&directory.0, |_| ());
    let client = Client::new(&directory.0);
    let ids: Vec<_> = (0..3).map(|number| accepted(&client, number)).collect();
    for id in &ids {
        client.answer(about(&client, "cancel", *id, None));
    }
    let retried = |id: RequestId| {
        let mut done = dispatcher.retry(&[id], &"".into()).expect("open");
        done.pop().expect("an answer")
    };
    assert_eq!(retried(ids[0]), Ok(()));
    let state = directory.0.join("state");
    let reader = DatabaseReader::open(&state).expect("opens");
    let queued = Filter {
        statuses: vec![Status::Queued],
        ..Filter::default()
    };
    let queued = reader.page(&queued, None, 9).expect("a page").requests;
    let queued: Vec<_> = queued.iter().map(|one| one.id).collect();
    assert_eq!(queued, ids[..1]);
    assert!(
        retried(ids[0])
            .expect_err("it waits")
            .to_string()
            .contains("not ended")
    );

    std::fs::rename(state.join("requests.db"), state.join("moved.db")).expect("moved");
    for id in &ids[1..] {
        let refused = retried(*id).expect_err("it is not on disk").to_string();
        assert!(refused.contains("cannot be written"), "{refused}");
        assert!(refused.contains("was removed"), "{refused}");
    }
    dispatcher.close();
}

/// The id in an answer that has nothing else.
fn id_in(head: &[u8]) -> RequestId {
    let mut reader = Reader::new(head);
    assert_eq!(reader.array().expect("an answer"), 2);
    assert_eq!(reader.value().expect("a kind"), Value::Int(0));
    reader.text().expect("an id").parse().expect("an id")
}

/// A dispatcher that begins nothing, because another one is to have its store.
fn paused(directory: &Path) -> Dispatcher {
    let dispatcher = dispatcher(directory, |_| ());
    dispatcher
        .pause(Some("another server".into()))
        .expect("open");
    dispatcher
}

#[test]
fn what_clients_have_sent_is_answered_before_another_server_has_the_store() {
    const EACH: u64 = 50;
    let directory = Directory::new("given");
    let dispatcher = paused(&directory.0);
    let client = Client::new(&directory.0);
    accepted(&client, 0); // one that waits in the socket's queue is the successor's
    let runs: Vec<u64> = (1..=EACH).map(|token| client.run(token)).collect();
    let submissions: Vec<u64> = (0..EACH)
        .map(|number| client.submit("submit", number))
        .collect();
    assert!(client.0.flush().expect("open"), "the socket takes them");
    let given = dispatcher.give(PATIENCE).expect("given");
    let late = Client::new(&directory.0); // it waits in the queue of the socket, which nobody closed
    let call = late.submit("submit", 7);
    late.0.flush().expect("open");

    let ids: Vec<_> = runs
        .iter()
        .chain(&submissions)
        .map(|call| id_in(&client.answer(*call)))
        .collect();
    let successor = successor(&directory.0, given);
    let found = DatabaseReader::open(&directory.0.join("state")).expect("a store");
    for id in &ids {
        assert_eq!(found.status(*id).expect("read"), Some(Status::Queued));
    }
    assert!(id_in(&late.answer(call)) > ids[0]);
    assert_eq!(
        successor.figures().expect("open").unfinished as u64,
        2 * EACH + 2
    );
    drop(dispatcher);
    assert!(
        directory.0.join("s").exists(),
        "the file is the successor's"
    );
    let again = Client::new(&directory.0);
    accepted(&again, 8);
}

#[test]
fn what_a_client_sends_once_its_server_has_given_the_store_is_known_not_to_be_read() {
    let directory = Directory::new("unread");
    let dispatcher = paused(&directory.0);
    let client = Client::new(&directory.0);
    accepted(&client, 1);
    let given = dispatcher.give(PATIENCE).expect("given");
    let call = client.submit("submit", 2);
    let outcome = client.0.wait(call, deadline()).expect("an outcome");
    let is_unread = matches!(outcome, Outcome::Broken { sent: false, .. });
    assert!(is_unread, "{outcome:?}");
    drop(given);
}

#[test]
fn a_client_that_reads_nothing_is_waited_for_in_vain_and_no_longer() {
    let directory = Directory::new("unheard");
    let dispatcher = paused(&directory.0);
    let client = Client::new(&directory.0);
    let id = accepted(&client, 1);
    // Questions whose answers fill the socket, which nobody reads.
    for _ in 0..20_000 {
        about(&client, "cancel", id, None);
    }
    let began = Instant::now();
    dispatcher.give(Duration::from_secs(2)).expect("given");
    assert!(began.elapsed() < PATIENCE);
}
