//! A byte stream through shared memory, with a Unix socket as its lifeline.
//!
//! Our ring is in our region: we write bytes and the tail; the peer reads them and shows its head in its own region.
//! A loop watches one descriptor, an epoll set of the wakeup and the lifeline; both are read only when it is ready.
//! Reading and writing make no system call, except the one that wakes a sleeping peer.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_base::process;
use forebay_memory::Lease;
use rustix::event::epoll;
use rustix::io::Errno;

use crate::error::{Error, Violation};
use crate::share::return_table;
use crate::stream::shm::lifeline::{self, Received, Record};
use crate::stream::shm::own::{OwnRegion, system};
use crate::stream::shm::peer::PeerRegion;
use crate::stream::shm::ring::{RingReader, RingWriter, Sleeper, Waker};
use crate::stream::shm::{NAME_BYTES, Name, layout, peers, reclaim_closed};
use crate::stream::unix::peer_uid;
use crate::stream::{Stream, StreamFault};
use crate::sys::buffer::Buffer;

/// The descriptor to watch, an epoll set of the wakeup and the lifeline, and the lifeline itself.
///
/// A sleeping thread keeps it, so that a close wakes it.
#[derive(Debug)]
pub struct Watched {
    set: OwnedFd,
    lifeline: Arc<OwnedFd>,
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// One end of the stream.
#[derive(Debug)]
pub struct SharedStream {
    watched: Arc<Watched>,
    own: OwnRegion,
    /// Once its hello has arrived.
    theirs: Option<PeerRegion>,
    outgoing: RingWriter,
    incoming: RingReader,
    for_input: Sleeper,
    for_room: Sleeper,
    /// The peer's sleeps.
    peer_for_input: Waker,
    peer_for_room: Waker,
    /// The lifeline has ended.
    ended: bool,
    owner: u64,
}

impl SharedStream {
    /// Begin on a connected Unix socket; our hello is sent at once.
    ///
    /// # Errors
    /// `Config` for a peer of another user, or another kind of socket; `System`, `Memory`.
    pub fn new(socket: OwnedFd) -> Result<Self, Error> {
        let (uid, own_uid) = (peer_uid(&socket)?, rustix::process::geteuid().as_raw());
        if uid != own_uid {
            return Err(Error::Config(format!(
                "shared memory connects processes of one user; the peer is of user {uid}, this is {own_uid}: use unix://"
            )));
        }
        reclaim_closed();
        let lifeline = Arc::new(socket);
        let own = OwnRegion::new(Arc::clone(&lifeline))?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| system("epoll_create", errno))?;
        for descriptor in [own.wakeup.as_fd(), lifeline.as_fd()] {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&set, descriptor, data, epoll::EventFlags::IN)
                .map_err(|errno| system("epoll_ctl", errno))?;
        }
        Ok(Self {
            watched: Arc::new(Watched { set, lifeline }),
            own,
            theirs: None,
            outgoing: RingWriter::default(),
            incoming: RingReader::default(),
            for_input: Sleeper::default(),
            for_room: Sleeper::default(),
            peer_for_input: Waker::default(),
            peer_for_room: Waker::default(),
            ended: false,
            owner: process::epoch(),
        })
    }

    /// What to watch for input, which also signals room and the end.
    pub fn watched(&self) -> Arc<Watched> {
        Arc::clone(&self.watched)
    }

    /// The Unix socket.
    pub fn lifeline(&self) -> &Arc<OwnedFd> {
        &self.watched.lifeline
    }

    /// The descriptor of what is watched.
    pub fn descriptor(&self) -> RawFd {
        self.watched.set.as_raw_fd()
    }

    /// Memory in our region, for a frame that is sent without a copy.
    ///
    /// # Errors
    /// `Limit` (`region_bytes_max`), `Memory`.
    pub fn allocate(&mut self, bytes: usize) -> Result<Lease, Error> {
        self.settle();
        self.own.allocate(bytes)
    }

    /// As [`Self::allocate`], for a copy that the caller makes without a lock.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    pub fn reserve(&mut self, bytes: usize) -> Result<Lease, Error> {
        let lease = self.allocate(bytes)?;
        self.own.copied += bytes as u64;
        Ok(lease)
    }

    /// Whether a frame lies in our region.
    pub fn holds(&self, bytes: &[u8]) -> bool {
        self.own.find(bytes).is_some()
    }

    /// Whether the peer may still read the memory of these bytes.
    pub fn is_lent(&self, bytes: &[u8]) -> bool {
        let asked = bytes.as_ptr_range();
        let overlaps = |lease: &Lease| {
            let start = lease.as_ptr().as_ptr().cast_const();
            let end = start.wrapping_add(lease.len());
            start < asked.end && asked.start < end
        };
        let theirs = self.theirs.as_ref();
        theirs.is_some_and(|theirs| theirs.loans.settled(|ledger| ledger.loans().any(overlaps)))
    }

    /// Drop the loans that the peer has returned; returns how many there are still.
    fn settle(&self) -> usize {
        let theirs = self.theirs.as_ref();
        theirs.map_or(0, |theirs| theirs.loans.lent())
    }

    /// Read the lifeline until it is empty.
    fn read_lifeline(&mut self) -> Result<(), StreamFault> {
        while !self.ended {
            match lifeline::receive(self.lifeline())? {
                Received::Nothing => break,
                Received::End => {
                    self.ended = true;
                    // It would be readable for ever.
                    let _ = epoll::delete(&self.watched.set, self.lifeline());
                }
                Received::Record(record, descriptors) => self.apply(record, descriptors)?,
            }
        }
        Ok(())
    }

    fn apply(&mut self, record: Record, descriptors: Vec<OwnedFd>) -> Result<(), Violation> {
        match (record, &mut self.theirs) {
            (
                Record::Hello {
                    chunk,
                    offset,
                    bytes,
                },
                theirs @ None,
            ) => {
                let region = PeerRegion::new(chunk, offset, bytes, descriptors)?;
                peers().add(&region.loans);
                *theirs = Some(region);
            }
            (Record::Chunk(chunk), Some(theirs)) => theirs.add(chunk, descriptors)?,
            (Record::Gone(chunk), Some(theirs)) => theirs.remove(chunk),
            (Record::Hello { .. }, Some(_)) | (_, None) => return Err(Violation::Order),
        }
        Ok(())
    }

    /// Bytes in the peer's ring.
    fn available(&self) -> Result<usize, Violation> {
        match &self.theirs {
            Some(theirs) => {
                let tail = theirs.control.load(layout::TAIL, Ordering::Acquire);
                self.incoming.available(tail)
            }
            None => Ok(0),
        }
    }

    /// Ask to be woken by the next byte, and check again; returns how many there are after all.
    fn sleep_for_input(&mut self) -> Result<usize, Violation> {
        let word = self.own.control.word(layout::SLEEPS_FOR_INPUT);
        self.for_input.arm(word);
        let there = self.available()?;
        if there > 0 {
            let word = self.own.control.word(layout::SLEEPS_FOR_INPUT);
            self.for_input.disarm(word);
        }
        Ok(there)
    }

    /// Copy into our ring what it has room for.
    fn copy_in(&mut self, pieces: &[IoSlice<'_>], skipped: usize) -> Result<usize, Violation> {
        let Some(theirs) = &self.theirs else {
            return Ok(0);
        };
        let head = theirs.control.load(layout::HEAD, Ordering::Acquire);
        let room = self.outgoing.room(head)?;
        let (mut count, mut skip) = (0, skipped);
        for piece in pieces {
            let bytes = &piece[skip.min(piece.len())..];
            skip -= skip.min(piece.len());
            let bytes = &bytes[..bytes.len().min(room - count)];
            let [(first, length), (second, _)] = self.outgoing.ranges(bytes.len());
            self.own
                .control
                .write(layout::RING + first, &bytes[..length]);
            self.own
                .control
                .write(layout::RING + second, &bytes[length..]);
            self.outgoing.advance(bytes.len());
            count += bytes.len();
        }
        if count > 0 {
            self.outgoing.publish(self.own.control.word(layout::TAIL));
            let shown = theirs
                .control
                .load(layout::SLEEPS_FOR_INPUT, Ordering::Acquire);
            if self.peer_for_input.must_wake(shown) {
                wake(&theirs.wakeup);
            }
        }
        Ok(count)
    }
}

