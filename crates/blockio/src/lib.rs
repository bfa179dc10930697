//! Batches of block reads and writes through `io_uring`, with nothing allocated per block.
#![cfg(not(loom))] // `tests/loom.rs` includes what it checks
mod batch;
mod checksum;
mod clients;
mod completion;
mod config;
mod engines;
mod error;
mod file;
mod flight;
mod operation;
mod overlap;
mod port;
mod quarantine;
mod queue;
mod service;
mod shared;
mod sys;
mod totals;

pub use batch::{Batch, Files, Operations};
pub use checksum::{crc32c, record_checksum, record_checksums};
pub use completion::{Completions, Finished, GivingUp, Patient};
pub use config::{Choice, Config};
pub use engines::ring::probe::{Availability, availability};
pub use error::Error;
pub use file::{Alignment, BlockFile, Mode};
pub use flight::{Keep, Keeper};
pub use operation::{Kind, Operation};
pub use port::Port;
pub use queue::BlockQueue;
pub use shared::Stats;
pub use sys::lent::{Lent, Memory, Results};
pub use totals::{BACKENDS, KINDS, totals};
