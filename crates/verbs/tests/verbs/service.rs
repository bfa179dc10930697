//! Servers and links of the stream that pull over verbs.
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use forebay_memory::{Config, Lease, Region};
use forebay_tensor::stream::{
    Batch, Deadline, Entrance, Fabric, Link, OperationState, Options, Server, Settings, Submission,
    Until, Work,
};
use forebay_tensor::{
    Description, Dtype, Hello, Key, Limits, Number, Operation, Pull, Rows, Welcome,
};
use forebay_transport::link::Admission;
use forebay_transport::messages::{MessageOptions as Meeting, Messages};
use forebay_transport::serve::Listening;
use forebay_transport::stream::Wire;
use forebay_transport::stream::unix::Listener;
use forebay_verbs::{Device, Offer};

use crate::support::{PATIENCE, patience, pattern};
use crate::sys::{fill, part, span};

const ROWS: u64 = 1024;
/// Of the tensors of most tests.
const ROW_BYTES: u64 = 256;
const BYTES: usize = 1 << 18;
/// More than the device has on its way at once, so that it reads some of it late.
const LONG_ROW_BYTES: u64 = 2048;
const LONG_BYTES: usize = 1 << 21;

type Kept = Vec<Lease>;

/// A server with one tensor, and a client's memory.
struct World {
    server: Server<Lease>,
    path: PathBuf,
    tensors: Region,
    arena: Region,
    key: Key,
    row_bytes: u64,
    memory: Lease,
}

fn region(name: &str) -> Region {
    let config = Config::new(name, 32 << 20).chunk_bytes(4 << 20);
    let region = Region::new(config).expect("a region");
    device().attach(&region).expect("attached");
    region
}

fn device() -> Arc<Device> {
    Device::get().expect("a device, as in the guest of make test-verbs")
}

fn bytes_of(rows: u64, row_bytes: u64) -> Description {
    Description {
        dtype: Dtype {
            number: Number::Unsigned,
            item_bytes: 1,
            text: "|u1".to_owned(),
        },
        shape: vec![rows, row_bytes],
    }
}

impl World {
    fn new() -> Self {
        Self::with(ROW_BYTES)
    }

    fn with(row_bytes: u64) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let bytes = usize::try_from(ROWS * row_bytes).expect("small");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-service-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let entrance = Entrance {
            listening: Listening::Unix(Listener::bind(&path).expect("bound")),
            tls: None,
            admission: Admission::Anybody,
        };
        let options = Options {
            fabric: Some(device()),
            ..Options::default()
        };
        let server = Server::start(vec![entrance], options).expect("started");
        server.open();
        let (tensors, arena) = (region("tensors"), region("arena"));
        let memory = tensors.allocate(bytes).expect("room");
        fill(&memory, &pattern(0..bytes, 0));
        let (lent, keeper) = ((span(&memory), Some(&memory)), memory.clone());
        let key = server.publish("near".to_owned(), bytes_of(ROWS, row_bytes), lent, keeper);
        Self {
            key: key.expect("runs").expect("published"),
            server,
            path,
            tensors,
            arena,
            row_bytes,
            memory,
        }
    }

    fn link(&self) -> (Arc<Link<Kept>>, Wire) {
        link(&self.path)
    }

    fn pull(&self, first: u64, count: u64) -> (Lease, Submission) {
        let bytes = usize::try_from(count * self.row_bytes).expect("small");
        let block = self.arena.allocate(bytes).expect("room");
        fill(&block, &vec![255; bytes]);
        (block.clone(), self.pull_into(&block, first, count))
    }

    fn pull_into(&self, block: &Lease, first: u64, count: u64) -> Submission {
        let pull = Pull {
            tensor: self.key,
            row_bytes: self.row_bytes,
            rows_total: ROWS,
            rows: Rows::Slice { first, count },
            out: span(block),
            places: None,
        };
        Submission {
            work: Work::Pull(pull),
            block: Some(block.clone()),
        }
    }
}

fn greet(path: &Path, hello: Vec<u8>) -> (Wire, Welcome) {
    let options = Meeting {
        limits: forebay_transport::limit::Limits::of_messages(),
        peer: "the server".to_owned(),
        admission: Admission::Anybody,
        token: None,
        trusted: true,
        allocator: None,
    };
    let socket = UnixStream::connect(path).expect("it listens");
    let messages = Messages::new(OwnedFd::from(socket), options);
    messages.send(&mut vec![hello]).expect("sent");
    let answer = messages.recv(Some(patience())).expect("answered");
    let welcome = Welcome::decode(answer[0].as_slice()).expect("let in");
    (messages.take_stream().expect("between"), welcome)
}

