//! A server as its owner sees it: start a shard's thread, run commands in it, read its counters, close it.
//!
//! The thread sleeps only in `epoll`, which also reports finished reads of files. The owner's commands (publish, drop,
//! write rows) reach it through a queue and an eventfd, and run between two answers.
mod connection;
mod entrance;
mod fabric;
mod file_reads;
mod files;
mod handshake;
mod index;
mod metrics;
mod parts;
mod reactor;
mod time;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use forebay_base::wakeup::Wakeup;
use forebay_blockio::BlockFile;
use forebay_memory::Lease;
use forebay_transport::link::Admission;
use forebay_transport::serve::Listening;
use forebay_transport::stream::tls;
use rustix::io::Errno;

pub use metrics::ServerCounters;

use super::error::StreamError;
use crate::fabric::Provider;
use crate::handshake::Welcome;
use crate::responder::{Shard, ShardLimits};
use crate::shm::Chunks;
use crate::sys::span::Span;
use crate::table::{Description, Exports, FileRows, Key};
use files::Files;
use metrics::Metrics;
use reactor::Reactor;

/// A listening address, and the clients that it admits.
pub struct Entrance {
    /// The listening sockets.
    pub listening: Listening,
    /// The TLS configuration, if clients have to use TLS.
    pub tls: Option<Arc<tls::Server>>,
    /// How clients authenticate.
    pub admission: Admission,
}

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Limits of its tensors and peers.
    pub limits: ShardLimits,
    /// How long a client may take for the handshake.
    pub handshake: Duration,
    /// How long a closing server continues to send answers.
    pub grace: Duration,
    /// A note to every client, at most 64 KiB.
    pub note: Vec<u8>,
    /// The server's name in error messages.
    pub name: String,
    /// Whether clients of the same host may map the tensors.
    pub shared_memory: bool,
    /// The fabric over which clients may pull, for tensors in regions that it knows.
    pub fabric: Option<Arc<dyn Provider>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: ShardLimits::default(),
            handshake: Duration::from_secs(5),
            grace: Duration::from_millis(500),
            note: Vec::new(),
            name: "the server".to_owned(),
            shared_memory: true,
            fabric: None,
        }
    }
}

/// A command of the owner, run in the server's thread.
type Command<K> = Box<dyn FnOnce(&mut Shard<K>, &mut Files) + Send>;

/// The owner's commands, and the eventfd that wakes the thread for them.
struct CommandQueue<K> {
    pending: Vec<Command<K>>,
    /// Readable when a command or a flag of [`Common`] is set.
    wakeup: Wakeup,
}

/// State that the thread and the owner share.
struct Common<K> {
    metrics: Metrics,
    /// The owner asked the thread to close.
    closing: AtomicBool,
    /// The owner asked the thread to accept clients.
    opening: AtomicBool,
    /// `None` once the thread has ended, so that later commands fail at once and the eventfd is closed.
    commands: Mutex<Option<CommandQueue<K>>>,
    panicked: AtomicBool,
}

impl<K> Common<K> {
    fn commands(&self) -> MutexGuard<'_, Option<CommandQueue<K>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs at the end of the server's thread, panics included: drops the pending commands, whose callers then get an
/// error.
struct Ending<K>(Arc<Common<K>>);

impl<K> Drop for Ending<K> {
    fn drop(&mut self) {
        let panicked = std::thread::panicking();
        self.0.panicked.store(panicked, Ordering::Release);
        let commands = self.0.commands().take();
        drop(commands);
    }
}

/// One shard of a server, and its thread. Every method may be called from any thread.
pub struct Server<K> {
    common: Arc<Common<K>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    incarnation: u64,
    name: Arc<str>,
    chunks: Chunks,
    /// Over which clients may pull.
    fabric: Option<Arc<dyn Provider>>,
    epoch: u64,
}

impl<K: Send + 'static> Server<K> {
    /// Start the server's thread; `K` keeps the memory of tensors. It accepts clients from [`Self::open`] on.
    ///
    /// # Errors
    ///
    /// [`StreamError::System`] if the kernel gives no descriptor or thread; [`StreamError::Tensor`] for a note that
    /// is too long, and for invalid limits.
    pub fn start(entrances: Vec<Entrance>, options: Options) -> Result<Self, StreamError> {
        let name: Arc<str> = options.name.as_str().into();
        let refused = |error| StreamError::Tensor {
            peer: Arc::clone(&name),
            error,
        };
        let checked = Welcome::check_note(&options.note).and_then(|()| Shard::new(options.limits));
        let shard = checked.map_err(refused)?;
        let common = Arc::new(Common {
            metrics: Metrics::default(),
            closing: AtomicBool::new(false),
            opening: AtomicBool::new(false),
            commands: Mutex::new(Some(CommandQueue {
                pending: Vec::new(),
                wakeup: Wakeup::new().map_err(|error| StreamError::eventfd(&error))?,
            })),
            panicked: AtomicBool::new(false),
        });
        let fabric = options.fabric.clone();
        let incarnation = random().map_err(StreamError::system("getrandom"))?;
        let reactor = Reactor::new(
            entrances,
            (shard, options),
            incarnation,
            Arc::clone(&common),
        );
        let reactor = reactor.map_err(StreamError::system("epoll"))?;
        let of_thread = Arc::clone(&common);
        let thread = Builder::new()
            .name("fb tensor".into())
            .spawn(move || {
                let _ending = Ending(of_thread);
                reactor.run();
            })
            .map_err(|error| StreamError::System {
                what: "a thread",
                errno: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
            })?;
        Ok(Self {
            common,
            thread: Mutex::new(Some(thread)),
            incarnation,
            name,
            chunks: Chunks::default(),
            fabric,
            epoch: forebay_memory::epoch(),
        })
    }

