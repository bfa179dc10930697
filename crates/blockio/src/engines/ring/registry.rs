//! Memory that the kernel knows by an index: registered once with a ring of its own, cloned by all others.
//!
//! Registered memory is pinned and looked up once instead of for each operation, which saves a tenth of the CPU.
//! Registering it with each ring would count it each time against the memlock limit, which is often 8 MiB; cloning does not.
//! Where the kernel cannot clone, or the limit is too small, operations name plain addresses, and [`Registry::reason`] says why.
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_memory::{ChunkMemory, Registrar};
use rustix::io::Errno;

use crate::sys::ring::Ring;

/// Pieces of memory that can be registered at once.
const BUFFERS_MAX: u32 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Table {
    /// None once the queue is closed.
    ring: Option<Ring>,
    pieces: Vec<Option<Piece>>,
    reason: Option<String>,
    /// The version that a ring could not take over; it is not asked again for the same one.
    refused: u64,
}

/// What is registered, for all rings of a queue.
#[derive(Debug)]
pub(crate) struct Registry {
    table: Mutex<Table>,
    /// Counts the changes of the table; 0 while there was none.
    version: AtomicU64,
}

impl Registry {
    pub(crate) fn new() -> io::Result<Self> {
        let mut ring = Ring::unbound()?;
        ring.register_buffer_table(BUFFERS_MAX)?;
        Ok(Self {
            table: Mutex::new(Table {
                ring: Some(ring),
                pieces: vec![None; BUFFERS_MAX as usize],
                reason: None,
                refused: 0,
            }),
            version: AtomicU64::new(0),
        })
    }

    /// Register memory. Where the kernel refuses, it stays usable, and the reason is kept.
    ///
    /// All of it takes real memory from now on.
    fn add(&self, start: NonNull<u8>, bytes: usize) {
        let mut table = self.lock();
        let Table {
            ring,
            pieces,
            reason,
            ..
        } = &mut *table;
        let Some(ring) = ring else { return };
        let Some(at) = pieces.iter().position(Option::is_none) else {
            *reason = Some(format!(
                "{BUFFERS_MAX} pieces of memory are registered already"
            ));
            return;
        };
        match ring.update_buffer(slot_of(at), Some((start, bytes))) {
            Ok(()) => {
                pieces[at] = Some(Piece {
                    start: start.as_ptr() as u64,
                    bytes: bytes as u64,
                });
                self.version.fetch_add(1, Ordering::Release);
            }
            Err(error) => *reason = Some(refusal(&error, bytes)),
        }
    }

