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
        /// What to use instead.
        advice: &'static str,
    },
    /// A name is invalid, or taken.
    #[error("the name {name:?} of a tensor {advice}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it, and what to use instead.
        advice: &'static str,
    },
    /// No tensor has this name.
    #[error("unknown tensor {name:?}{}", similar(nearest))]
    UnknownName {
        /// The name.
        name: String,
        /// The most similar existing names.
        nearest: Vec<String>,
    },
    /// A limit was reached.
    #[error("{limit} is {maximum}, but {value} is needed; {advice}")]
    Limit {
        /// The limit's name.
        limit: &'static str,
        /// The value that was needed.
        value: u64,
        /// The limit.
        maximum: u64,
        /// What to do.
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
        /// The current generation; 0 if the tensor was dropped.
        current: u32,
    },
    /// A row that the tensor does not have.
    #[error("row {row} is outside of {}, which has {rows} rows, the first of them 0", named(*tensor))]
    OutOfRange {
        /// The tensor's id; `None` for one that is spread over several shards.
        tensor: Option<u32>,
        /// The requested row; a negative index appears as a number close to 2^64.
        row: u64,
        /// Rows of the tensor.
        rows: u64,
    },
    /// The owner refused the request.
    #[error("the owner refused: {text}")]
    Refused {
        /// Which kind of error it is.
        class: Class,
        /// The owner's message.
        text: String,
    },
    /// The peer did not authenticate with the server's token.
    #[error("{why}; give the right one by token=")]
    Unauthenticated {
        /// What it sent instead.
        why: &'static str,
    },
    /// The tensor is backed by a file, which the server only reads.
    #[error(
        "tensor {tensor} is backed by a file and read-only; append to the file, or publish an array"
    )]
    ReadOnly {
        /// The tensor's id.
        tensor: u32,
    },
    /// The rows are outside of the blocks that the device can read; the stream can carry them.
    #[error("the RDMA device cannot read the tensor's memory; pull it over the stream")]
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
        /// The system's description of it.
        what: String,
    },
    /// The tensor was written during each attempt to pull it in pieces.
    #[error(
        "tensor {tensor} was written during each of {tries} attempts to pull {bytes} bytes of one version; \
         pull no more than grant_bytes at once, or write it less often"
    )]
    Torn {
        /// The tensor's id.
        tensor: u32,
        /// Attempts that were made.
        tries: u32,
        /// Bytes of the pull.
        bytes: u64,
    },
    /// The peer or the connection to it is gone.
    #[error("the connection broke: {why}")]
    Broken {
        /// Why.
        why: String,
    },
    /// The peer sent nothing for too long.
    #[error(
        "the peer sent nothing for {silent:?} while requests were outstanding (limit {limit:?})"
    )]
    Silent {
        /// How long it was silent.
        silent: Duration,
        /// The limit.
        limit: Duration,
    },
    /// The peer violated the protocol; the connection must be closed.
    #[error("the peer violated the protocol at byte {offset}: {what}")]
    Protocol {
        /// What it did.
        what: String,
        /// Bytes that had been received from it.
        offset: u64,
    },
    /// The deadline passed.
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

fn similar(names: &[String]) -> String {
    match names {
        [] => String::new(),
        _ => format!("; similar names: {names:?}"),
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
