//! What servers and links do with a fabric beside the stream: here one whose device is a copy within the process.
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use forebay_memory::{Config, Lease, Region};
use forebay_tensor::fabric::{
    Completion, FabricPull, Provider, RequesterEndpoint, ResponderEndpoint, Source,
};
use forebay_tensor::stream::{self, Batch, Entrance, Fabric, Options, Server, Submission, Work};
use forebay_tensor::{
    Class, Description, Error, Hello, Key, Number, Operation, Pull, Rows, Welcome,
};
use forebay_transport::link::Admission;
use forebay_transport::stream::Wire;
use rustix::event::{EventfdFlags, eventfd};

use super::connect::{
    Address, Kept, TestLink, assert_well, dial, failure, finish, greet_with, link_over, messages,
    numbers, places, server, soon,
};
use super::sys::{content_of, copy, of_lease};

const ROWS: u64 = 64;
const ROW_BYTES: u64 = 32;
const SLOTS: usize = 4;

/// What both ends of a connection share.
struct Connection {
    state: Mutex<State>,
    /// Readable once there are requests.
    asked: OwnedFd,
    /// Readable once there are completions.
    answered: OwnedFd,
}

#[derive(Default)]
struct State {
    requests: VecDeque<FabricPull>,
    /// Pulls whose rows the device still reads, and where they lie.
    sending: Vec<(FabricPull, Lease, usize)>,
    completions: Vec<Completion>,
    taken: usize,
    /// Whether answers stay on their way until they are settled.
    is_slow: bool,
    /// Whether they stay there even then.
    is_stuck: bool,
    is_over: bool,
}

impl State {
    /// Answer one request, or have its answer be on its way.
    fn answer(&mut self, pull: FabricPull, source: &dyn Source) {
        match source.rows(pull.tensor, pull.first, pull.rows) {
            Ok(Some(range)) => {
                let block = range.block.clone();
                self.sending.push((pull, block, range.offset));
            }
            Ok(None) => self.complete(pull.token, Err(Error::NotInBlock)),
            Err(error) => self.complete(pull.token, Err(error)),
        }
    }

    /// Have the device read the rows of all answers.
    fn send(&mut self) {
        for (pull, block, at) in std::mem::take(&mut self.sending) {
            copy((&block, at), (&pull.into, pull.at), pull.bytes);
            self.complete(pull.token, Ok(()));
        }
    }

    fn complete(&mut self, token: u64, result: Result<(), Error>) {
        self.completions.push(Completion { token, result });
    }
}

impl Connection {
    fn new() -> Arc<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Arc::new(Self {
            state: Mutex::default(),
            asked: eventfd(0, flags).expect("a descriptor"),
            answered: eventfd(0, flags).expect("a descriptor"),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }
}

fn notify(event: &OwnedFd) {
    rustix::io::write(event, &1u64.to_ne_bytes()).expect("room");
}

fn clear(event: &OwnedFd) {
    _ = rustix::io::read(event, &mut [0u8; 8]); // nothing may be there to read
}

/// The fabric of a server: connections by the numbers that introduce them.
#[derive(Default)]
struct CopyFabric(Mutex<HashMap<u64, Arc<Connection>>>);

impl fmt::Debug for CopyFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CopyFabric")
    }
}

impl CopyFabric {
    /// A connection that a server is to meet, and what introduces it.
    fn offer(&self) -> (Arc<Connection>, [u8; 8]) {
        let mut connections = self.0.lock().expect("no panic");
        let (connection, number) = (Connection::new(), connections.len() as u64);
        connections.insert(number, Arc::clone(&connection));
        (connection, number.to_le_bytes())
    }
}

impl Provider for CopyFabric {
    fn check(&self, _: &Lease) -> Result<(), Error> {
        Ok(())
    }

    fn accept(
        &self,
        introduction: &[u8],
        _: u32,
    ) -> Result<(Box<dyn ResponderEndpoint>, Vec<u8>), Error> {
        let number = introduction.try_into().map(u64::from_le_bytes).ok();
        let connections = self.0.lock().expect("no panic");
        match number.and_then(|number| connections.get(&number)) {
            Some(connection) => Ok((Box::new(Responder(Arc::clone(connection))), vec![7])),
            None => Err(Error::Protocol {
                what: "an unknown introduction".to_owned(),
                offset: 0,
            }),
        }
    }
}

struct Responder(Arc<Connection>);

impl AsFd for Responder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.asked.as_fd()
    }
}

impl ResponderEndpoint for Responder {
    fn turn(&mut self, source: &dyn Source) -> Result<usize, Error> {
        clear(&self.0.asked);
        let mut state = self.0.state();
        if state.is_over {
            let why = "it was fenced".to_owned();
            return Err(Error::Broken { why });
        }
        let requests = std::mem::take(&mut state.requests);
        let answered = requests.len();
        for pull in requests {
            state.answer(pull, source);
        }
        if !state.is_slow {
            state.send();
        }
        notify(&self.0.answered);
        Ok(answered)
    }

