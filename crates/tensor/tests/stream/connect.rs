//! Servers to connect to, and links to them.
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use forebay_tensor::stream::{
    Batch, Deadline, Entrance, Link, OperationState, Options, Server, Settings, StreamError, Until,
    Work,
};
use forebay_tensor::{
    Description, Dtype, Hello, Key, Limits, Number, Operation, Pull, Push, Rows, Welcome,
};
use forebay_transport::link::Admission;
use forebay_transport::messages::{MessageOptions as Meeting, Messages};
use forebay_transport::serve::Listening;
use forebay_transport::stream::Wire;
use forebay_transport::stream::unix::Listener;

use super::sys::Memory;

/// What keeps a batch's memory.
pub type Kept = Vec<Arc<Memory>>;
pub type TestLink = Arc<Link<Kept>>;
pub type TestServer = Server<Arc<Memory>>;

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum Address {
    Tcp(u16),
    Unix(PathBuf),
}

/// A place of its own for each call.
pub fn places() -> [(Address, Listening); 2] {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    listener.set_nonblocking(true).expect("nonblocking");
    let port = listener.local_addr().expect("bound").port();
    let path = fresh_path();
    let unix = Listener::bind(&path).expect("bound");
    [
        (Address::Tcp(port), Listening::Tcp(vec![listener.into()])),
        (Address::Unix(path), Listening::Unix(unix)),
    ]
}

pub fn fresh_path() -> PathBuf {
    static PATHS: AtomicU32 = AtomicU32::new(0);
    let number = PATHS.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("fb-tensor-{}-{number}", std::process::id()))
}

pub fn server_at(listening: Listening, options: Options) -> TestServer {
    let entrance = Entrance {
        listening,
        tls: None,
        admission: Admission::Anybody,
    };
    let server = Server::start(vec![entrance], options).expect("started");
    server.open();
    server
}

/// A server over a Unix socket with default options.
pub fn server() -> (TestServer, Address) {
    let [_, (address, listening)] = places();
    (server_at(listening, Options::default()), address)
}

const PATIENCE: Duration = Duration::from_secs(30);

#[allow(clippy::unnecessary_wraps)] // every wait takes an optional deadline
pub fn soon() -> Option<Instant> {
    Some(Instant::now() + PATIENCE)
}

pub fn dial(address: &Address) -> OwnedFd {
    match address {
        Address::Tcp(port) => TcpStream::connect(("127.0.0.1", *port))
            .expect("connects")
            .into(),
        Address::Unix(path) => UnixStream::connect(path).expect("connects").into(),
    }
}

pub fn messages(wire: impl Into<Wire>) -> Messages {
    let options = Meeting {
        limits: forebay_transport::limit::Limits::of_messages(),
        peer: "the other end".to_owned(),
        admission: Admission::Anybody,
        token: None,
        trusted: true,
        allocator: None,
    };
    Messages::new(wire, options)
}

/// Greet as a client does: the stream, and what was granted.
pub fn greet(address: &Address, slots: u32) -> Result<(Wire, Welcome), forebay_tensor::Error> {
    greet_with(address, Hello { slots, fabrics: 0 })
}

/// Greet with a hello of one's own.
pub fn greet_with(
    address: &Address,
    hello: Hello,
) -> Result<(Wire, Welcome), forebay_tensor::Error> {
    greet_over(dial(address), hello)
}

/// The same over a connection.
pub fn greet_over(
    wire: impl Into<Wire>,
    hello: Hello,
) -> Result<(Wire, Welcome), forebay_tensor::Error> {
    let messages = messages(wire);
    messages.send(&mut vec![hello.encode()]).expect("sent");
    let answer = messages.recv(soon()).expect("answered");
    let welcome = Welcome::decode(answer[0].as_slice())?;
    Ok((messages.take_stream().expect("between"), welcome))
}

pub fn link_with(address: &Address, change: impl FnOnce(&mut Limits)) -> TestLink {
    let (wire, welcome) = greet(address, 16).expect("welcome");
    link_over(wire, &welcome, change)
}