/// A link that pulls over verbs, and a further handle of its lifeline.
fn link(path: &Path) -> (Arc<Link<Kept>>, Wire) {
    let hello = Hello {
        slots: 16,
        fabrics: Hello::VERBS,
    };
    let (wire, welcome) = greet(path, hello.encode());
    assert_eq!(welcome.verbs, [1]);
    let limits = Limits {
        slots: welcome.slots,
        grant_bytes: welcome.grant_bytes,
        ..Limits::default()
    };
    let peer = "the server".to_owned();
    let link = Link::new(wire, Settings { peer, limits }).expect("linked");
    let offer = Offer::new(&device(), 16).expect("a queue pair");
    let (lifeline, answer) = greet(path, Hello::of_lifeline(16, &offer.introduction()));
    assert_eq!(answer.incarnation, welcome.incarnation);
    let held = Wire::Socket(Arc::clone(lifeline.socket()));
    let puller = offer.connect(&answer.verbs).expect("connected");
    let fabric = Fabric {
        endpoint: puller.into_endpoint(),
        lifeline,
        liveness: PATIENCE,
        is_needed: false,
    };
    link.attach_fabric(fabric).expect("attached");
    (link, held)
}

fn run(link: &Arc<Link<Kept>>, kept: Kept, wanted: Vec<Submission>) -> Arc<Batch<Kept>> {
    let batch = Batch::new(kept, wanted.len());
    link.begin(&batch, wanted, None).expect("begun");
    link.wait(&batch, Until::All, Deadline::after(PATIENCE))
        .expect("in time");
    batch
}

fn assert_well(batch: &Batch<Kept>) {
    if let Some((index, error)) = batch.first_failure() {
        panic!("operation {index}: {error}");
    }
}