    fn is_sending(&self, start: usize, bytes: usize) -> bool {
        let state = self.0.state();
        state.sending.iter().any(|(pull, block, at)| {
            let first = block.as_ptr().as_ptr() as usize + at;
            !state.is_over && first < start.saturating_add(bytes) && start < first + pull.bytes
        })
    }

    fn settle(&mut self, _: usize, _: usize, deadline: Instant) -> Result<(), Error> {
        let mut state = self.0.state();
        if state.is_stuck {
            let late = Instant::now().saturating_duration_since(deadline);
            return Err(Error::Timeout { late });
        }
        state.send();
        notify(&self.0.answered);
        Ok(())
    }

    fn fence(&mut self, _: Error) {
        self.0.state().is_over = true;
    }

    fn is_due(&self) -> bool {
        self.0.state().is_over
    }
}

struct Requester(Arc<Connection>);

impl AsFd for Requester {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.answered.as_fd()
    }
}

impl RequesterEndpoint for Requester {
    fn reaches(&self, block: &Lease, bytes: usize) -> bool {
        bytes <= block.len()
    }

    fn has_free_slot(&self) -> bool {
        self.0.state().taken < SLOTS
    }

    fn pull(&mut self, pull: FabricPull) -> Result<(), Error> {
        let mut state = self.0.state();
        assert!(state.taken < SLOTS, "a pull without a slot");
        state.taken += 1;
        state.requests.push_back(pull);
        notify(&self.0.asked);
        Ok(())
    }

    fn turn(&mut self, completions: &mut Vec<Completion>) -> Result<(), Error> {
        clear(&self.0.answered);
        let mut state = self.0.state();
        let ended = std::mem::take(&mut state.completions);
        state.taken -= ended.len();
        completions.extend(ended);
        Ok(())
    }

    fn cancel(&mut self, token: u64) {
        let state = self.0.state();
        let mut sending = state.sending.iter();
        assert!(
            sending.any(|(pull, ..)| pull.token == token),
            "an unknown pull"
        );
    }

    fn release_blocks(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn break_off(&mut self, _: Error) {
        self.0.state().is_over = true;
    }
}

/// A server with one tensor in a block, and a client's memory.
struct World {
    server: Server<Lease>,
    address: Address,
    fabric: Arc<CopyFabric>,
    region: Region,
    memory: Lease,
    key: Key,
}

impl World {
    fn new() -> Self {
        let [_, (address, listening)] = places();
        let entrance = Entrance {
            listening,
            tls: None,
            admission: Admission::Anybody,
        };
        let fabric = Arc::<CopyFabric>::default();
        let options = Options {
            fabric: Some(Arc::clone(&fabric) as Arc<dyn Provider>),
            ..Options::default()
        };
        let server = Server::start(vec![entrance], options).expect("started");
        server.open();
        let region = Region::new(Config::new("blocks", 4 << 20)).expect("a region");
        let rows: Vec<u8> = (0..ROWS * ROW_BYTES)
            .map(|at| (at * 31 + at / 251).to_le_bytes()[0])
            .collect();
        let memory = block_with(&region, &rows);
        let key = publish(&server, "near", &memory, Some(&memory));
        Self {
            server,
            address,
            fabric,
            region,
            memory,
            key,
        }
    }

    fn rows(&self, first: u64, count: u64) -> Vec<u8> {
        let at = |row: u64| usize::try_from(row * ROW_BYTES).expect("small");
        content_of(&self.memory)[at(first)..at(first + count)].to_vec()
    }

    /// A link that pulls over the fabric, and a further handle of its lifeline.
    fn link(&self, is_needed: bool) -> (TestLink, Wire) {
        let (link, held, _) = self.link_by(is_needed, |_| {});
        (link, held)
    }

    /// The same over a connection whose state is set first; and that connection.
    fn link_by(
        &self,
        is_needed: bool,
        change: impl FnOnce(&mut State),
    ) -> (TestLink, Wire, Arc<Connection>) {
        let hello = Hello {
            slots: 16,
            fabrics: Hello::VERBS,
        };
        let (wire, welcome) = greet_with(&self.address, hello).expect("let in");
        assert_eq!(welcome.verbs, [1]);
        let link = link_over(wire, &welcome, |_| {});
        let (connection, introduction) = self.fabric.offer();
        change(&mut connection.state());
        let (lifeline, answer) = introduce(&self.address, &introduction).expect("met");
        assert_eq!(answer.verbs, [7]);
        let held = Wire::Socket(Arc::clone(lifeline.socket()));
        let fabric = Fabric {
            endpoint: Box::new(Requester(Arc::clone(&connection))),
            lifeline,
            liveness: Duration::from_secs(30),
            is_needed,
        };
        link.attach_fabric(fabric).expect("attached");
        (link, held, connection)
    }