    /// Unregister what [`Registry::add`] registered. A ring that took it over lets go of it before its next batch.
    fn remove(&self, start: NonNull<u8>) {
        let mut table = self.lock();
        let start = start.as_ptr() as u64;
        let is_it = |piece: &Option<Piece>| piece.is_some_and(|piece| piece.start == start);
        let Some(at) = table.pieces.iter().position(is_it) else {
            return;
        };
        if let Some(ring) = &mut table.ring {
            let emptied = ring.update_buffer(slot_of(at), None);
            debug_assert!(emptied.is_ok(), "unregister: {emptied:?}");
        }
        table.pieces[at] = None;
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Let go of the descriptor, and of all that is registered here; rings that took it over keep it until they end.
    pub(crate) fn close(&self) {
        let mut table = self.lock();
        table.ring = None;
        table.pieces.fill(None);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Why some memory is not registered, in words.
    pub(crate) fn reason(&self) -> Option<String> {
        self.lock().reason.clone()
    }

    /// Bytes that are registered.
    pub(crate) fn bytes(&self) -> u64 {
        let table = self.lock();
        table.pieces.iter().flatten().map(|piece| piece.bytes).sum()
    }

    /// Bring `ring` up to the table; `seen` is the version that it has, 0 for none.
    pub(crate) fn follow(&self, ring: &mut Ring, seen: &mut u64) {
        let now = self.version.load(Ordering::Acquire);
        if now == *seen {
            return;
        }
        let mut table = self.lock();
        let now = self.version.load(Ordering::Acquire);
        if table.refused == now {
            return;
        }
        let Some(source) = &table.ring else { return };
        match ring.clone_buffers(source) {
            Ok(()) => *seen = now,
            Err(error) => {
                table.refused = now;
                table.reason = Some(format!(
                    "this kernel cannot share registered memory among rings ({error}); Linux 6.13 can"
                ));
            }
        }
    }

    /// The index of the piece that holds all of the memory, in a ring that has the table of version `seen`.
    ///
    /// `None` in a ring that fell behind meanwhile: another piece may have that index in it.
    pub(crate) fn buffer_index(&self, seen: u64, address: u64, bytes: u64) -> Option<u16> {
        let table = self.lock();
        if self.version.load(Ordering::Acquire) != seen {
            return None;
        }
        let holds = |piece: &Option<Piece>| {
            piece.is_some_and(|piece| {
                address >= piece.start
                    && bytes <= piece.bytes
                    && address - piece.start <= piece.bytes - bytes
            })
        };
        let at = table.pieces.iter().position(holds)?;
        u16::try_from(at).ok()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // What is under the lock is changed last, after the kernel has agreed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registrar for Registry {
    fn added(&self, chunk: &ChunkMemory) {
        self.add(chunk.start, chunk.bytes);
    }

    fn removed(&self, chunk: &ChunkMemory) {
        self.remove(chunk.start);
    }
}

fn slot_of(at: usize) -> u32 {
    u32::try_from(at).expect("slots are few")
}

fn refusal(error: &io::Error, bytes: usize) -> String {
    if error.raw_os_error() == Some(Errno::NOMEM.raw_os_error()) {
        return format!(
            "{bytes} bytes are more than this user may pin (ulimit -l); raise the memlock limit, or go on with a tenth more CPU"
        );
    }
    format!("the kernel refused to register {bytes} bytes: {error}")
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
    use std::time::{Duration, Instant};

    use forebay_memory::{Config, Lease, Region, Registrar};

    use super::Registry;
    use crate::batch::{Batch, Files, Operations};
    use crate::completion::Patient;
    use crate::file::{BlockFile, Mode};
    use crate::operation::Operation;
    use crate::queue::BlockQueue;
    use crate::sys::lent;
    use crate::sys::ring::Ring;

    const MIB: u64 = 1 << 20;

    /// Held by one test at a time: what all of them pin counts against one limit, which is often 8 MiB.
    static PINNING: Mutex<()> = Mutex::new(());

    /// `None` where the kernel forbids rings or locked memory: then there is nothing to register with.
    fn registered() -> Option<(MutexGuard<'static, ()>, Region, Arc<Registry>)> {
        let alone = PINNING.lock().unwrap_or_else(PoisonError::into_inner);
        let registry = Arc::new(Registry::new().ok()?);
        let config = Config::new("registered", 4 * MIB).chunk_bytes(2 * MIB);
        let region = Region::new(config).expect("a region");
        let registrar: Arc<dyn Registrar> = registry.clone();
        region.attach(registrar).expect("attached");
        is_pinned(&region, || registry.bytes()).then_some((alone, region, registry))
    }

    /// Whether all of a region's memory can be pinned; what tests before have let go counts for a moment yet.
    fn is_pinned(region: &Region, registered: impl Fn() -> u64) -> bool {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            let blocks = [0, 1].map(|_| region.allocate(2 << 20).expect("room"));
            let pinned = registered() == 4 * MIB;
            drop(blocks);
            region.trim().expect("open");
            if pinned || Instant::now() > until {
                return pinned;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    fn buffer_index(registry: &Registry, seen: u64, block: &Lease) -> Option<u16> {
        registry.buffer_index(seen, block.as_ptr().as_ptr() as u64, block.len() as u64)
    }

    #[test]
    fn what_is_registered_comes_and_goes_with_the_chunks_of_a_region() {
        let Some((_alone, region, registry)) = registered() else {
            return;
        };
        let block = region.allocate(2 << 20).expect("room");
        let other = region.allocate(2 << 20).expect("room");
        assert_eq!(registry.bytes(), 4 * MIB);
        drop(block);
        region.trim().expect("open");
        assert_eq!(registry.bytes(), 2 * MIB);
        drop(region);
        assert_eq!(registry.bytes(), 2 * MIB, "a block is there");
        drop(other);
        assert_eq!((registry.bytes(), registry.reason()), (0, None));
    }

    #[test]
    fn a_ring_that_fell_behind_is_given_no_place() {
        let Some((_alone, region, registry)) = registered() else {
            return;
        };
        let block = region.allocate(4096).expect("room");
        let mut ring = Ring::new(1, 2).expect("a ring");
        let mut seen = 0;
        registry.follow(&mut ring, &mut seen);
        if seen == 0 {
            return; // a kernel that cannot share registered memory
        }
        let first = buffer_index(&registry, seen, &block);
        assert!(first.is_some());
        let later = region.allocate(2 << 20).expect("room");
        assert_eq!(buffer_index(&registry, seen, &block), None);
        assert_eq!(buffer_index(&registry, seen, &later), None);
        registry.follow(&mut ring, &mut seen);
        assert_eq!(buffer_index(&registry, seen, &block), first);
        assert!(buffer_index(&registry, seen, &later).is_some_and(|index| Some(index) != first));
        let end = later.as_ptr().as_ptr() as u64 + later.len() as u64;
        assert_eq!(
            registry.buffer_index(seen, end - 1, 2),
            None,
            "past its end"
        );
    }

    #[test]
    fn reads_go_to_the_memory_that_is_there_after_chunks_came_and_went() {
        const BYTES: usize = 64 << 10;
        let Some((_alone, region, registry)) = registered() else {
            return;
        };
        let registrar: Arc<dyn Registrar> = registry;
        region.detach(&registrar).expect("owner"); // the queue has its own, and pins as much
        drop(registrar);
        let queue = BlockQueue::new(crate::Config::default()).expect("limits that can be");
        queue.attach(&region).expect("attached");
        assert!(is_pinned(&region, || queue.stats().registered_bytes));
        let zeros = BlockFile::open("/dev/zero", Mode::Read, false).expect("every machine has it");
        for _ in 0..20 {
            let mut block = region.allocate(BYTES).expect("room");
            let bytes = block.bytes_mut().expect("sole lease");
            bytes.fill(0xAA);
            let mut reads = [Operation {
                length: u32::try_from(BYTES).expect("small"),
                ..Operation::default()
            }];
            let mut results = [i64::MIN];
            let (listed, memory, ends) = lent::whole(&mut reads, bytes, &mut results);
            let (listed, files) = (Operations::Listed(listed), Files::One(zeros.clone()));
            let batch = Batch::new(listed, files, memory, ends, true).expect("within bounds");
            queue.run(batch, &mut Patient).expect("not interrupted");
            assert_eq!(results, [64 << 10]);
            assert!(bytes.iter().all(|&byte| byte == 0), "it went elsewhere");
            assert_eq!(queue.stats().registered_bytes, 2 * MIB);
            drop(block);
            region.trim().expect("open"); // the next chunk lies where this one lay
            assert_eq!(queue.stats().registered_bytes, 0);
        }
        queue.close();
    }

    #[test]
    fn a_registry_outlives_its_queue_only_as_long_as_the_memory_that_it_knows() {
        let Some((_alone, region, registry)) = registered() else {
            return;
        };
        let watched = Arc::downgrade(&registry);
        let registrar: Arc<dyn Registrar> = registry;
        region.detach(&registrar).expect("owner");
        drop(registrar);
        assert!(watched.upgrade().is_none());
    }
}
