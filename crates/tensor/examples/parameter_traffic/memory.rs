//! The memory of tensors and destinations, and its registration: once for a chunk, or for each transfer.
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use forebay_memory::{ChunkMemory, Config, Lease, Region, Registrar};
use forebay_tensor::Span;

use crate::Outcome;
use crate::options::Registration;
use crate::sys::{self, Mapping, Ring};

/// Places that a ring may have, as the kernel limits it.
const PLACES: u32 = 1 << 14;
/// A chunk of an arena that grows in small steps.
const GROWN_BYTES: u64 = 1 << 20;
/// Chunks that an arena may have here.
const CHUNKS: u32 = 1 << 10;

/// What a ring holds for one transfer.
#[derive(Debug)]
pub struct Known {
    ring: usize,
    place: u32,
}

/// Rings with room for what is registered for its transfer; there are more when all places are taken.
#[derive(Debug, Default)]
pub struct Rings {
    all: Vec<Ring>,
    free: Vec<Known>,
    /// How often memory was registered.
    pub count: u64,
}

impl Rings {
    /// Pin the pages of a span.
    pub fn register(&mut self, span: Span) -> io::Result<Known> {
        if self.free.is_empty() {
            let ring = self.all.len();
            self.all.push(Ring::new(PLACES)?);
            self.free
                .extend((0..PLACES).rev().map(|place| Known { ring, place }));
        }
        let known = self.free.pop().ok_or(io::ErrorKind::OutOfMemory)?;
        self.count += 1;
        self.all[known.ring].update(known.place, Some((span.address(), span.bytes())))?;
        Ok(known)
    }

    /// Let them go.
    pub fn unregister(&mut self, known: Known) -> io::Result<()> {
        self.all[known.ring].update(known.place, None)?;
        self.free.push(known);
        Ok(())
    }
}

/// Registers an arena's chunks as they come.
#[derive(Debug)]
struct Chunks {
    ring: Mutex<Ring>,
    count: AtomicU32,
    failure: OnceLock<(usize, io::Error)>,
}

impl Registrar for Chunks {
    fn added(&self, chunk: &ChunkMemory) {
        let place = self.count.fetch_add(1, Ordering::Relaxed);
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = ring.update(place, Some((chunk.start, chunk.bytes))) {
            let _ = self.failure.set((chunk.bytes, error)); // the first one says enough
        }
    }

    /// The kernel keeps the pages until the ring goes, which is when the process ends.
    fn removed(&self, _: &ChunkMemory) {}
}

/// Memory of one transfer.
#[derive(Debug)]
pub enum Block {
    Arena(Lease),
    Fresh(Mapping),
}

/// A destination, registered in the way that is measured.
#[derive(Debug)]
pub struct Destination {
    block: Block,
    known: Option<Known>,
    bytes: usize,
}

impl Destination {
    pub fn span(&self) -> Span {
        match &self.block {
            Block::Arena(lease) => sys::span_of(lease, self.bytes),
            Block::Fresh(mapping) => mapping.span(),
        }
    }
}

/// One side's memory.
#[derive(Debug)]
pub struct Memory {
    registration: Registration,
    region: Region,
    chunks: Arc<Chunks>,
    pub rings: Rings,
}

impl Memory {
    /// An arena of at most `bytes`.
    pub fn new(registration: Registration, bytes: usize) -> Outcome<Self> {
        let chunks = Arc::new(Chunks {
            ring: Mutex::new(Ring::new(CHUNKS)?),
            count: AtomicU32::new(0),
            failure: OnceLock::new(),
        });
        let mut config = Config::new("traffic", bytes as u64);
        if registration == Registration::Grown {
            config = config.chunk_bytes(GROWN_BYTES);
        }
        let region = Region::new(config)?;
        if matches!(registration, Registration::Static | Registration::Grown) {
            region.attach(Arc::clone(&chunks) as Arc<dyn Registrar>)?;
        }
        Ok(Self {
            registration,
            region,
            chunks,
            rings: Rings::default(),
        })
    }

    /// A block of the arena.
    pub fn allocate(&self, bytes: usize) -> Outcome<Lease> {
        Ok(self.region.allocate(bytes)?)
    }

    /// Memory for a pull.
    pub fn lend(&mut self, bytes: usize) -> Outcome<Destination> {
        let block = match self.registration {
            Registration::Fresh => Block::Fresh(Mapping::new(bytes)?),
            Registration::Static | Registration::Grown | Registration::Transfer => {
                Block::Arena(self.allocate(bytes)?)
            }
        };
        let mut lent = Destination {
            block,
            known: None,
            bytes,
        };
        if self.is_per_transfer() {
            lent.known = Some(self.rings.register(lent.span())?);
        }
        Ok(lent)
    }

    /// The pull is over, and its rows are of no further use.
    pub fn give_back(&mut self, mut lent: Destination) -> io::Result<()> {
        match lent.known.take() {
            Some(known) => self.rings.unregister(known),
            None => Ok(()),
        }
    }

    /// Whether blocks are registered for their transfer alone.
    pub fn is_per_transfer(&self) -> bool {
        matches!(
            self.registration,
            Registration::Transfer | Registration::Fresh
        )
    }

    /// How often memory was registered.
    ///
    /// # Errors
    ///
    /// A chunk was not, so that what was measured is something else.
    pub fn registrations(&self) -> io::Result<u64> {
        if let Some((bytes, error)) = self.chunks.failure.get() {
            return Err(io::Error::other(format!(
                "a chunk of the arena, {bytes} bytes, was not registered: {error}; \
                 raise RLIMIT_MEMLOCK (ulimit -l), or run this as root"
            )));
        }
        Ok(self.rings.count + u64::from(self.chunks.count.load(Ordering::Relaxed)))
    }
}
