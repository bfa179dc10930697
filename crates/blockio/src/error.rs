//! What can go wrong with block I/O.
use std::io;
use std::path::PathBuf;

/// Why a queue or a file refused. Every message names the object, the value and the next step.
///
/// An operation that fails is no error of the call: its result is a negative `errno` (see `BlockQueue`).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is wrong; nothing has happened.
    #[error("{setting} is {value}; {advice}")]
    Config {
        /// What is wrong.
        setting: &'static str,
        /// The value given.
        value: u64,
        /// What would be right.
        advice: &'static str,
    },
    /// An operation of a batch is wrong; none of the batch was submitted.
    #[error(
        "operation {index}: {field} is {value}; {advice} {limit}; nothing of the batch was submitted"
    )]
    Operation {
        /// Which operation.
        index: usize,
        /// What is wrong with it.
        field: &'static str,
        /// The value given.
        value: u64,
        /// The rule that it breaks, to be read before the limit.
        advice: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A file cannot be opened.
    #[error("cannot open {} {how}: {source}{advice}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The way it was asked for.
        how: &'static str,
        /// The system's error.
        source: io::Error,
        /// What to try, or nothing.
        advice: &'static str,
    },
    /// The queue was closed by its owner.
    #[error("the block queue is closed; make another one")]
    Closed,
    /// A forked child used a port of its parent, whose descriptor both would read; it makes one of its own.
    #[error(
        "this {what} belongs to process {owner}, not to its forked child {child}: make one in the child"
    )]
    Forked {
        /// What was used.
        what: &'static str,
        /// Process that made it.
        owner: u32,
        /// Process that asked.
        child: u32,
    },
    /// Another thread used what belongs to one thread.
    #[error(
        "this {what} belongs to another thread: make one in this thread, or hand batches to the I/O thread with submit"
    )]
    Thread {
        /// What was used.
        what: &'static str,
    },
    /// The engine that was asked for is not to be had here.
    #[error("no io_uring here: {reason}; leave the engine at \"auto\" to have threads instead")]
    Unavailable {
        /// Why, in words that can be acted on.
        reason: String,
    },
    /// Too much memory of cancelled operations is still the kernel's.
    #[error(
        "{value} bytes of cancelled operations are still the kernel's to write, above max_quarantine_bytes, which is {limit}; \
         wait for the device, or cancel less"
    )]
    Quarantine {
        /// Bytes in quarantine.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// The caller asked to stop waiting; the batch was cancelled.
    #[error("interrupted; {left} operations are still the kernel's")]
    Interrupted {
        /// Operations in flight that were left behind.
        left: u32,
    },
    /// The kernel refused.
    #[error("{call} failed: {source}{advice}")]
    System {
        /// The system call.
        call: &'static str,
        /// The system's error.
        source: io::Error,
        /// What to try, or nothing.
        advice: &'static str,
    },
    /// The memory crate refused.
    #[error(transparent)]
    Memory(#[from] forebay_memory::Error),
    /// The wake-up of completions failed.
    #[error(transparent)]
    Wake(#[from] forebay_base::Error),
}

impl Error {
    /// An error of a system call with nothing to advise.
    pub(crate) fn system(call: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System {
            call,
            source: source.into(),
            advice: "",
        }
    }
}