    /// Have the owner change all rows; what they were before, and what they are now.
    fn write(&self) -> [Vec<u8>; 2] {
        let before = self.rows(0, ROWS);
        let now: Vec<u8> = before.iter().map(|byte| !byte).collect();
        let values = block_with(&self.region, &now);
        let (key, lent) = (self.key, of_lease(&values));
        let all = Rows::Slice {
            first: 0,
            count: ROWS,
        };
        let written = self
            .server
            .run(move |shard| shard.write(key, all, Operation::Set, lent));
        written.expect("runs").expect("written");
        [before, now]
    }

    fn pull(&self, tensor: Key, first: u64, count: u64) -> (Lease, Submission) {
        let bytes = usize::try_from(count * ROW_BYTES).expect("small");
        let block = block_with(&self.region, &vec![255; bytes]);
        let pull = Pull {
            tensor,
            row_bytes: ROW_BYTES,
            rows_total: ROWS,
            rows: Rows::Slice { first, count },
            out: of_lease(&block),
            places: None,
        };
        let wanted = Submission {
            work: Work::Pull(pull),
            block: Some(block.clone()),
        };
        (block, wanted)
    }
}

fn introduce(address: &Address, introduction: &[u8]) -> Result<(Wire, Welcome), Error> {
    let messages = messages(dial(address));
    let hello = Hello::of_lifeline(16, introduction);
    messages.send(&mut vec![hello]).expect("sent");
    let answer = messages.recv(soon()).expect("answered");
    let welcome = Welcome::decode(answer[0].as_slice())?;
    Ok((messages.take_stream().expect("between"), welcome))
}

fn block_with(region: &Region, bytes: &[u8]) -> Lease {
    let mut block = region.allocate(bytes.len()).expect("room");
    let new = block.bytes_mut().expect("nobody else has it");
    new.copy_from_slice(bytes);
    block
}

fn publish(server: &Server<Lease>, name: &str, memory: &Lease, block: Option<&Lease>) -> Key {
    let description = Description {
        dtype: numbers(Number::Unsigned, 1),
        shape: vec![memory.len() as u64 / ROW_BYTES, ROW_BYTES],
    };
    let lent = (of_lease(memory), block);
    let published = server.publish(name.to_owned(), description, lent, memory.clone());
    published.expect("runs").expect("published")
}

fn run(link: &TestLink, wanted: Vec<Submission>) -> Arc<Batch<Kept>> {
    let batch = Batch::new(Vec::new(), wanted.len());
    link.begin(&batch, wanted, None).expect("begun");
    finish(link, &batch);
    batch
}

fn until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let end = soon();
    while !is_reached() {
        assert!(Some(Instant::now()) < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn pulls_go_over_a_fabric_as_many_at_once_as_it_has_slots() {
    let world = World::new();
    let (link, _lifeline) = world.link(false);
    let sent = link.counters().sent_bytes;
    let pulls = (0..50).map(|first| world.pull(world.key, first, 7));
    let (blocks, wanted): (Vec<_>, Vec<_>) = pulls.unzip();
    assert_well(&run(&link, wanted));
    for (first, block) in (0..).zip(&blocks) {
        assert_eq!(content_of(block), world.rows(first, 7));
    }
    let counted = link.verbs_counters().expect("attached").expect("connected");
    let bytes = 50 * 7 * ROW_BYTES;
    assert_eq!(
        (counted.pulls, counted.bytes, counted.refused),
        (50, bytes, 0)
    );
    assert_eq!(link.counters().sent_bytes, sent, "the stream sent some");
    assert_eq!(world.server.counters().fabric_peers, 1);
    until("the server counts 50 pulls", || {
        world.server.counters().fabric_pulls == 50
    });
    link.close();
    until("the server lets the connection go", || {
        world.server.counters().fabric_peers == 0
    });
}

#[test]
fn what_a_fabric_refuses_is_carried_by_the_stream() {
    let world = World::new();
    let (link, _lifeline) = world.link(false);
    let rows = vec![9; world.memory.len()];
    let aside = block_with(&world.region, &rows);
    let aside = publish(&world.server, "aside", &aside, None);
    for _ in 0..2 {
        let (block, wanted) = world.pull(aside, 3, 2);
        assert_well(&run(&link, vec![wanted]));
        assert_eq!(content_of(&block), rows[..block.len()]);
    }
    let (_block, outside) = world.pull(world.key, ROWS - 1, 2);
    let why = failure(&run(&link, vec![outside]), 0).to_string();
    assert!(why.contains("row 64"), "{why}");
    let counted = link.verbs_counters().expect("attached").expect("connected");
    // A tensor that lies where the fabric does not reach it is asked for there once.
    assert_eq!((counted.pulls, counted.refused), (0, 2));
}

#[test]
fn the_stream_takes_over_where_a_fabric_is_lost() {
    let world = World::new();
    let (link, mut lifeline) = world.link(false);
    lifeline.hang_up();
    until("the link sees that its fabric is lost", || {
        let (block, wanted) = world.pull(world.key, 5, 9);
        assert_well(&run(&link, vec![wanted]));
        assert_eq!(content_of(&block), world.rows(5, 9));
        matches!(link.verbs_counters(), Some(Err(_)))
    });
    assert!(link.is_open() && !link.has_verbs());
    let (block, wanted) = world.pull(world.key, 0, ROWS);
    assert_well(&run(&link, vec![wanted]));
    assert_eq!(content_of(&block), world.rows(0, ROWS));
    until("the server lets the connection go", || {
        world.server.counters().fabric_peers == 0
    });
}

#[test]
fn a_link_that_needs_its_fabric_ends_with_it() {
    let world = World::new();
    let (link, mut lifeline) = world.link(true);
    lifeline.hang_up();
    until("the link ends", || {
        let (_block, wanted) = world.pull(world.key, 5, 9);
        run(&link, vec![wanted]);
        !link.is_open()
    });
    let (_block, wanted) = world.pull(world.key, 5, 9);
    let why = failure(&run(&link, vec![wanted]), 0).to_string();
    assert!(why.contains("closed the verbs connection"), "{why}");
}

#[test]
fn a_write_waits_for_rows_that_a_fabric_still_sends() {
    let world = World::new();
    let (link, _lifeline, connection) = world.link_by(false, |state| state.is_slow = true);
    let (block, wanted) = world.pull(world.key, 0, ROWS);
    let batch = Batch::new(Vec::new(), 1);
    link.begin(&batch, [wanted], None).expect("begun");
    until("the rows are on their way", || {
        !connection.state().sending.is_empty()
    });
    let [before, now] = world.write();
    finish(&link, &batch);
    assert_well(&batch);
    assert_eq!(content_of(&block), before);
    connection.state().is_slow = false;
    let (block, wanted) = world.pull(world.key, 0, ROWS);
    assert_well(&run(&link, vec![wanted]));
    assert_eq!(content_of(&block), now);
}

#[test]
fn a_peer_that_holds_a_write_up_is_fenced_and_pulls_by_its_stream() {
    let world = World::new();
    let (link, _lifeline, connection) = world.link_by(false, |state| {
        (state.is_slow, state.is_stuck) = (true, true);
    });
    let (block, wanted) = world.pull(world.key, 0, ROWS);
    let batch = Batch::new(Vec::new(), 1);
    link.begin(&batch, [wanted], None).expect("begun");
    until("the rows are on their way", || {
        !connection.state().sending.is_empty()
    });
    let [_, now] = world.write();
    finish(&link, &batch);
    assert_well(&batch);
    assert_eq!(content_of(&block), now);
    assert!(matches!(link.verbs_counters(), Some(Err(_))) && link.is_open());
    until("the server lets the connection go", || {
        world.server.counters().fabric_peers == 0
    });
}

#[test]
fn a_batch_that_is_given_up_ends_before_its_rows_have_come() {
    let world = World::new();
    let (link, _lifeline, connection) = world.link_by(false, |state| state.is_slow = true);
    let pulls = (0..6).map(|first| world.pull(world.key, first, 1));
    let (_blocks, wanted): (Vec<_>, Vec<_>) = pulls.unzip(); // two more than there are slots
    let batch = Batch::new(Vec::new(), wanted.len());
    link.begin(&batch, wanted, None).expect("begun");
    until("the rows are on their way", || {
        connection.state().sending.len() == SLOTS
    });
    link.cancel(&batch);
    finish(&link, &batch);
    for index in 0..batch.len() {
        let why = failure(&batch, index);
        assert!(matches!(why, stream::StreamError::Canceled { .. }), "{why}");
    }
    connection.state().is_slow = false;
    world.write(); // what is on its way lands
    let (block, wanted) = world.pull(world.key, 8, 1);
    assert_well(&run(&link, vec![wanted]));
    assert_eq!(content_of(&block), world.rows(8, 1));
    link.release_blocks();
    assert!(link.has_verbs());
}

#[test]
fn a_lifeline_is_refused_without_a_fabric_or_a_known_introduction() {
    let (_server, address) = server();
    let refused = introduce(&address, &[0; 8]).map(drop);
    let why = refused.expect_err("it has none").to_string();
    assert!(why.contains("no RDMA verbs"), "{why}");
    let world = World::new();
    let refused = introduce(&world.address, &[0; 8]).map(drop);
    let why = refused.expect_err("nothing was offered");
    assert_eq!(why.class(), Class::Protocol);
}
