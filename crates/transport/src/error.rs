//! What can go wrong, split by what the caller can do.

use rustix::io::Errno;

use crate::stream::StreamFault;

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
        "the peer did not move on for {0:?}, with a message half sent or output that waits for it; \
         raise stall_timeout if it may stand still for longer"
    )]
    Stalled(std::time::Duration),
    #[error("the peer process ended")]
    PeerDied,
    #[error("the peer said goodbye and takes no new calls")]
    Goodbye,
    #[error(
        "the call raised at the other side, and the description is above frame_bytes_max of either side; its log or a shorter message tells more"
    )]
    Undescribed,
    #[error("the call was cancelled at the other side")]
    Cancelled,
    #[error(
        "the peer does not speak streams of results, its preface says; update it, or use a call"
    )]
    NoStreams,
}

impl From<StreamFault> for Cause {
    fn from(fault: StreamFault) -> Self {
        match fault {
            StreamFault::Errno(errno) => Self::Failed(errno),
            StreamFault::Tls(text) => Self::Tls(text),
            StreamFault::Truncated => Self::Unclosed,
            // States make a fault of their own of it, which names the offset.
            StreamFault::Violation(_) => Self::Failed(Errno::PROTO),
        }
    }
}

/// How a peer broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    #[error("this is no Forebay peer: the stream starts with {0:02x?}")]
    Magic([u8; 4]),
    #[error("protocol version {0} is not spoken here (version 1 is)")]
    Version(u16),
    #[error("unknown role {0:#04x}")]
    Role(u8),
    #[error("unknown frame kind {0}")]
    Kind(u8),
    #[error("unknown flags {0:#04x}")]
    Flags(u8),
    #[error("a frame of {value} bytes is above frame_bytes_max ({limit})")]
    FrameBytes { limit: u64, value: u64 },
    #[error(
        "its frame_bytes_max of {value} is below what a peer of calls takes at least ({limit})"
    )]
    PeerFrameBytes { limit: u64, value: u64 },
    #[error("{value} segments in a frame are above segments_max ({limit})")]
    Segments { limit: u16, value: u16 },
    #[error("no memory for {0} bytes of a frame")]
    Memory(usize),
    #[error("a call or credit for one arrived at an end that does not serve")]
    NotServing,
    #[error(
        "the peer is a {0:?}, which does not fit this end: one speaks calls, the other messages"
    )]
    Purpose(crate::wire::preface::Role),
    #[error("a message has no frame")]
    Empty,
    #[error("it sent something before the token that this side asks for; give token= to connect")]
    Uninvited,
    #[error("the token is wrong")]
    Token,
    #[error("the ring's {what} is {value:#x}, which cannot be")]
    Ring { what: &'static str, value: u64 },
    #[error("a control block of {bytes} bytes is not the one spoken here ({expected} bytes)")]
    Geometry { bytes: u64, expected: u64 },
    #[error("a frame of {bytes} bytes at {offset:#x} of chunk {chunk} is not in the peer's memory")]
    Reference { chunk: u32, offset: u64, bytes: u64 },
    #[error("a table of {0} bytes does not fit its message")]
    Table(usize),
    #[error("a record of {0} bytes on the lifeline is none")]
    Record(usize),
    #[error("a record on the lifeline came before the hello, or a second hello did")]
    Order,
    #[error("{0}")]
    Lending(&'static str),
    #[error("descriptors did not come with what they belong to; are any left to this process?")]
    Descriptors,
    #[error("more than {limit} chunks of the peer are mapped at once (windows_max)")]
    Windows { limit: usize },
    #[error("call {0} arrived again while it waits or runs; an id is used once")]
    Repeated(u64),
    #[error("an item of stream {0} arrived, which is not open")]
    NoStream(u64),
    #[error("an item of stream {0} arrived for which no credit was left")]
    Overdrawn(u64),
    #[error("stream {0} began without its first credit")]
    Uncredited(u64),
    #[error("a credit of {value} for stream {id} is none, or brings it above {limit}")]
    Credit { id: u64, limit: u32, value: u32 },
    #[error("{0}")]
    Window(String),
    #[error("pickle is refused: the kernel does not say that the peer is the same user")]
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
        "stream {id} to {peer} has no credit left: 1 item is above its limit of 0; wait until its standing is ready"
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
    #[error("the lease of {peer} ended; what it named belongs to somebody else")]
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
