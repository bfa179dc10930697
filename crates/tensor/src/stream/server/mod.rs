//! A server from outside: start a shard's thread, have things done in it, count, close.
//!
//! The thread sleeps in `epoll` alone: reads of files tell their ends by a descriptor there. What the owner wants done (publish, drop, write rows) reaches it through a queue
//! and an eventfd, and is done between two answers.
mod accepting;
mod fabric;
mod file_reads;
mod files;
mod handshake;
mod index;
mod metrics;
mod parts;
mod reactor;
mod slots;
mod time;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use forebay_blockio::BlockFile;
use forebay_memory::Lease;
use forebay_transport::Admission;
use forebay_transport::serve::Listening;
use forebay_transport::tls;
use rustix::event::{EventfdFlags, eventfd};
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

/// Where clients come in, and who is let in there.
pub struct Entrance {
    /// What is listened on.
    pub listening: Listening,
    /// Accepts TLS there.
    pub tls: Option<Arc<tls::Server>>,
    /// Whom it lets in.
    pub admission: Admission,
}

/// How a shard serves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Of its tensors and peers.
    pub limits: ShardLimits,
    /// In which a client must have said what it wants.
    pub handshake: Duration,
    /// For how long a server that closes goes on sending what was asked for.
    pub grace: Duration,
    /// Words to every client, at most 64 KiB.
    pub note: Vec<u8>,
    /// What errors call the server.
    pub name: String,
    /// Whether clients of the same host may read tensors where they lie.
    pub shared_memory: bool,
    /// The fabric by which clients may have rows written to them: of tensors in regions that it knows.
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

/// Something that the owner wants done in the thread.
type Command<K> = Box<dyn FnOnce(&mut Shard<K>, &mut Files) + Send>;

/// What the owner wants done, and how the thread hears of it.
struct CommandQueue<K> {
    pending: Vec<Command<K>>,
    /// Readable once something is to be done besides the sockets.
    wake: OwnedFd,
}

impl<K> CommandQueue<K> {
    fn wake(&self) {
        _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes()); // a full counter is readable too
    }
}

/// What the thread and the owner share.
struct Common<K> {
    metrics: Metrics,
    closing: AtomicBool,
    /// Clients are to be let in from now on.
    opening: AtomicBool,
    /// None once the thread takes no more of them: its descriptor is closed with the server, whoever keeps that.
    commands: Mutex<Option<CommandQueue<K>>>,
    panicked: AtomicBool,
}

impl<K> Common<K> {
    fn commands(&self) -> MutexGuard<'_, Option<CommandQueue<K>>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a server's thread, however it comes: whoever waits for a command hears that it is too late.
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
    /// By which tensors can be had.
    fabric: Option<Arc<dyn Provider>>,
    epoch: u64,
}

impl<K: Send + 'static> Server<K> {
    /// Serve in a thread of its own, which has `K` keep the memory of tensors; at the entrances from [`Self::open`] on.
    ///
    /// # Errors
    ///
    /// [`StreamError::System`] where the kernel gives no descriptor or thread; [`StreamError::Tensor`] for a note that is too
    /// long, and for limits that cannot be.
    pub fn start(entrances: Vec<Entrance>, options: Options) -> Result<Self, StreamError> {
        let name: Arc<str> = options.name.as_str().into();
        let refused = |error| StreamError::Tensor {
            peer: Arc::clone(&name),
            error,
        };
        let checked = Welcome::check_note(&options.note).and_then(|()| Shard::new(options.limits));
        let shard = checked.map_err(refused)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let common = Arc::new(Common {
            metrics: Metrics::default(),
            closing: AtomicBool::new(false),
            opening: AtomicBool::new(false),
            commands: Mutex::new(Some(CommandQueue {
                pending: Vec::new(),
                wake: wake.map_err(StreamError::system("eventfd"))?,
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
        let thread = Builder::new()
            .name("fb tensor".into())
            .spawn(move || {
                let _ending = Ending(Arc::clone(&reactor.common));
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

    /// Have something done with the shard, in its thread between two answers, and wait for it.
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

    /// Make a name mean rows of a file, which are read when they are pulled, and which nobody writes by this server.
    ///
    /// The first file costs `staging_bytes` of memory. The thread does not wait for the disk.
    ///
    /// # Errors
    ///
    /// [`StreamError::Closed`], [`StreamError::Forked`]; inside as [`Shard::publish_file`], and
    /// [`Config`](crate::Error::Config) for a file that has not these rows, or needs another alignment;
    /// [`Broken`](crate::Error::Broken) where the kernel gives no ring or memory.
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
            files.retire(shard); // before the owner, who waits, hears that it is done
            _ = sender.send(outcome);
        });
        match &mut *self.common.commands() {
            Some(commands) => {
                commands.pending.push(command);
                commands.wake();
            }
            None => return Err(closed()),
        }
        receiver.recv().map_err(|_| {
            self.close(); // the thread ends, and dropped it: only then is it known why
            closed()
        })
    }

    /// Publish a tensor; of memory in `block` clients of the same host are told where it lies, and the
    /// fabric sends rows.
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

    /// Whether the fabric knows the memory, which is of this block; where it does not, counters say why.
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

    /// Which run of a server this is.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// What was counted.
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
    /// Let clients in, who wait until then. Idempotent; does not wait.
    pub fn open(&self) {
        self.request(&self.common.opening);
    }

    /// Begin to close: nobody is accepted, what was received is answered, for a moment. Idempotent; does not wait.
    pub fn stop(&self) {
        self.request(&self.common.closing);
    }

    fn request(&self, flag: &AtomicBool) {
        if self.epoch == forebay_memory::epoch() {
            flag.store(true, Ordering::Release);
            if let Some(commands) = &*self.common.commands() {
                commands.wake();
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
            _ = thread.join(); // a panic has been told by its hook
        } else {
            std::mem::forget(thread); // there is no such thread after a fork
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
    // Source: getrandom(2): requests of up to 256 bytes are never cut short.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
