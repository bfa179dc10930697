//! Our side: the region in which we alone write, and what of it the peer may read.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use forebay_memory::{Config, Lease, Reference, Region};
use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Error, Result};
use crate::limit::{REGION_BYTES_MAX, REGION_CHUNK_BYTES};
use crate::shm::ledger::Ledger;
use crate::shm::lifeline::{self, Record};
use crate::shm::{Name, layout};
use crate::sys::shared::Own as Control;

/// The region of this end.
#[derive(Debug)]
pub struct Own {
    region: Region,
    /// Shared with received frames, which give themselves back by a word in it.
    pub control: Arc<Control>,
    /// What the peer writes to wake us.
    pub bell: OwnedFd,
    ledger: Ledger<Lease>,
    /// Chunks that the peer was told of.
    announced: Vec<u32>,
    /// Blocks given to the caller, by address; those that were freed since are found to be stale.
    allocated: BTreeMap<usize, Reference>,
}

impl Own {
    /// Make the region and say hello.
    pub fn new(socket: &OwnedFd) -> Result<Self> {
        let config = Config::new("connection", REGION_BYTES_MAX).chunk_bytes(REGION_CHUNK_BYTES);
        let region = Region::new(config).map_err(|error| refused(&error))?;
        let lease = region
            .allocate(layout::BYTES)
            .map_err(|error| refused(&error))?;
        let Reference { chunk, offset, .. } = lease.reference();
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| system("eventfd", errno))?;
        let memory = region.share_chunk(chunk).map_err(|error| refused(&error))?;
        let control = Arc::new(Control::new(lease));
        let hello = Record::Hello {
            chunk,
            offset,
            bytes: layout::BYTES as u64,
        };
        lifeline::send(socket, hello, &[memory.as_fd(), bell.as_fd()])
            .map_err(|errno| system("sendmsg of the hello", errno))?;
        Ok(Self {
            region,
            control,
            bell,
            ledger: Ledger::default(),
            announced: vec![chunk],
            allocated: BTreeMap::new(),
        })
    }

    /// Memory of the region for the caller to fill in and send without a copy.
    pub fn allocate(&mut self, bytes: usize) -> Result<Lease> {
        let lease = self
            .region
            .allocate(bytes)
            .map_err(|error| refused(&error))?;
        let start = lease.as_ptr().as_ptr() as usize;
        // What else is remembered there was freed: the region would not have given it out twice.
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

    /// Have the peer read a frame where it lies in the region; it is copied there first if it lies elsewhere.
    ///
    /// `None` where there is no room, or too much is lent: then its bytes go through the ring.
    pub fn share(&mut self, socket: &OwnedFd, bytes: &[u8]) -> Option<Name> {
        let (lease, skipped) = match self.find(bytes) {
            Some(found) => found,
            None => (self.copy(bytes)?, 0),
        };
        let Reference { chunk, offset, .. } = lease.reference();
        if !self.announced.contains(&chunk) {
            self.announce(socket, chunk)?;
        }
        let ticket = self.ledger.lend(lease).ok()?;
        Some(Name {
            chunk,
            place: ticket.place,
            generation: ticket.generation,
            offset: offset + skipped,
            bytes: bytes.len() as u64,
        })
    }

    /// Take back what the peer has given back, by the words that it shows.
    pub fn settle(&mut self, returned: impl Fn(u32) -> u64) {
        self.ledger.settle(returned);
    }

    /// Frames that the peer may still read.
    pub fn lent(&self) -> usize {
        self.ledger.len()
    }

    /// The block in which a frame lies, and where in it.
    fn find(&self, bytes: &[u8]) -> Option<(Lease, u64)> {
        let address = bytes.as_ptr() as usize;
        let (start, reference) = self.allocated.range(..=address).next_back()?;
        let skipped = (address - start) as u64;
        let inside = skipped.checked_add(bytes.len() as u64)? <= reference.length;
        let lease = self.region.lease(reference).ok().filter(|_| inside)?;
        Some((lease, skipped))
    }

    fn copy(&mut self, bytes: &[u8]) -> Option<Lease> {
        let mut lease = self.region.allocate(bytes.len()).ok()?;
        lease.bytes_mut()?.copy_from_slice(bytes);
        Some(lease)
    }

    /// Tell the peer of a chunk, and of those that went when the region made room for it.
    fn announce(&mut self, socket: &OwnedFd, chunk: u32) -> Option<()> {
        let region = &self.region;
        self.announced.retain(|&known| {
            !is_gone(region, known) || lifeline::send(socket, Record::Gone(known), &[]).is_err()
        });
        let memory = region.share_chunk(chunk).ok()?;
        lifeline::send(socket, Record::Chunk(chunk), &[memory.as_fd()]).ok()?;
        self.announced.push(chunk);
        Some(())
    }
}

/// Whether the region has given a chunk up; not, whether a descriptor is left to show it.
fn is_gone(region: &Region, chunk: u32) -> bool {
    match region.share_chunk(chunk) {
        Err(forebay_memory::Error::System { source, .. }) => source.kind() == ErrorKind::NotFound,
        _ => false,
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