/// Link over a stream whose server said welcome.
pub fn link_over(wire: Wire, welcome: &Welcome, change: impl FnOnce(&mut Limits)) -> TestLink {
    let mut limits = Limits {
        slots: welcome.slots,
        grant_bytes: welcome.grant_bytes,
        ..Limits::default()
    };
    change(&mut limits);
    let peer = "unix:///the/server".to_owned();
    Link::new(wire, Settings { peer, limits }).expect("linked")
}

pub fn link(address: &Address) -> TestLink {
    link_with(address, |_| {})
}

pub fn numbers(number: Number, item_bytes: u32) -> Dtype {
    Dtype {
        number,
        item_bytes,
        text: "a test's".to_owned(),
    }
}

/// A tensor of bytes whose rows differ, and what it holds.
pub fn publish(server: &TestServer, name: &str, rows: u64, row_bytes: u64) -> (Handle, Vec<u8>) {
    let total = usize::try_from(rows * row_bytes).expect("fits");
    let content: Vec<u8> = (0..total)
        .map(|at| (at * 31 + at / 251).to_le_bytes()[0])
        .collect();
    let handle = publish_content(server, name, &content, (rows, row_bytes));
    (handle, content)
}

pub fn publish_content(
    server: &TestServer,
    name: &str,
    content: &[u8],
    (rows, row_bytes): (u64, u64),
) -> Handle {
    let memory = Memory::new(content);
    let (name, kept) = (name.to_owned(), Arc::clone(&memory));
    let description = Description {
        dtype: numbers(Number::Unsigned, 1),
        shape: vec![rows, row_bytes],
    };
    let key = server
        .run(move |shard| {
            let published = shard.publish(&name, description, kept.span(), Arc::clone(&kept));
            published.map_err(|(error, _)| error)
        })
        .expect("runs")
        .expect("published");
    Handle {
        key,
        rows,
        row_bytes,
        memory,
    }
}

/// A published tensor.
#[derive(Clone)]
pub struct Handle {
    pub key: Key,
    pub rows: u64,
    pub row_bytes: u64,
    pub memory: Arc<Memory>,
}

impl Handle {
    pub fn pull(&self, rows: Rows, out: &Memory) -> Work {
        Work::Pull(Pull {
            tensor: self.key,
            row_bytes: self.row_bytes,
            rows_total: self.rows,
            rows,
            out: out.span(),
            places: None,
        })
    }

    pub fn slice(&self, first: u64, count: u64) -> (Arc<Memory>, Work) {
        let bytes = usize::try_from(count * self.row_bytes).expect("fits");
        let out = Memory::zeros(bytes);
        let work = self.pull(Rows::Slice { first, count }, &out);
        (out, work)
    }

    pub fn push(&self, rows: Rows, values: &Memory, operation: Operation) -> Work {
        Work::Push(Push {
            tensor: self.key,
            row_bytes: self.row_bytes,
            rows_total: self.rows,
            rows,
            values: values.span(),
            places: None,
            operation,
        })
    }
}

/// Begin a batch.
pub fn begin(link: &TestLink, kept: Kept, works: Vec<Work>) -> Arc<Batch<Kept>> {
    let batch = Batch::new(kept, works.len());
    link.begin(&batch, works, None).expect("begun");
    batch
}

/// Begin a batch and wait for its end.
pub fn run(link: &TestLink, kept: Kept, works: Vec<Work>) -> Arc<Batch<Kept>> {
    let batch = begin(link, kept, works);
    finish(link, &batch);
    batch
}

pub fn finish(link: &TestLink, batch: &Arc<Batch<Kept>>) {
    loop {
        match link.wait(batch, Until::All, Deadline::after(PATIENCE)) {
            Ok(()) => return,
            Err(StreamError::Interrupted) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

pub fn failure(batch: &Batch<Kept>, index: usize) -> StreamError {
    match batch.state_of(index) {
        OperationState::Failed(error) => error,
        other => panic!("operation {index} did not fail but {other:?}"),
    }
}

pub fn assert_well(batch: &Batch<Kept>) {
    assert!(batch.is_done());
    if let Some((index, error)) = batch.first_failure() {
        panic!("operation {index}: {error}");
    }
}