impl Stream for SharedStream {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        if self.ended {
            return Err(Errno::PIPE.into());
        }
        let wanted: usize = pieces.iter().map(|piece| piece.len()).sum();
        let word = self.own.control.word(layout::SLEEPS_FOR_ROOM);
        self.for_room.disarm(word);
        let mut count = self.copy_in(pieces, 0)?;
        if count < wanted {
            let word = self.own.control.word(layout::SLEEPS_FOR_ROOM);
            self.for_room.arm(word);
            count += self.copy_in(pieces, count)?;
        }
        if count == 0 && wanted > 0 {
            return Err(Errno::AGAIN.into());
        }
        Ok(count)
    }

    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        // A new sleep gets a new number, since the peer does not wake twice for one.
        let word = self.own.control.word(layout::SLEEPS_FOR_INPUT);
        self.for_input.disarm(word);
        let mut there = self.available()?;
        if there == 0 {
            there = self.sleep_for_input()?;
        }
        let Some(theirs) = self.theirs.as_ref().filter(|_| there > 0) else {
            return if self.ended {
                Ok(&mut [])
            } else {
                Err(Errno::AGAIN.into())
            };
        };
        let count = there.min(into.len());
        let ranges = self
            .incoming
            .ranges(count)
            .map(|(from, bytes)| (layout::RING + from, bytes));
        let filled = theirs.control.read(ranges, into);
        self.incoming.advance(count);
        self.incoming.publish(self.own.control.word(layout::HEAD));
        let shown = theirs
            .control
            .load(layout::SLEEPS_FOR_ROOM, Ordering::Acquire);
        if self.peer_for_room.must_wake(shown) {
            wake(&theirs.wakeup);
        }
        if count == there {
            self.sleep_for_input()?; // bytes that arrived meanwhile are reported by `holds_received`
        }
        Ok(filled)
    }

    fn hung_up(&self) -> bool {
        self.ended || self.lifeline().hung_up()
    }

    fn holds_received(&self) -> bool {
        // An end, or a broken ring, is found by receiving.
        self.ended || self.available().map_or(true, |bytes| bytes > 0)
    }

    fn signals_room_as_input(&self) -> bool {
        true
    }

    fn woken(&mut self) -> Result<(), StreamFault> {
        let mut count = [0_u8; 8];
        match rustix::io::read(&self.own.wakeup, &mut count) {
            // Only the lifeline can have been it. After a wake-up epoll reports the lifeline by itself.
            Err(_) => self.read_lifeline(),
            Ok(_) => Ok(()),
        }
    }

    fn share(&mut self, bytes: &[u8], block: Option<&Lease>) -> Option<[u8; NAME_BYTES]> {
        let theirs = self.theirs.as_ref().filter(|_| !self.ended)?;
        let name = self.own.share(&theirs.loans, bytes, block)?;
        Some(name.encode())
    }

    fn open(&mut self, name: &[u8; NAME_BYTES]) -> Result<Buffer, StreamFault> {
        let name = Name::decode(name);
        // A chunk is announced before the first name in it is written.
        if self
            .theirs
            .as_ref()
            .is_some_and(|theirs| !theirs.has(name.chunk))
        {
            self.read_lifeline()?;
        }
        match &self.theirs {
            Some(theirs) => Ok(theirs.open(&name, &self.own.control)?),
            None => Err(Violation::Order.into()),
        }
    }

    fn copied(&self) -> u64 {
        self.own.copied
    }

    fn lent(&mut self) -> usize {
        self.settle()
    }
}

impl Drop for SharedStream {
    fn drop(&mut self) {
        if self.owner != process::epoch() {
            return; // a copy in a forked child: the loans are its parent's
        }
        let closed = layout::RETURNED + return_table::CLOSED;
        return_table::close(self.own.control.word(closed));
        if let Some(theirs) = self.theirs.take() {
            self.own.forget_lent(&theirs.loans);
        }
        reclaim_closed();
    }
}

/// Wake the peer. A full counter means that a wake-up is pending already.
fn wake(wakeup: &OwnedFd) {
    let _ = rustix::io::write(wakeup, &1_u64.to_ne_bytes());
}
