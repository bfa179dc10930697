//! What can go wrong with tensors.
use std::time::Duration;

/// Why a pull, a push, a peer or a table refused. Every message names the object, the value and the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting or an argument is wrong; nothing has happened.
    #[error("{setting} is {value}; {advice}")]
    Config {
        /// What is wrong.
        setting: &'static str,
        /// The value given.
        value: u64,
        /// What would be right.
        advice: &'static str,
    },
    /// A name cannot be one, or is taken.
    #[error("the name {name:?} of a tensor {advice}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it, and what would be right.
        advice: &'static str,
    },
    /// A name that means nothing.
    #[error("there is no tensor {name:?}{}", near(nearest))]
    UnknownName {
        /// The name.
        name: String,
        /// The nearest names that there are.
        nearest: Vec<String>,
    },
    /// A limit was reached.
    #[error("{limit} is {maximum}, and {value} would be needed; {advice}")]
    Limit {
        /// The limit's name.
        limit: &'static str,
        /// What it would take.
        value: u64,
        /// The limit.
        maximum: u64,
        /// What to try.
        advice: &'static str,
    },
    /// The tensor was dropped or replaced.
    #[error(
        "generation {held} of tensor {tensor} was {}; look its name up again",
        gone(*current)
    )]
    Stale {
        /// The tensor's id.
        tensor: u32,
        /// Generation of the handle.
        held: u32,
        /// Generation that there is now; 0 where there is none.
        current: u32,
    },
    /// A row that the tensor does not have.
    #[error("row {row} is outside of {}, which has {rows} rows, the first of them 0", named(*tensor))]
    OutOfRange {
        /// The tensor's id; `None` for one that lies over several shards.
        tensor: Option<u32>,
        /// The row asked for; a negative index is a number near 2^64.
        row: u64,
        /// Rows of the tensor.
        rows: u64,
    },
    /// The owner refused, in its own words.
    #[error("the owner refused: {text}")]
    Refused {
        /// Which kind of error it is.
        class: Class,
        /// What it said.
        text: String,
    },
    /// The peer has not shown the token that it was to show.
    #[error("{why}; give the right one by token=")]
    Unauthenticated {
        /// What it did instead.
        why: &'static str,
    },
    /// The rows are those of a file, which is only read here.
    #[error(
        "tensor {tensor} is rows of a file, and read-only here; append to the file, or publish an array"
    )]
    ReadOnly {
        /// The tensor's id.
        tensor: u32,
    },
    /// The rows do not lie where a device reaches them; they can be had over a stream.
    #[error("the tensor does not lie where an RDMA device reaches it; pull it over the stream")]
    NotInBlock,
    /// Rows of a file could not be read.
    #[error("{} of {path} cannot be read: {what} (errno {errno})", rows(*first, *last))]
    Unread {
        /// The file.
        path: String,
        /// The first row that was read together, by its number in the file.
        first: u64,
        /// The last one.
        last: u64,
        /// The system's number of the error.
        errno: i32,
        /// What it means.
        what: String,
    },
    /// The tensor was written again and again while it was pulled in pieces.
    #[error(
        "tensor {tensor} was written during each of {tries} tries to pull {bytes} bytes of one version; \
         pull no more than grant_bytes at once, or write it less often"
    )]
    Torn {
        /// The tensor's id.
        tensor: u32,
        /// Tries that were made.
        tries: u32,
        /// Bytes of the pull.
        bytes: u64,
    },
    /// The peer is gone, or the connection to it.
    #[error("the connection broke: {why}")]
    Broken {
        /// Why, in words that can be acted on.
        why: String,
    },
    /// Nothing was heard from the peer for too long.
    #[error(
        "the peer sent nothing for {silent:?} while something was outstanding (limit {limit:?})"
    )]
    Silent {
        /// How long it was silent.
        silent: Duration,
        /// The limit.
        limit: Duration,
    },
    /// The peer does not keep to the protocol; the connection is to be closed.
    #[error("the peer broke the protocol at byte {offset}: {what}")]
    Protocol {
        /// What it did.
        what: String,
        /// Bytes that had been received from it.
        offset: u64,
    },
    /// Time ran out.
    #[error("the deadline passed {late:?} ago")]
    Timeout {
        /// By how much.
        late: Duration,
    },
}

/// What the caller can do about an error: the names of the exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// `ConfigError`.
    Config,
    /// `LimitError`.
    Limit,
    /// `StaleError`.
    Stale,
    /// `OutOfRangeError`.
    OutOfRange,
    /// `BrokenError`.
    Broken,
    /// `ProtocolError`.
    Protocol,
    /// `TimeoutError`.
    Timeout,
}

impl Error {
    /// What the caller can do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Config { .. }
            | Self::Name { .. }
            | Self::UnknownName { .. }
            | Self::ReadOnly { .. }
            | Self::NotInBlock => Class::Config,
            Self::Limit { .. } => Class::Limit,
            Self::Stale { .. } => Class::Stale,
            Self::OutOfRange { .. } => Class::OutOfRange,
            Self::Refused { class, .. } => *class,
            Self::Torn { .. }
            | Self::Unauthenticated { .. }
            | Self::Unread { .. }
            | Self::Broken { .. }
            | Self::Silent { .. } => Class::Broken,
            Self::Protocol { .. } => Class::Protocol,
            Self::Timeout { .. } => Class::Timeout,
        }
    }
}

fn near(names: &[String]) -> String {
    match names {
        [] => String::new(),
        _ => format!("; the nearest that there are: {names:?}"),
    }
}

fn rows(first: u64, last: u64) -> String {
    match last - first {
        0 => format!("row {first}"),
        _ => format!("one of rows {first} to {last}"),
    }
}

fn named(tensor: Option<u32>) -> String {
    tensor.map_or("the tensor".to_owned(), |id| format!("tensor {id}"))
}

fn gone(current: u32) -> String {
    match current {
        0 => "dropped".to_owned(),
        _ => format!("replaced by generation {current}"),
    }
}
