//! Our side: the region in which only we write, and what the peer may read of it.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use forebay_memory::{Backing, ChunkMark, Config, Lease, Reference, Region};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::error::{Error, Result};
use crate::limit::{REGION_BYTES_MAX, REGION_CHUNK_BYTES, WINDOWS_MAX};
use crate::share::loans::PeerLoans;
use crate::stream::shm::lifeline::{self, Record};
use crate::stream::shm::{Name, layout, reclaim};
use crate::sys::shared::OwnBlock;

/// The region of this end.
#[derive(Debug)]
pub struct OwnRegion {
    lifeline: Arc<OwnedFd>,
    region: Region,
    /// Shared with received frames, which are released by a word in it.
    pub control: Arc<OwnBlock>,
    /// The eventfd by which the peer wakes us. Not a `Wakeup`: what a read of it returns says whether the lifeline is due.
    pub wakeup: OwnedFd,
    /// Announced chunks, ours and those of arenas, with their names on the wire.
    announced: HashMap<(u64, u32), (u32, ChunkMark)>,
    names_given: u32,
    /// Blocks given to the caller, by address; those that were freed since are detected as stale.
    allocated: BTreeMap<usize, Reference>,
    /// Bytes that did not lie in the region before they were sent.
    pub copied: u64,
}

