//! A request, from its submission to its end. This module decides nothing.

use std::sync::Arc;

use crate::id::RequestId;

/// Milliseconds since 1970 by a clock that does not step: the wall clock's at the start, plus the time that has passed.
pub type Millis = u64;

/// The slot of a worker. A slot is reused, but never while its last worker lives.
pub type Slot = u32;

/// Opaque bytes: encoded arguments, encoded results.
pub type Blob = Arc<[u8]>;

/// The kind of work of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Lane {
    /// Short work, which never waits behind the long ones.
    Short = 0,
    Long = 1,
    /// Cooperative: thousands share one worker.
    Async = 2,
}

impl Lane {
    pub const ALL: [Self; 3] = [Self::Short, Self::Long, Self::Async];

    /// As it is written for people and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
            Self::Async => "async",
        }
    }

    /// The lane of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }
}

/// How and when a request may run: the application's defaults, overridden by the submission.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub lane: Lane,
    /// Higher ones first, among a submitter's own.
    pub priority: i32,
    /// Of one run, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Runs after the first, each after a failure, a death or a time-out.
    pub retries: u32,
    pub backoff_ms: u64,
    pub backoff_max_ms: u64,
    /// It may run twice even without retries: its claim may be committed after its dispatch.
    pub idempotent: bool,
    /// At most `key_at_once` requests of a key run at once.
    pub key: Option<Arc<str>>,
    pub key_at_once: u32,
    /// A second submission with the same key returns the first request.
    pub idempotency: Option<Arc<str>>,
    /// Its need beyond an idle worker, if the application states it.
    pub memory_bytes: Option<u64>,
    /// Thousandths of a core.
    pub cpu_milli: u32,
    /// Further requests of its name that a worker is handed while it still runs one.
    pub ahead: u32,
    /// It waits until these have succeeded, and fails if one does not.
    pub after: Vec<RequestId>,
    /// It waits until this time.
    pub not_before: Option<Millis>,
    /// The span of the submitter's trace, as the W3C writes it.
    pub traceparent: Option<Arc<str>>,
    /// The request that submitted it, of this server or another one.
    pub parent: Option<RequestId>,
    /// It is a child of that request, which runs here.
    pub child: Option<Child>,
    /// Who submitted it, where the gateway said so.
    pub by: Option<Arc<str>>,
    /// Some of its arguments are secret, and sealed.
    pub sealed: bool,
    /// The most unfinished requests of its submitter, where the gateway said so; for a retry too.
    pub quota: Option<u32>,
}

/// What a request is to the one that has submitted it as its child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Child {
    /// Which submission of its parent it is: the same one in each run of the parent.
    pub call: u32,
    /// The run of its parent that submits it; not kept.
    pub attempt: u32,
    /// How many requests are above it.
    pub depth: u32,
    /// A hash of its name and arguments.
    pub digest: u64,
}

impl Options {
    /// How many requests are above it.
    pub fn depth(&self) -> u32 {
        self.child.map_or(0, |child| child.depth)
    }

    /// The request whose child it is.
    pub fn parent_of_child(&self) -> Option<RequestId> {
        self.parent.filter(|_| self.child.is_some())
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lane: Lane::Long,
            priority: 0,
            timeout_ms: None,
            retries: 0,
            backoff_ms: 1_000,
            backoff_max_ms: 300_000,
            idempotent: false,
            key: None,
            key_at_once: 1,
            idempotency: None,
            memory_bytes: None,
            cpu_milli: 1_000,
            ahead: 0,
            after: Vec::new(),
            not_before: None,
            traceparent: None,
            parent: None,
            child: None,
            by: None,
            sealed: false,
            quota: None,
        }
    }
}

/// What a submitter asks for.
#[derive(Clone, Debug)]
pub struct Submission {
    pub name: Arc<str>,
    /// The hash of the code that is to run it.
    pub code: Arc<str>,
    /// Requests of different submitters take turns.
    pub submitter: Arc<str>,
    pub arguments: Blob,
    pub options: Arc<Options>,
}

/// An accepted request; it never changes.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: RequestId,
    pub accepted_at: Millis,
    pub submission: Submission,
}

/// The stored status of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    Queued = 0,
    Running = 1,
    Succeeded = 2,
    Failed = 3,
    Cancelled = 4,
    /// Set aside: it kept killing its worker. An operator may retry it.
    Dead = 5,
}

