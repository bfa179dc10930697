//! Regions of memory: memfd chunks, blocks with generations, leases.
//!
//! A [`Region`] is memory that one process owns and other processes may read.
//! Only the owner allocates in it and writes it; other processes map a chunk's descriptor read-only,
//! because the kernel refuses anything else.
//! What a block holds can be named to another process by a [`Reference`] of five numbers, instead of being copied.
//!
//! ```
//! use forebay_memory::{Config, Error, Region};
//!
//! let region = Region::new(Config::new("frames", 1 << 30))?;  // 1 GiB at most; nothing is mapped yet
//!
//! let mut block = region.allocate(5)?;                        // maps the first chunk
//! block.bytes_mut().expect("the only lease").copy_from_slice(b"water");
//!
//! let reference = block.reference();                          // five numbers, for a message
//! let lease = region.lease(&reference)?;                      // keeps the block, whatever its maker does
//! drop(block);
//! assert_eq!(region.stats()?.blocks, 1);
//!
//! drop(lease);                                                // the last lease frees the block
//! assert!(matches!(region.lease(&reference), Err(Error::Stale { .. })));
//! # Ok::<(), Error>(())
//! ```
//!
//! # Invariants
//!
//! 1. *Memory outlives its leases.* A block holds its chunk's mapping; a mapping goes with its last block.
//!    Closing or dropping the region takes no memory away from under a lease.
//! 2. *A block is freed once, by its last lease*, and is handed out again only after that.
//! 3. *A generation names one allocation for ever*: a 64-bit count per region, never used twice.
//!    So a reference from before a free is refused always, not only until a counter comes round.
//! 4. *Bookkeeping is private*: no lock, list or length lies in memory that another process maps.
//! 5. *One owner*: a forked child inherits the mapping but not the right; all calls refuse it, and its drops change nothing.
//! 6. *Registrars are called in time*: for each chunk before its first block is handed out,
//!    and for its removal before it is unmapped. See [`Registrar`].
//! 7. *What others may still write is not handed out*: a block in [quarantine](Lease::quarantine) is kept and counted.
//! 8. *No thread hides memory*: what it keeps for its next allocations is collected before another one is refused.
//!
//! # Map
//!
//! | module | what |
//! |---|---|
//! | `heap` | the allocator, sans-I/O: two-level segregated fit over any number of chunks |
//! | `chunk` | a memfd, mapped, then sealed against shrinking, growing, further writable maps and further seals |
//! | `chunk_mapping` | a chunk's memory, and the registrars that are called before it is unmapped |
//! | `backing` | which pages a chunk is made of |
//! | `region` | what a caller sees, under one lock |
//! | `growth` | getting a further chunk with the lock let go |
//! | `identity` | what all threads know of a region without its lock |
//! | `state` | what lies under the lock: chunks, allocator, blocks, the limits `arena_bytes_max` and `quarantine_bytes_max` |
//! | `shelf` | what each thread freed and takes again, past the lock |
//! | `block` | one allocation, and what it needs of its region |
//! | `blocks` | blocks by their locations, and spare ones |
//! | `holders` | how many leases a block has, of which allocation |
//! | `counters` | counting beside the lock |
//! | `registrar` | the interface that is called for each chunk |
//! | `lease` | the handles that keep a block |
//! | `quarantine` | a block that the kernel or a peer may still write |
//! | `window` | another process's chunk, mapped for reading |
//! | `sys` | `mmap`, `munmap`, `madvise`, copies; with `block::sys` (slices) and `shelf::sys` (a lock), all the `unsafe` |
//!
//! Cost: an allocation with its free takes 40 ns where the thread has freed that size before, else a lock twice; in the
//! steady state neither calls the global allocator or the system.
//! Memory that is touched for the first time costs a page fault per 4 KiB; blocks are reused to avoid it.
//!
//! Sources: `memfd_create(2)`, `fcntl(2)` on sealing, `madvise(2)`; the allocator names its own.
mod backing;
mod block;
mod blocks;
mod chunk;
mod chunk_mapping;
mod config;
mod counters;
mod error;
mod growth;
mod heap;
mod holders;
mod identity;
mod lease;
mod quarantine;
mod reference;
mod region;
mod registrar;
mod shelf;
mod state;
mod stats;
mod sys;
mod window;

pub use backing::{Backed, Backing};
pub use chunk::Unused;
pub use chunk_mapping::ChunkMark;
pub use config::{Config, PAGE_BYTES};
pub use error::Error;
pub use forebay_base::process::epoch;
pub use lease::Lease;
pub use quarantine::Quarantined;
pub use reference::Reference;
pub use region::Region;
pub use registrar::{ChunkMemory, Registrar};
pub use stats::Stats;
pub use sys::copy;
pub use window::Window;
