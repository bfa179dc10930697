//! The engines as tests see them: one way to carry a batch out, whatever does it.
#![allow(dead_code)] // each test uses a part of it
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_blockio::{
    Batch, BlockFile, BlockQueue, Choice, Completions, Config, Error, Finished, Keeper, Kind, Mode,
    Operation, Patient,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode as Bits, mknodat};

/// Longer than anything takes that works.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A queue, and the way its batches go.
pub struct Engine {
    pub queue: BlockQueue,
    /// To threads of the queue's, and not carried out by the caller.
    pub handed: bool,
    pub done: Arc<Completions>,
    tickets: AtomicU64,
}

impl Engine {
    fn new(config: Config, handed: bool) -> Self {
        Self {
            queue: BlockQueue::new(config).expect("this engine works here"),
            handed,
            done: Arc::new(Completions::new(1 << 20).expect("there is a descriptor")),
            tickets: AtomicU64::new(0),
        }
    }

    /// The fallback's threads, the caller reading what is in the page cache.
    pub fn threads() -> Self {
        Self::new(with(Choice::Threads), false)
    }

    /// The fallback's threads alone.
    pub fn handed_threads() -> Self {
        Self::new(with(Choice::Threads), true)
    }

    /// One thread of the fallback.
    pub fn one_thread() -> Self {
        let threads = 1;
        Self::new(
            Config {
                threads,
                ..with(Choice::Threads)
            },
            true,
        )
    }

    /// A ring of the caller's.
    pub fn ring() -> Self {
        Self::new(with(Choice::Ring), false)
    }

    /// The I/O thread's ring.
    pub fn io_thread() -> Self {
        Self::new(with(Choice::Ring), true)
    }

    /// Carry a batch out and wait for its end.
    pub fn carry_out(&self, batch: Batch) -> Result<(), Error> {
        if !self.handed {
            return self.queue.run(batch, &mut Patient);
        }
        // The end is awaited here, so that the test keeps the memory.
        let ended = Arc::new(Completions::new(4)?);
        self.queue
            .submit(batch, Box::new(()), self.ticket(), &ended)?;
        let finished = await_one(&ended);
        assert!(finished.keeper.is_some(), "the keeper comes back");
        Ok(())
    }

    /// The same, where it cannot fail.
    pub fn run(&self, batch: Batch) {
        self.carry_out(batch).expect("it is open");
    }

    /// Hand a batch over; returns its ticket.
    pub fn submit(&self, batch: Batch, keeper: Keeper) -> u64 {
        let ticket = self.ticket();
        self.queue
            .submit(batch, keeper, ticket, &self.done)
            .expect("it is open");
        ticket
    }

    fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed) + 1
    }
}

fn with(engine: Choice) -> Config {
    Config {
        engine,
        ..Config::default()
    }
}

/// The next batch that ends.
pub fn await_one(done: &Completions) -> Finished {
    let mut finished = await_some(done);
    assert_eq!(finished.len(), 1, "one batch was in flight");
    finished.pop().expect("counted")
}

/// The next batches that end.
pub fn await_some(done: &Completions) -> Vec<Finished> {
    let mut finished = Vec::new();
    await_into(done, 1, &mut finished);
    finished
}

/// At least `count` batches that end.
pub fn await_into(done: &Completions, count: usize, finished: &mut Vec<Finished>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        done.drain(finished).expect("it is open");
        if finished.len() >= count {
            return;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "a batch did not end");
        let left = Timespec::try_from(left).expect("seconds");
        _ = poll(&mut [PollFd::new(done, PollFlags::IN)], Some(&left));
    }
}

/// Look until something is so.
pub fn await_until(what: &str, so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// A read of `length` bytes at `offset` to byte `at` of the buffer.
pub fn read(offset: u64, at: u64, length: u32) -> Operation {
    operation(Kind::Read, offset, at, length)
}

/// A write.
pub fn write(offset: u64, at: u64, length: u32) -> Operation {
    operation(Kind::Write, offset, at, length)
}

pub fn sync(kind: Kind) -> Operation {
    operation(kind, 0, 0, 0)
}

fn operation(kind: Kind, offset: u64, buffer_offset: u64, length: u32) -> Operation {
    Operation {
        offset,
        buffer_offset,
        length,
        kind: kind as u8,
        ..Operation::default()
    }
}

/// A file that the system has.
pub fn special(path: &str, mode: Mode) -> BlockFile {
    BlockFile::open(path, mode, false).expect("every Linux has it")
}

/// A folder on the disk that is gone after the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static FOLDERS: AtomicU64 = AtomicU64::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("blockio-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("the target folder is ours");
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file with this content, open for reading and writing.
    pub fn file(&self, content: &[u8], direct: bool) -> BlockFile {
        let path = self.path("file");
        fs::write(&path, content).expect("there is room");
        BlockFile::open(path, Mode::ReadWrite, direct).expect("it was made above")
    }

    /// That file again, for reading.
    pub fn open(&self, direct: bool) -> BlockFile {
        BlockFile::open(self.path("file"), Mode::Read, direct).expect("it was made before")
    }

    /// What that file holds.
    pub fn content(&self) -> Vec<u8> {
        fs::read(self.path("file")).expect("it was made before")
    }

    /// A pipe with a name: a read from it waits until something is written.
    pub fn pipe(&self) -> Pipe {
        let path = self.path("pipe");
        mknodat(CWD, &path, FileType::Fifo, Bits::RUSR | Bits::WUSR, 0).expect("a new name");
        let file = BlockFile::open(&path, Mode::ReadWrite, false).expect("made above");
        Pipe { path, file }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

pub struct Pipe {
    path: PathBuf,
    pub file: BlockFile,
}

impl Pipe {
    /// Let a read go on.
    pub fn write(&self, content: &[u8]) {
        let kind = fs::metadata(&self.path).expect("it is there").file_type();
        assert!(kind.is_fifo());
        fs::write(&self.path, content).expect("it is open for reading");
    }
}

/// Bytes that tell where they are from.
pub fn pattern(bytes: usize) -> Vec<u8> {
    let byte = |at: usize| at.wrapping_mul(2_654_435_761).to_le_bytes()[3];
    (0..bytes).map(byte).collect()
}