impl Status {
    pub const ALL: [Self; 6] = [
        Self::Queued,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Dead,
    ];

    /// As it is written for people and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Dead => "dead",
        }
    }

    /// The status of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    pub fn has_ended(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

/// How a process ended, as its keeper reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// "exit", "signal", "memory", "time", "server" or "unknown".
    pub cause: Arc<str>,
    pub pid: i32,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub peak_bytes: Option<u64>,
    pub limit_bytes: Option<u64>,
    pub last_output: Arc<str>,
}

impl Death {
    /// A death of which only the cause is known.
    pub fn of(cause: &str) -> Self {
        Self {
            cause: cause.into(),
            pid: 0,
            exit_code: None,
            signal: None,
            peak_bytes: None,
            limit_bytes: None,
            last_output: "".into(),
        }
    }
}

/// Why a request did not succeed.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The work raised: the exception as the worker encoded it.
    Raised(Blob),
    /// Its worker died.
    Died(Death),
    /// One run took longer than its time-out.
    TimedOut { timeout_ms: u64 },
    /// A request that it waited for did not succeed.
    After(RequestId),
    /// It had begun when the power failed, and may not run twice.
    OutcomeUnknown,
    /// It ran, and its result could not be stored.
    Unkept(Arc<str>),
    /// The server could not run it, such as an application that cannot be imported any more.
    Refused(Arc<str>),
}

/// Why a run, a request or a process ended, as one of a few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The function raised.
    Raised,
    /// A process ended by itself, by a signal, for its memory, for its time, with the server, or for a reason that
    /// nobody knows.
    Exit,
    Signal,
    Memory,
    Time,
    Server,
    /// The node of its worker was lost, and may still run it.
    NodeLost,
    Unknown,
    /// The run took longer than it may.
    Timeout,
    /// A request before it did not succeed.
    After,
    OutcomeUnknown,
    /// Its result could not be stored.
    Unkept,
    /// The server could not run it.
    Refused,
    Cancelled,
    /// Its worker had not begun it, and gave it back.
    Returned,
    /// A process that was told to end.
    Stopped,
}

impl Cause {
    /// As readers see it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Memory => "memory",
            Self::Time => "time",
            Self::Server => "server",
            Self::NodeLost => "node_lost",
            Self::Unknown => "unknown",
            Self::Timeout => "timeout",
            Self::After => "after",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Unkept => "unkept",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
            Self::Returned => "returned",
            Self::Stopped => "stopped",
        }
    }

    /// The cause of a death by its word; one that is not known here is unknown.
    pub fn of_death(word: &str) -> Self {
        match word {
            "exit" => Self::Exit,
            "signal" => Self::Signal,
            "memory" | "out_of_memory" => Self::Memory,
            "time" | "call_deadline" => Self::Time,
            "server" | "keeper_lost" => Self::Server,
            "node_lost" => Self::NodeLost,
            // What the pool does by its settings.
            "idle_timeout" | "closed" | "lifetime" | "uses" | "evicted" | "discarded" => {
                Self::Stopped
            }
            _ => Self::Unknown,
        }
    }
}

impl Failure {
    /// Its cause: of a death, how the worker died.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Raised(_) => Cause::Raised,
            Self::Died(death) => Cause::of_death(&death.cause),
            Self::TimedOut { .. } => Cause::Timeout,
            Self::After(_) => Cause::After,
            Self::OutcomeUnknown => Cause::OutcomeUnknown,
            Self::Unkept(_) => Cause::Unkept,
            Self::Refused(_) => Cause::Refused,
        }
    }
}

/// How one run ended, as the worker or the keeper reported.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Succeeded(Blob),
    /// The same; its worker has left the result, of this many bytes, in a file of the store.
    InFile(u64),
    Failed(Failure),
    /// It was interrupted because a client had cancelled it.
    Cancelled,
}

impl Outcome {
    /// Why it is no success; `None` if it is one.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Self::Succeeded(_) | Self::InFile(_) => None,
            Self::Failed(failure) => Some(failure.cause()),
            Self::Cancelled => Some(Cause::Cancelled),
        }
    }
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    pub status: Status,
    /// Runs that it took.
    pub attempts: u32,
    pub at: Millis,
    /// The most private memory of its last run, if it was measured.
    pub peak_bytes: Option<u64>,
    pub outcome: Outcome,
}