    /// Run `act` with the shard in the server's thread, between two answers, and wait for its result.
    ///
    /// # Errors
    ///
    /// [`StreamError::Closed`], [`StreamError::Panicked`], [`StreamError::Forked`].
    pub fn run<R: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Shard<K>) -> R + Send + 'static,
    ) -> Result<R, StreamError> {
        self.command(move |shard, _| act(shard))
    }

    /// Publish the rows of a file under a name. They are read when they are pulled; the server never writes them.
    ///
    /// The first file costs `staging_bytes` of memory. The thread does not wait for the disk.
    ///
    /// # Errors
    ///
    /// [`StreamError::Closed`], [`StreamError::Forked`]; inside, as [`Shard::publish_file`], and
    /// [`Config`](crate::Error::Config) for a file without these rows, or that needs another alignment;
    /// [`Broken`](crate::Error::Broken) if the kernel gives no ring or memory.
    pub fn publish_file(
        &self,
        name: &str,
        description: Description,
        (file, rows): (BlockFile, FileRows),
    ) -> Result<Result<Key, crate::Error>, StreamError> {
        let name = name.to_owned();
        self.command(move |shard, files| files.publish(shard, (&name, description), (file, rows)))
    }

    fn command<R: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Shard<K>, &mut Files) -> R + Send + 'static,
    ) -> Result<R, StreamError> {
        self.check()?;
        let (sender, receiver) = sync_channel(1);
        let closed = || {
            let what = Arc::clone(&self.name);
            if self.common.panicked.load(Ordering::Acquire) {
                return StreamError::Panicked { what };
            }
            StreamError::Closed { what }
        };
        let command: Command<K> = Box::new(move |shard, files| {
            let outcome = act(shard, files);
            files.retire(shard); // before the waiting owner continues: it may expect its memory back
            _ = sender.send(outcome);
        });
        match &mut *self.common.commands() {
            Some(commands) => {
                commands.pending.push(command);
                commands.wakeup.raise();
            }
            None => return Err(closed()),
        }
        receiver.recv().map_err(|_| {
            self.close(); // the ending thread dropped the command; once it is joined the reason is known
            closed()
        })
    }

    /// Publish a tensor. If its memory is in `block`, clients of the same host can map it, and the fabric can send
    /// its rows.
    ///
    /// # Errors
    ///
    /// As [`Self::run`]; inside, as [`Shard::publish`].
    pub fn publish(
        &self,
        name: String,
        description: Description,
        (memory, block): (Span, Option<&Lease>),
        keeper: K,
    ) -> Result<Result<Key, crate::Error>, StreamError> {
        self.check()?;
        let exports = Exports {
            location: block.and_then(|block| self.chunks.find(block, memory)),
            block: block.filter(|block| self.reaches(block, memory)).cloned(),
        };
        self.run(move |shard| {
            let published = shard.publish_exported(&name, description, (memory, exports), keeper);
            published.map_err(|(refused, _)| refused)
        })
    }

    /// Whether the fabric can read this memory of the block; if not, the counters have the reason.
    fn reaches(&self, block: &Lease, memory: Span) -> bool {
        let Some(fabric) = &self.fabric else {
            return false;
        };
        let checked = fabric.check(block);
        if let Err(error) = &checked {
            self.common.metrics.note(error.to_string());
        }
        checked.is_ok() && holds(block, memory)
    }

    /// The id of this run of the server.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Its counters.
    pub fn counters(&self) -> ServerCounters {
        self.common.metrics.counters()
    }

    /// Check that this process started the server.
    ///
    /// # Errors
    ///
    /// [`StreamError::Forked`].
    pub fn check(&self) -> Result<(), StreamError> {
        if self.epoch == forebay_memory::epoch() {
            return Ok(());
        }
        Err(StreamError::Forked {
            what: Arc::clone(&self.name),
        })
    }
}

impl<K> Server<K> {
    /// Accept clients from now on, those that connected before included. Idempotent; does not wait.
    pub fn open(&self) {
        self.request(&self.common.opening);
    }

    /// Begin to close: accept no more clients, and answer received requests until the grace ends. Idempotent; does
    /// not wait.
    pub fn stop(&self) {
        self.request(&self.common.closing);
    }

    fn request(&self, flag: &AtomicBool) {
        if self.epoch == forebay_memory::epoch() {
            flag.store(true, Ordering::Release);
            if let Some(commands) = &*self.common.commands() {
                commands.wakeup.raise();
            }
        }
    }

    /// Close, and wait until the thread has ended: about half a second at most, and up to five more
    /// where a disk still has reads. Idempotent.
    pub fn close(&self) {
        self.stop();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(thread) = thread.take() else {
            return;
        };
        if self.epoch == forebay_memory::epoch() {
            _ = thread.join(); // the panic hook has reported a panic
        } else {
            std::mem::forget(thread); // the thread does not exist in a forked child
        }
    }
}

impl<K> Drop for Server<K> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether the memory is inside of the block.
fn holds(block: &Lease, memory: Span) -> bool {
    let start = block.as_ptr().as_ptr() as usize;
    let skipped = (memory.address().as_ptr() as usize).checked_sub(start);
    let end = skipped.and_then(|skipped| skipped.checked_add(memory.bytes()));
    end.is_some_and(|end| end <= block.len())
}

fn random() -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    // Watched: getrandom(2): requests of up to 256 bytes are never cut short.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