fn pulled(link: &Link<Kept>) -> u64 {
    link.verbs_counters()
        .expect("attached")
        .expect("connected")
        .pulls
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn pulls_of_a_link_go_over_verbs_into_many_blocks_and_leave_none_behind() {
    let world = World::new();
    let (link, _lifeline) = world.link();
    let sent = link.counters().sent_bytes;
    for round in 0..4_u64 {
        let (kept, wanted): (Vec<_>, Vec<_>) =
            (0..50).map(|at| world.pull(at * 7 + round, 9)).unzip();
        let batch = run(&link, kept.clone(), wanted);
        assert_well(&batch);
        for (block, at) in kept.iter().zip(0..) {
            let from = usize::try_from((at * 7 + round) * ROW_BYTES).expect("small");
            assert!(part(block, 0..block.len()) == pattern(from..from + block.len(), 0));
        }
    }
    assert_eq!(pulled(&link), 200);
    assert_eq!(
        link.counters().sent_bytes,
        sent,
        "something went by the stream"
    );
    assert_eq!(world.server.counters().fabric_peers, 1);
    let held = world.arena.stats().expect("owner").blocks;
    assert!(held <= 16, "slots keep {held} blocks");
    link.release_blocks();
    assert_eq!(world.arena.stats().expect("owner").blocks, 0);
    link.close();
    let end = patience();
    while world.server.counters().fabric_peers > 0 {
        assert!(Instant::now() < end, "the server keeps the connection");
        std::thread::yield_now();
    }
    world.server.close();
    drop(world.memory);
    assert_eq!(world.tensors.stats().expect("owner").blocks, 0);
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn what_verbs_cannot_do_goes_by_the_stream() {
    let world = World::new();
    let (link, _lifeline) = world.link();
    // Rows that there are not, which is told by the stream in its words.
    let (block, outside) = world.pull(ROWS, 1);
    let batch = run(&link, vec![block], vec![outside]);
    let (_, why) = batch.first_failure().expect("refused");
    assert!(why.to_string().contains("row 1024"), "{why}");
    // A tensor that lies in no block.
    let aside = Region::new(Config::new("aside", 1 << 20)).expect("a region");
    let elsewhere = aside.allocate(256).expect("room");
    fill(&elsewhere, &[7; 256]);
    let lent = ((span(&elsewhere), None), elsewhere.clone());
    let key = world
        .server
        .publish("aside".to_owned(), bytes_of(1, 256), lent.0, lent.1);
    let key = key.expect("runs").expect("published");
    let out = world.arena.allocate(256).expect("room");
    let mut wanted = world.pull_into(&out, 0, 1);
    if let Work::Pull(pull) = &mut wanted.work {
        pull.tensor = key;
        pull.rows_total = 1;
    }
    for _ in 0..2 {
        let batch = run(&link, vec![out.clone()], vec![wanted.clone()]);
        assert_well(&batch);
        assert_eq!(part(&out, 0..256), [7; 256]);
    }
    // A tensor that was dropped.
    let drop_it = world.server.run(|shard| shard.drop_tensor("near"));
    drop_it.expect("runs").expect("there");
    let (block, stale) = world.pull(0, 1);
    let batch = run(&link, vec![block], vec![stale]);
    let (_, why) = batch.first_failure().expect("refused");
    assert!(why.to_string().contains("generation"), "{why}");
    let counted = link.verbs_counters().expect("attached").expect("connected");
    // Tensors that the device does not reach are asked for once.
    assert_eq!((counted.pulls, counted.refused), (0, 3));
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn a_pull_is_of_one_version_while_the_tensor_is_written() {
    let world = World::with(LONG_ROW_BYTES);
    let over = AtomicBool::new(false);
    fill(&world.memory, &vec![0; LONG_BYTES]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let all = Rows::Slice {
                first: 0,
                count: ROWS,
            };
            let values = world.tensors.allocate(LONG_BYTES).expect("room");
            let mut value = 0_u8;
            while !over.load(Ordering::Relaxed) {
                value = value.wrapping_add(1);
                fill(&values, &vec![value; LONG_BYTES]);
                let (lent, key) = (span(&values), world.key);
                let written = world
                    .server
                    .run(move |shard| shard.write(key, all, Operation::Set, lent));
                written.expect("runs").expect("written");
            }
        });
        let (link, _lifeline) = world.link();
        let blocks: Vec<_> = (0..4)
            .map(|_| world.arena.allocate(LONG_BYTES).expect("room"))
            .collect();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..10 {
            let wanted = blocks.iter().map(|block| world.pull_into(block, 0, ROWS));
            let batch = run(&link, blocks.clone(), wanted.collect());
            assert_well(&batch);
            for block in &blocks {
                let got = part(block, 0..LONG_BYTES);
                assert!(got == vec![got[0]; LONG_BYTES], "two versions");
                seen.insert(got[0]);
            }
        }
        over.store(true, Ordering::Relaxed);
        assert_eq!(pulled(&link), 40);
        assert!(seen.len() > 1, "nothing was written meanwhile");
    });
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn the_stream_takes_over_where_verbs_are_lost() {
    let world = World::new();
    let (link, mut lifeline) = world.link();
    let (block, wanted) = world.pull(0, ROWS);
    let batch = run(&link, vec![block.clone()], vec![wanted.clone()]);
    assert_well(&batch);
    lifeline.hang_up();
    let end = patience();
    while !matches!(link.verbs_counters(), Some(Err(_))) {
        assert!(Instant::now() < end, "the end was not seen");
        fill(&block, &vec![255; BYTES]);
        let batch = run(&link, vec![block.clone()], vec![wanted.clone()]);
        assert_well(&batch);
        assert!(part(&block, 0..BYTES) == pattern(0..BYTES, 0));
    }
    assert!(link.is_open());
    let batch = run(&link, vec![block], vec![wanted]);
    assert_well(&batch);
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn a_batch_that_is_given_up_keeps_its_memory_until_its_rows_have_come() {
    let world = World::new();
    let (link, _lifeline) = world.link();
    let (block, wanted) = world.pull(0, ROWS);
    let batch = Batch::new(vec![block], 1);
    link.begin(&batch, [wanted], Some(Duration::ZERO))
        .expect("begun");
    link.wait(&batch, Until::All, Deadline::after(PATIENCE))
        .expect("in time");
    assert!(matches!(
        batch.state_of(0),
        OperationState::Failed(_) | OperationState::Done(_)
    ));
    drop(batch);
    let (other, again) = world.pull(0, 1);
    assert_well(&run(&link, vec![other], vec![again])); // behind it, so that has landed
    link.release_blocks();
    let stats = world.arena.stats().expect("owner");
    assert_eq!((stats.blocks, stats.quarantined_blocks), (0, 0));
}
