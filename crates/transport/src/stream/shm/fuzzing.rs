//! What a process may claim in its shared memory and beside it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_memory::{Config, Lease, Region};
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::lifeline::Record;
use super::peer::PeerRegion;
use super::ring::{RingReader, RingWriter};
use super::{Name, layout};
use crate::limit::RING_BYTES;
use crate::sys::shared::OwnBlock;

/// An act of the peer: what it is, and 32 bytes of it.
pub const ACT_BYTES: usize = 33;
/// What an act's first byte says, modulo 3: a record beside the ring, the name of a frame, the cursors of the rings.
pub const RECORD: u8 = 0;
pub const NAME: u8 = 1;
#[cfg_attr(not(test), allow(dead_code))] // the third of three
pub const CURSORS: u8 = 2;

const REGION_BYTES: usize = 1 << 20;
/// Frames that are held at once.
const HELD_MAX: usize = 8;

/// Both sides' memory, which an input does not change.
struct Memory {
    _control: Lease,
    offset: u64,
    chunk: OwnedFd,
    own: Arc<OwnBlock>,
}

impl Memory {
    fn new() -> Self {
        let region = Region::new(Config::new("a peer", REGION_BYTES as u64)).expect("a region");
        let control = region.allocate(layout::BYTES).expect("room");
        let ours = Region::new(Config::new("ours", REGION_BYTES as u64)).expect("a region");
        let own = ours.allocate(layout::BYTES).expect("room");
        Self {
            offset: control.reference().offset,
            chunk: control.share_chunk().expect("a descriptor"),
            _control: control,
            own: Arc::new(OwnBlock::new(own)),
        }
    }

    fn chunk(&self) -> OwnedFd {
        self.chunk.try_clone().expect("a descriptor")
    }

    /// What comes with a hello.
    fn hello(&self) -> Vec<OwnedFd> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a wakeup");
        let process = pidfd_open(getpid(), PidfdFlags::empty()).expect("a process");
        vec![self.chunk(), wakeup, process]
    }

    fn theirs(&self) -> PeerRegion {
        let bytes = layout::BYTES as u64;
        PeerRegion::new(0, self.offset, bytes, self.hello()).expect("a hello")
    }
}

thread_local! {
    static MEMORY: Memory = Memory::new();
}

/// Records, names and cursors of a hostile process: what is opened of them lies inside its memory, and can be read.
///
/// # Panics
/// Where it does not.
pub fn shared(input: &[u8]) -> bool {
    MEMORY.with(|memory| {
        let mut theirs = memory.theirs();
        let (mut ours, mut incoming) = (RingWriter::default(), RingReader::default());
        let mut held = Vec::new();
        for act in input.chunks_exact(ACT_BYTES) {
            let mut said = [0; ACT_BYTES - 1];
            said.copy_from_slice(&act[1..]);
            let outcome = match act[0] % 3 {
                RECORD => Record::decode(&said).and_then(|record| match record {
                    Record::Hello {
                        chunk,
                        offset,
                        bytes,
                    } => {
                        theirs = PeerRegion::new(chunk, offset, bytes, memory.hello())?;
                        Ok(())
                    }
                    Record::Chunk(chunk) => theirs.add(chunk, vec![memory.chunk()]),
                    Record::Gone(chunk) => {
                        theirs.remove(chunk);
                        Ok(())
                    }
                }),
                NAME => theirs.open(&Name::decode(&said), &memory.own).map(|frame| {
                    let bytes = frame.as_slice();
                    assert!(bytes.len() <= REGION_BYTES);
                    // Both ends of it are mapped.
                    std::hint::black_box((bytes.first(), bytes.last()));
                    held.push(frame);
                    held.truncate(HELD_MAX);
                }),
                _ => {
                    let name = Name::decode(&said);
                    ours.room(name.generation).and_then(|room| {
                        let count = room.min(said[0].into());
                        inside(ours.ranges(count), count);
                        ours.advance(count);
                        let there = incoming.available(name.offset)?;
                        inside(incoming.ranges(there), there);
                        incoming.advance(there);
                        Ok(())
                    })
                }
            };
            if outcome.is_err() {
                return true;
            }
        }
        false
    })
}

fn inside(ranges: [(usize, usize); 2], count: usize) {
    let lengths: usize = ranges.iter().map(|range| range.1).sum();
    let within = |&(from, length): &(usize, usize)| from + length <= RING_BYTES;
    assert!(lengths == count && ranges.iter().all(within), "{ranges:?}");
}
