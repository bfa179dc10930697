//! Links that read their owner's memory, and what they do when the owner is gone.
use std::io::{BufRead, BufReader, Read, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_memory::{Backing, Config, Lease, Region};
use forebay_tensor::shm::Reader;
use forebay_tensor::stream::{Entrance, OperationState, Options, Port, Server};
use forebay_tensor::{Class, Description, Hello, Key, Number, Rows};
use forebay_transport::link::Admission;
use forebay_transport::serve::Listening;
use forebay_transport::stream::unix::Listener;

use super::connect::{
    Address, Handle, TestLink, assert_well, begin, failure, finish, fresh_path, greet_with,
    link_over, numbers, run,
};
use super::sys::{Memory, of_lease};

const ROWS: u64 = 16;
const ROW_BYTES: u64 = 256;
/// Tells a process of this program that it is to be an owner, and where.
const OWNER: &str = "FOREBAY_TEST_OWNER";

/// A server whose one tensor lies in an arena, all of it the byte 7.
fn owner(path: &Path) -> (Server<Lease>, Key) {
    let entrance = Entrance {
        listening: Listening::Unix(Listener::bind(path).expect("bound")),
        tls: None,
        admission: Admission::Anybody,
    };
    let server = Server::start(vec![entrance], Options::default()).expect("started");
    server.open();
    let config = Config::new("tensors", 1 << 20).backing(Backing::Pages);
    let region = Region::new(config).expect("a region");
    let bytes = usize::try_from(ROWS * ROW_BYTES).expect("fits");
    let mut lease = region.allocate(bytes).expect("room");
    lease.bytes_mut().expect("sole").fill(7);
    let description = Description {
        dtype: numbers(Number::Unsigned, 1),
        shape: vec![ROWS, ROW_BYTES],
    };
    let (span, block) = (of_lease(&lease), lease.clone());
    let published = server.publish("near".to_owned(), description, (span, Some(&block)), lease);
    (server, published.expect("runs").expect("published"))
}

fn shm_link(path: &Path) -> TestLink {
    let hello = Hello {
        slots: 16,
        fabrics: Hello::SHARED_MEMORY,
    };
    let (wire, welcome) = greet_with(&Address::Unix(path.to_path_buf()), hello).expect("welcome");
    let index = welcome.shared_index.expect("shared memory");
    let link = link_over(wire, &welcome, |_| {});
    link.attach_reader(Reader::open(index, welcome.incarnation).expect("mapped"));
    link
}

fn handle(key: Key) -> Handle {
    Handle {
        key,
        rows: ROWS,
        row_bytes: ROW_BYTES,
        memory: Memory::zeros(0),
    }
}

fn pulled(link: &TestLink) -> u64 {
    link.shm_counters().map_or(0, |counted| counted.pulls)
}

#[test]
fn batches_are_over_as_soon_as_they_have_begun() {
    let path = fresh_path();
    let (server, key) = owner(&path);
    let link = shm_link(&path);
    let handle = handle(key);
    let (out, work) = handle.slice(3, 5);
    let batch = begin(&link, vec![Arc::clone(&out)], vec![work]);
    assert_well(&batch);
    assert!(out.content().iter().all(|&byte| byte == 7));

    let port = Port::new().expect("port");
    let (out, work) = handle.slice(0, ROWS);
    let lent = (vec![Arc::clone(&out)], 1);
    let batch = link.start((&port, 9, true), lent, [work], (None, None));
    assert_well(&batch.expect("begun"));
    let mut tickets = Vec::new();
    port.wait(&mut tickets).expect("told");
    assert_eq!(tickets, [9]);
    assert_eq!((pulled(&link), link.counters().sent_bytes), (2, 0));
    server.close();
}

#[test]
fn what_memory_has_no_answer_for_goes_by_the_stream() {
    let path = fresh_path();
    let (_server, key) = owner(&path);
    let link = shm_link(&path);
    let handle = handle(key);
    let (near, good) = handle.slice(0, 1);
    let (far, _) = handle.slice(0, 1);
    let outside = handle.pull(
        Rows::Slice {
            first: ROWS,
            count: 1,
        },
        &far,
    );
    let batch = run(&link, vec![near, far], vec![good, outside]);
    assert!(matches!(batch.state_of(0), OperationState::Done(0)));
    assert!(failure(&batch, 1).to_string().contains("row 16"));
}

#[test]
fn an_owner_that_closes_is_not_read_any_more() {
    let path = fresh_path();
    let (server, key) = owner(&path);
    let link = shm_link(&path);
    let (out, work) = handle(key).slice(0, 1);
    assert!(!link.read(&[work], |_, _| {}), "nothing is mapped yet");
    assert_well(&begin(&link, vec![Arc::clone(&out)], vec![work]));
    assert!(link.read(&[work], |_, version| assert_eq!(version, 0)));
    server.close();
    assert!(!link.read(&[work], |_, _| {}));
    assert_broken(&link, &out, key);
}

fn assert_broken(link: &TestLink, out: &Arc<Memory>, key: Key) {
    let (_, work) = handle(key).slice(0, 1);
    let batch = begin(link, vec![Arc::clone(out)], vec![work]);
    finish(link, &batch);
    match failure(&batch, 0) {
        forebay_tensor::stream::StreamError::Tensor { error, .. } => {
            assert_eq!(error.class(), Class::Broken);
        }
        other => panic!("{other}"),
    }
}

/// Not a test but what `an_owner_that_is_killed` starts: serves until it is killed, or its parent has gone.
#[test]
fn an_owner_in_a_process_of_its_own() {
    let Some(path) = std::env::var_os(OWNER) else {
        return;
    };
    let (_server, key) = owner(&PathBuf::from(path));
    writeln!(stdout(), "serving {} {}", key.id, key.generation).expect("a pipe");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).expect("a pipe");
}

fn start_owner(path: &Path) -> (Child, Key) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "shm::an_owner_in_a_process_of_its_own",
            "--exact",
            "--nocapture",
        ])
        .env(OWNER, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let said = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("serving ").map(|(_, said)| said.to_owned()));
    let said = said.expect("it serves");
    let (id, generation) = said.split_once(' ').expect("two numbers");
    let number = |text: &str| text.trim().parse().expect("a number");
    let key = Key {
        id: number(id),
        generation: number(generation),
    };
    (child, key)
}

#[test]
fn an_owner_that_is_killed_is_found_out() {
    let path = fresh_path();
    let (mut child, key) = start_owner(&path);
    let link = shm_link(&path);
    let (out, work) = handle(key).slice(0, ROWS);
    assert_well(&begin(&link, vec![Arc::clone(&out)], vec![work]));
    assert!(link.read(&[work], |_, _| {}));
    assert!(out.content().iter().all(|&byte| byte == 7));
    child.kill().expect("it runs");
    child.wait().expect("it was ours");
    let end = Instant::now() + Duration::from_secs(30);
    while link.read(&[work], |_, _| {}) {
        assert!(Instant::now() < end, "a dead owner is read");
        std::thread::yield_now();
    }
    assert!(!link.probe());
    assert_broken(&link, &out, key);
}
