//! What one peer is lent, and which chunks it was told of.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_memory::{ChunkMark, Window};

use crate::error::Violation;
use crate::limit::WINDOWS_MAX;
use crate::share::board;
use crate::share::depot::{Depot, Desk};
use crate::stream::shm::Name;
use crate::sys::process;
use crate::sys::shared::{Aside, Theirs as Board};

/// Our side towards a peer that borrows.
#[derive(Debug)]
pub struct Lender {
    desk: Desk,
    announced: HashMap<u32, ChunkMark>,
    /// The last field: it acts once the desk is gone.
    _leaver: Leaver,
}

/// Has the depot look at its books when a lender has gone.
#[derive(Debug)]
struct Leaver {
    depot: Arc<Depot>,
    owner: u64,
}

impl Lender {
    /// Begin with what came with the word that the peer borrows. `None`: this process has no memory to lend.
    pub fn new(
        descriptors: [OwnedFd; 2],
        lends_any_length: bool,
    ) -> Result<Option<Self>, Violation> {
        let [board, process] = descriptors;
        let window = Window::open(&board).map_err(|error| Violation::Window(error.to_string()))?;
        let geometry = Violation::Geometry {
            bytes: window.len() as u64,
            expected: board::BYTES as u64,
        };
        let board = Board::new(Arc::new(window), 0, board::BYTES).ok_or(geometry)?;
        Ok(Depot::here().map(|depot| Self {
            desk: Arc::clone(&depot).open(board, process, lends_any_length),
            announced: HashMap::new(),
            _leaver: Leaver {
                depot,
                owner: process::current(),
            },
        }))
    }

    /// Where to put segments for this peer.
    pub fn desk(&self) -> Desk {
        self.desk.clone()
    }

    /// Segments that the peer may still read.
    pub fn lent(&self) -> usize {
        self.desk.book.settle()
    }

    /// Chunks that the peer was told of and that are gone.
    pub fn gone(&mut self) -> Vec<u32> {
        let gone = self.announced.extract_if(|_, mark| mark.is_gone());
        gone.map(|(chunk, _)| chunk).collect()
    }

    /// Lend what was put aside at our desk; `None` where too much is lent, or no descriptor is left.
    ///
    /// `announce` tells the peer of a chunk that it does not know; false: it cannot.
    pub fn lend(
        &mut self,
        aside: Aside,
        announce: impl FnOnce(u32, OwnedFd) -> bool,
    ) -> Option<Name> {
        let lease = aside.into_lease();
        let reference = lease.reference();
        if !self.announced.contains_key(&reference.chunk) {
            let room = self.announced.len() < WINDOWS_MAX;
            let memory = lease.share_chunk().ok().filter(|_| room)?;
            if !announce(reference.chunk, memory) {
                return None;
            }
            self.announced.insert(reference.chunk, lease.chunk_mark());
        }
        let ticket = self.desk.lend(lease)?;
        Some(Name {
            chunk: reference.chunk,
            place: ticket.place,
            generation: ticket.generation,
            offset: reference.offset,
            bytes: reference.length,
        })
    }
}

impl Drop for Leaver {
    fn drop(&mut self) {
        // A copy in a forked child has no say in what is lent.
        if self.owner == process::current() {
            self.depot.sweep();
        }
    }
}
