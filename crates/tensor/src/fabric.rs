//! What a fabric beside the stream does: it writes rows into the requester's memory, or reads them from the owner's.
//!
//! A crate above this one implements these traits, such as `forebay-verbs` for RDMA devices; the program gives its
//! [`Provider`] to a server, and its [`RequesterEndpoint`] to a link. Both sides fall back to the stream if a fabric
//! refuses a pull or is lost. The traits are used as trait objects: a pull makes three calls and a turn one, which
//! costs nanoseconds where a pull over a device takes microseconds, and servers and links need no type parameter.
//!
//! | trait | used by | what |
//! |---|---|---|
//! | [`Provider`] | a server's thread | knows memory, and connects requesters that introduce themselves |
//! | [`ResponderEndpoint`] | a server's thread, for each connection | answers requests from a [`Source`] |
//! | [`RequesterEndpoint`] | a link | pulls slices of rows into blocks |
//! | [`Source`] | an endpoint; implemented by an owner of tensors, such as a shard | where rows are |
use std::fmt;
use std::os::fd::AsFd;
use std::time::Instant;

use forebay_memory::Lease;

use crate::error::Error;
use crate::table::Key;

/// Where an owner's tensors are. Blocks lie in regions that the fabric knows.
pub trait Source {
    /// The memory of rows; `None` if they are not in a block.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`] and [`Error::OutOfRange`], which are reported to the peer; other errors end its connection.
    fn rows(&self, key: Key, first: u64, rows: u64) -> Result<Option<BlockRange<'_>>, Error>;

    /// The block of a whole tensor, for a peer to read by itself; `None` if it is not in a block, or may be written.
    ///
    /// # Errors
    ///
    /// As [`Source::rows`].
    fn whole(&self, key: Key) -> Result<Option<&Lease>, Error>;
}

/// Consecutive bytes of a block.
#[derive(Clone, Copy, Debug)]
pub struct BlockRange<'a> {
    /// The block.
    pub block: &'a Lease,
    /// The first byte, counted from the start of the block.
    pub offset: usize,
    /// How many bytes.
    pub bytes: usize,
}

/// The fabric of a process, such as its RDMA device, as a server uses it.
pub trait Provider: fmt::Debug + Send + Sync {
    /// Check that the fabric knows the memory of a block.
    ///
    /// # Errors
    ///
    /// Why the fabric does not know it.
    fn check(&self, block: &Lease) -> Result<(), Error>;

    /// Connect to a requester that sent this introduction over a stream, and grant it at most `slots_max` requests.
    /// Returns the endpoint and the answer for the requester. The caller watches the stream for its end.
    ///
    /// # Errors
    ///
    /// [`Error::Protocol`] for an invalid introduction, [`Error::Broken`] where the fabric refuses. Does not wait for
    /// the requester.
    fn accept(
        &self,
        introduction: &[u8],
        slots_max: u32,
    ) -> Result<(Box<dyn ResponderEndpoint>, Vec<u8>), Error>;
}

/// The owner's end of one connection. Its descriptor is readable once something has come since the last turn. Once it
/// is dropped, nothing of the peer's lands.
pub trait ResponderEndpoint: AsFd + Send {
    /// Answer what has come, without waiting; how many requests that were.
    ///
    /// # Errors
    ///
    /// Why the connection is over. Nothing of the peer's lands from then on.
    fn turn(&mut self, source: &dyn Source) -> Result<usize, Error>;

    /// Whether the fabric may still read one of these bytes for an answer.
    fn is_sending(&self, start: usize, bytes: usize) -> bool;

    /// Wait until the fabric reads none of these bytes any more, because they are to be changed. Requests that come
    /// meanwhile are answered by the next turn, which is due then.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] once `deadline` has passed; why the connection is over, after which nothing is read.
    fn settle(&mut self, start: usize, bytes: usize, deadline: Instant) -> Result<(), Error>;

    /// End the connection: from here on nothing of the peer's lands, and nothing is read for it.
    fn fence(&mut self, error: Error);

    /// Whether a turn has something to do of which the descriptor says nothing: requests that came while rows were
    /// settled, or the end of the connection.
    fn is_due(&self) -> bool;
}

/// A slice of rows to pull over a fabric.
#[derive(Debug)]
pub struct FabricPull {
    /// The caller's number of it, which comes back with its end.
    pub token: u64,
    /// The tensor.
    pub tensor: Key,
    /// The first row.
    pub first: u64,
    /// How many rows.
    pub rows: u64,
    /// The block that they go to. No reference to its bytes may be used until the pull has ended.
    pub into: Lease,
    /// Where in the block.
    pub at: usize,
    /// How many bytes the rows have.
    pub bytes: usize,
}

/// How a pull ended: nothing of it lands from then on.
#[derive(Debug)]
pub struct Completion {
    /// The caller's number of it.
    pub token: u64,
    /// Whether the rows are there; where not, the bytes of its destination are undefined.
    pub result: Result<(), Error>,
}

/// The requester's end of one connection. Its descriptor is readable once something has come since the last turn. Once
/// it is dropped, nothing of the owner's lands.
pub trait RequesterEndpoint: AsFd + Send {
    /// Whether a pull of so many bytes can go into this block: the fabric knows its memory, and one request moves them.
    fn reaches(&self, block: &Lease, bytes: usize) -> bool;

    /// Whether a pull would find a slot.
    fn has_free_slot(&self) -> bool;

    /// Begin a pull.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] where no slot is free, [`Error::Config`] where the fabric does not reach the block; why the
    /// connection is over.
    fn pull(&mut self, pull: FabricPull) -> Result<(), Error>;

    /// Take what has come, without waiting. What ended is added to `completions`, also where the turn fails.
    ///
    /// # Errors
    ///
    /// Why the connection is over; [`RequesterEndpoint::break_off`] ends what is pending.
    fn turn(&mut self, completions: &mut Vec<Completion>) -> Result<(), Error>;

    /// The caller no longer waits for this pull: its block is in quarantine until the pull has ended.
    fn cancel(&mut self, token: u64);

    /// Release every block that no pull goes to now and that is kept for the next one. Waits for the fabric, for
    /// half a second at most; what comes meanwhile is taken by the next turn.
    ///
    /// # Errors
    ///
    /// Why the connection is over.
    fn release_blocks(&mut self) -> Result<(), Error>;

    /// End the connection: from here on nothing of the owner's lands, and what is pending has no completion.
    fn break_off(&mut self, error: Error);
}