impl OwnRegion {
    /// Make the region and say hello.
    pub fn new(lifeline: Arc<OwnedFd>) -> Result<Self> {
        // Each connection has one, and allocates under its lock: shelves per thread would not help.
        let config = Config::new("connection", REGION_BYTES_MAX)
            .chunk_bytes(REGION_CHUNK_BYTES)
            .backing(Backing::Pages)
            .shelf_bytes_max(0);
        let region = Region::new(config).map_err(|error| refused(&error))?;
        let lease = region
            .allocate(layout::BYTES)
            .map_err(|error| refused(&error))?;
        let reference = lease.reference();
        let mark = lease.chunk_mark();
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| system("eventfd", errno))?;
        let memory = lease.share_chunk().map_err(|error| refused(&error))?;
        let process = pidfd_open(getpid(), PidfdFlags::empty())
            .map_err(|errno| system("pidfd_open", errno))?;
        let control = Arc::new(OwnBlock::new(lease));
        let hello = Record::Hello {
            chunk: 0,
            offset: reference.offset,
            bytes: layout::BYTES as u64,
        };
        let given = [memory.as_fd(), wakeup.as_fd(), process.as_fd()];
        lifeline::send(&lifeline, hello, &given)
            .map_err(|errno| system("sendmsg of the hello", errno))?;
        Ok(Self {
            lifeline,
            region,
            control,
            wakeup,
            announced: HashMap::from([((reference.region, reference.chunk), (0, mark))]),
            names_given: 1,
            allocated: BTreeMap::new(),
            copied: 0,
        })
    }

    /// Memory of the region for the caller to fill in and send without a copy.
    pub fn allocate(&mut self, bytes: usize) -> Result<Lease> {
        let lease = self
            .region
            .allocate(bytes)
            .map_err(|error| refused(&error))?;
        let start = lease.as_ptr().as_ptr() as usize;
        // Entries that overlap were freed: the region does not give memory out twice.
        let end = start + bytes.max(1);
        let stale: Vec<usize> = self
            .allocated
            .range(start..end)
            .map(|(at, _)| *at)
            .collect();
        for at in stale {
            self.allocated.remove(&at);
        }
        self.allocated.insert(start, lease.reference());
        Ok(lease)
    }

    /// Lend a frame where it lies, in our region or in the given block of an arena; from anywhere else it is copied into
    /// our region first.
    ///
    /// `None` if there is no room, or too much is lent: then its bytes go through the ring.
    pub fn share(
        &mut self,
        loans: &PeerLoans,
        bytes: &[u8],
        block: Option<&Lease>,
    ) -> Option<Name> {
        let lent = block.and_then(|block| self.lend_block(loans, bytes, block));
        if lent.is_some() {
            return lent;
        }
        let (lease, skipped) = match self.find(bytes) {
            Some(found) => found,
            None => (self.copy(loans, bytes)?, 0),
        };
        self.lend(loans, bytes.len(), lease, skipped)
    }

    /// `None` also if the arena shares no more chunks: then the frame is copied.
    fn lend_block(&mut self, loans: &PeerLoans, bytes: &[u8], block: &Lease) -> Option<Name> {
        let start = block.as_ptr().as_ptr() as usize;
        let skipped = (bytes.as_ptr() as usize).checked_sub(start)?;
        if skipped.checked_add(bytes.len())? > block.len() {
            return None;
        }
        self.lend(loans, bytes.len(), block.clone(), skipped as u64)
    }

    fn lend(
        &mut self,
        loans: &PeerLoans,
        bytes: usize,
        lease: Lease,
        skipped: u64,
    ) -> Option<Name> {
        let chunk = self.announce(&lease)?;
        let offset = lease.reference().offset + skipped;
        let ticket = loans.settled(|ledger| ledger.lend(lease)).ok()?;
        Some(Name {
            chunk,
            slot: ticket.slot,
            generation: ticket.generation,
            offset,
            bytes: bytes as u64,
        })
    }

    /// Drop the loans of this region, which is given up and never written again. Those of arenas outlive the connection.
    pub fn forget_lent(&self, loans: &PeerLoans) {
        loans.forget(self.region.id());
    }

    /// The block that contains a frame, and the frame's offset in it.
    pub fn find(&self, bytes: &[u8]) -> Option<(Lease, u64)> {
        let address = bytes.as_ptr() as usize;
        let (start, reference) = self.allocated.range(..=address).next_back()?;
        let skipped = (address - start) as u64;
        let inside = skipped.checked_add(bytes.len() as u64)? <= reference.length;
        let lease = self.region.lease(reference).ok().filter(|_| inside)?;
        Some((lease, skipped))
    }

    fn copy(&mut self, loans: &PeerLoans, bytes: &[u8]) -> Option<Lease> {
        loans.settled(|_| ()); // what comes back has room for the copy, and is warm
        let mut lease = self.region.allocate(bytes.len()).ok()?;
        lease.bytes_mut()?.copy_from_slice(bytes);
        self.copied += bytes.len() as u64;
        Some(lease)
    }

    /// Announce chunks that are gone.
    fn forget_gone(&mut self) {
        let lifeline = &self.lifeline;
        self.announced.retain(|_, (name, mark)| {
            !mark.is_gone() || lifeline::send(lifeline, Record::Gone(*name), &[]).is_err()
        });
    }

    /// The wire name of a block's chunk. Announces a new chunk, and those that are gone.
    fn announce(&mut self, lease: &Lease) -> Option<u32> {
        let Reference { region, chunk, .. } = lease.reference();
        if let Some((name, _)) = self.announced.get(&(region, chunk)) {
            return Some(*name);
        }
        self.forget_gone();
        if self.announced.len() >= WINDOWS_MAX && reclaim() {
            self.forget_gone();
        }
        if self.announced.len() >= WINDOWS_MAX {
            return None;
        }
        let memory = lease.share_chunk().ok()?;
        let name = self.names_given;
        lifeline::send(&self.lifeline, Record::Chunk(name), &[memory.as_fd()]).ok()?;
        self.names_given = name.checked_add(1)?;
        let mark = lease.chunk_mark();
        self.announced.insert((region, chunk), (name, mark));
        Some(name)
    }
}

fn refused(error: &forebay_memory::Error) -> Error {
    match error {
        forebay_memory::Error::Full { limit, asked, .. } => Error::Limit {
            name: "region_bytes_max",
            limit: *limit,
            value: *asked,
        },
        other => Error::Memory(other.to_string()),
    }
}

pub fn system(what: &str, errno: rustix::io::Errno) -> Error {
    Error::System {
        what: what.to_owned(),
        errno,
    }
}
