//! What can go wrong, split by what the caller can do.

use rustix::io::Errno;

use crate::wire::role::Role;

/// Whether the work may have started at the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The frame was not completely handed to the kernel, or was refused unstarted.
    No,
    /// The kernel has the frame; what the peer did with it is unknown.
    Maybe,
}

/// Why a connection no longer works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    #[error("the peer closed the connection")]
    EndOfFile,
    #[error("the peer closed the connection in the middle of a frame")]
    Truncated,
    #[error("the connection failed: {0}")]
    Failed(Errno),
    #[error("TLS failed: {0}")]
    Tls(String),
    #[error("the stream ended without a TLS close_notify and may have been cut")]
    Unclosed,
    #[error(
        "the peer made no progress for {0:?}, in the middle of a message or with output waiting for it; \
         raise stall_timeout if it may pause for longer"
    )]
    Stalled(std::time::Duration),
    #[error("the peer process ended")]
    PeerDied,
    #[error("the peer said goodbye and takes no new calls")]
    Goodbye,
    #[error(
        "the call raised at the other side, and the description is above frame_bytes_max of either side; see its log, or raise with a shorter message"
    )]
    Undescribed,
    #[error("the call was cancelled at the other side")]
    Cancelled,
    #[error(
        "the peer does not support streams of results, by its preface; update it, or use a call"
    )]
    NoStreams,
}

/// How a peer broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    #[error("not a Forebay peer: the stream starts with {0:02x?}")]
    Magic([u8; 4]),
    #[error("unsupported protocol version {0} (this side speaks version 1)")]
    Version(u16),
    #[error("unknown role {0:#04x}")]
    Role(u8),
    #[error("unknown frame kind {0}")]
    Kind(u8),
    #[error("unknown flags {0:#04x}")]
    Flags(u8),
    #[error("a frame of {value} bytes is above frame_bytes_max ({limit})")]
    FrameBytes { limit: u64, value: u64 },
    #[error("the peer's frame_bytes_max of {value} is below the minimum for calls ({limit})")]
    PeerFrameBytes { limit: u64, value: u64 },
    #[error("{value} segments in a frame are above segments_max ({limit})")]
    Segments { limit: u16, value: u16 },
    #[error("no memory for {0} bytes of a frame")]
    Memory(usize),
    #[error("a call, or a credit for one, arrived at a side that does not serve")]
    NotServing,
    #[error(
        "the peer is a {0:?}, which does not fit this end: one speaks calls, the other messages"
    )]
    Purpose(Role),
    #[error("a message without frames")]
    Empty,
    #[error("the peer sent data before the token that this side requires; give token= to connect")]
    Uninvited,
    #[error("the token is wrong")]
    Token,
    #[error("the ring's {what} is {value:#x}, which is out of range")]
    Ring { what: &'static str, value: u64 },
    #[error("invalid control block: {bytes} bytes instead of {expected}")]
    Geometry { bytes: u64, expected: u64 },
    #[error(
        "invalid reference: {bytes} bytes at {offset:#x} of chunk {chunk} are not in the peer's memory"
    )]
    Reference { chunk: u32, offset: u64, bytes: u64 },
    #[error("invalid frame table: {0} bytes do not fit the message")]
    Table(usize),
    #[error("invalid control record: {0} bytes")]
    Record(usize),
    #[error("a control record came before the hello, or a second hello came")]
    Order,
    #[error("{0}")]
    Lending(&'static str),
    #[error("expected descriptors did not arrive; this process may have none left")]
    Descriptors,
    #[error("more than {limit} chunks of the peer are mapped at once (windows_max)")]
    Windows { limit: usize },
    #[error("call {0} arrived again while it is queued or running; an id is used once")]
    Repeated(u64),
    #[error("an item arrived for stream {0}, which is not open")]
    NoStream(u64),
    #[error("an item arrived for stream {0}, which has no credit left")]
    Overdrawn(u64),
    #[error("stream {0} began without its first credit")]
    Uncredited(u64),
    #[error("invalid credit {value} for stream {id} (limit {limit})")]
    Credit { id: u64, limit: u32, value: u32 },
    #[error("{0}")]
    Window(String),
    #[error("pickle is refused: the kernel does not confirm that the peer is the same user")]
    Pickle,
    #[error("pickle is refused: the peer's runtime {peer:#06x} is not ours, {own:#06x}")]
    Runtime { peer: u32, own: u32 },
}

/// Why a connection takes nothing any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Closed by this side.
    Closed,
    Broken(Cause),
    Protocol {
        offset: u64,
        violation: Violation,
    },
}

impl Fault {
    /// The error for a call that met this fault.
    pub fn to_error(&self, peer: &str, delivered: Delivered) -> Error {
        let peer = peer.to_owned();
        match self.clone() {
            Self::Closed => Error::Closed { peer },
            Self::Broken(cause) => Error::Broken {
                peer,
                cause,
                delivered,
            },
            Self::Protocol { offset, violation } => Error::Protocol {
                peer,
                offset,
                violation,
            },
        }
    }
}

/// The error of this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Closed by this side.
    #[error("the connection to {peer} is closed")]
    Closed { peer: String },
    /// The other side or the system failed.
    #[error("{peer}: {cause}")]
    Broken {
        peer: String,
        cause: Cause,
        delivered: Delivered,
    },
    /// The peer broke the protocol; the connection is closed.
    #[error("{peer} broke the protocol at byte {offset}: {violation}")]
    Protocol {
        peer: String,
        offset: u64,
        violation: Violation,
    },
    /// A named limit was reached by this side's own doing.
    #[error("{name}: {value} is above the limit of {limit}{}", advice(name))]
    Limit {
        name: &'static str,
        limit: u64,
        value: u64,
    },
    /// An item beyond what the caller of its stream has allowed.
    #[error(
        "stream {id} to {peer} has no credit left: 1 item is above its limit of 0; wait until it is ready"
    )]
    NoCredit { peer: String, id: u64 },
    /// A stream was asked for with a credit that there is not.
    #[error(
        "a stream of {peer} cannot be asked for {value} items at once; give a credit from 1 to the limit of {limit} (STREAM_CREDIT_MAX)"
    )]
    Credit {
        peer: String,
        limit: u32,
        value: u32,
    },
    /// The handle is from before a release.
    #[error("the lease of {peer} has ended; its service may belong to another caller")]
    Stale { peer: String },
    /// The deadline passed.
    #[error("the deadline passed while waiting for {peer}")]
    Deadline { peer: String },
    /// Two readers on one connection.
    #[error("the connection to {peer} is in use: {what}")]
    Busy { peer: String, what: &'static str },
    /// Used in another process than the one that made it.
    #[error(
        "the connection to {peer} belongs to process {owner} and cannot be used after a fork in {here}; open another"
    )]
    Forked { peer: String, owner: u32, here: u32 },
    /// A signal arrived: run its handler, then wait again.
    #[error("interrupted by a signal")]
    Interrupted,
    /// An argument is wrong; nothing has happened.
    #[error("{0}")]
    Config(String),
    /// There is no memory to share, or the kernel refused it.
    #[error("{0}")]
    Memory(String),
    /// A system call failed while a socket was made.
    #[error("{what}: {errno}")]
    System { what: String, errno: Errno },
}

/// What to do where a limit that users meet is reached.
fn advice(limit: &str) -> &'static str {
    match limit {
        "frame_bytes_max" => {
            "; a call, its result and an item are one frame each: send the data in parts, by several calls or as a stream"
        }
        "segments_max" => {
            "; each large buffer or array is a segment: join them, or send fewer at once"
        }
        _ => "",
    }
}

/// Result with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;
