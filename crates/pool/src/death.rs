//! Why a service ended.

use crate::error::{Error, Result};

/// The reason, in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// It exited by itself; the code says how.
    #[default]
    Exit = 0,
    /// A signal that was not ours ended it; the code says which.
    Signal = 1,
    /// It could not be started: the text says why.
    NotStarted = 2,
    /// Its template ended before it could be forked.
    TemplateDied = 3,
    /// Its application cannot be forked from: the text says why.
    TemplateUnfit = 4,
    /// We ended it: not ready in time.
    StartDeadline = 5,
    /// We ended it: not reset in time.
    ResetDeadline = 6,
    /// We ended it: idle for too long.
    IdleTimeout = 7,
    /// We ended it: its call timed out, was cancelled, or broke the connection.
    Discarded = 8,
    /// We ended it: its pool was closed.
    Closed = 9,
    /// Its keeper was killed, and it with it.
    KeeperLost = 10,
    /// We ended it: it had lived as long as its pool lets services live.
    Lifetime = 11,
    /// We ended it: it had served as many leases as its pool lets services serve.
    Uses = 12,
    /// We ended it: idle, to make room for another kind.
    Evicted = 13,
    /// We ended it: state of one lease was found in it after it was reset.
    Contaminated = 14,
    /// The kernel ended it: it reached its memory limit, or the machine had none left.
    OutOfMemory = 15,
    /// The kernel ended it: it used the processor time that a resource limit allows.
    Cpu = 16,
    /// We ended it: it used more private memory than its pool keeps.
    Memory = 17,
    /// We ended it: a call took longer than its limits allow.
    CallDeadline = 18,
    /// A limit that it asked for cannot be enforced here: the text says which.
    Unenforceable = 19,
    /// We ended it, in order: it serves one lease only, which had ended, or it was drained. Users see `discarded`.
    Returned = 20,
    /// We ended it: its reset raised.
    ResetFailed = 21,
}

const CAUSES: [Cause; 22] = [
    Cause::Exit,
    Cause::Signal,
    Cause::NotStarted,
    Cause::TemplateDied,
    Cause::TemplateUnfit,
    Cause::StartDeadline,
    Cause::ResetDeadline,
    Cause::IdleTimeout,
    Cause::Discarded,
    Cause::Closed,
    Cause::KeeperLost,
    Cause::Lifetime,
    Cause::Uses,
    Cause::Evicted,
    Cause::Contaminated,
    Cause::OutOfMemory,
    Cause::Cpu,
    Cause::Memory,
    Cause::CallDeadline,
    Cause::Unenforceable,
    Cause::Returned,
    Cause::ResetFailed,
];

impl Cause {
    /// As it travels.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether a service that is ended so is as it should be, and does what it does before it ends.
    pub const fn is_orderly(self) -> bool {
        match self {
            Self::IdleTimeout
            | Self::Closed
            | Self::Lifetime
            | Self::Uses
            | Self::Evicted
            | Self::Returned => true,
            Self::Exit
            | Self::Signal
            | Self::NotStarted
            | Self::TemplateDied
            | Self::TemplateUnfit
            | Self::StartDeadline
            | Self::ResetDeadline
            | Self::ResetFailed
            | Self::Discarded
            | Self::KeeperLost
            | Self::Contaminated
            | Self::OutOfMemory
            | Self::Cpu
            | Self::Memory
            | Self::CallDeadline
            | Self::Unenforceable => false,
        }
    }

    /// From the wire.
    pub fn from_code(code: u8) -> Result<Self> {
        CAUSES
            .get(usize::from(code))
            .copied()
            .ok_or(Error::Malformed {
                what: "unknown cause of death",
            })
    }

    /// From the word that users see.
    pub fn from_name(name: &str) -> Option<Self> {
        CAUSES.into_iter().find(|cause| cause.name() == name)
    }

    /// The word that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::NotStarted => "not_started",
            Self::TemplateDied => "template_died",
            Self::TemplateUnfit => "template_unfit",
            Self::StartDeadline => "start_deadline",
            Self::ResetDeadline => "reset_deadline",
            Self::ResetFailed => "reset_failed",
            Self::IdleTimeout => "idle_timeout",
            Self::Discarded | Self::Returned => "discarded",
            Self::Closed => "closed",
            Self::KeeperLost => "keeper_lost",
            Self::Lifetime => "lifetime",
            Self::Uses => "uses",
            Self::Evicted => "evicted",
            Self::Contaminated => "contaminated",
            Self::OutOfMemory => "out_of_memory",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::CallDeadline => "call_deadline",
            Self::Unenforceable => "limit_not_enforceable",
        }
    }
}

/// The end of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Death {
    /// Why.
    pub cause: Cause,
    /// Its process; 0 where there never was one.
    pub pid: i32,
    /// Exit code with `Exit`, signal number with every other cause that has a process, else 0.
    pub code: i32,
    /// The most memory that it used, where a cgroup counted it; with a SIGKILL that the pool did not send, what it had
    /// in use; else 0.
    pub peak_bytes: u64,
    /// Its memory limit, 0 where it had none.
    pub limit_bytes: u64,
    /// The last of what it wrote, or why it could not start.
    pub text: Vec<u8>,
}
