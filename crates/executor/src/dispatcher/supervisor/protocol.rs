//! The messages between the dispatcher and the threads of its program.

use std::num::NonZeroI32;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use forebay_transport::calls::Connection;

use crate::dispatcher::audit::AuditLine;
use crate::dispatcher::handover::Handover;
use crate::error::{Refusal, Result};
use crate::feed::{Exposition, Happening};
use crate::id::RequestId;
use crate::machine::Machine;
use crate::manifest::Manifest;
use crate::request::{Blob, Death, Lane, Millis, Options, Slot};
use crate::store::{PruneRule, Pruned};

/// Where the outcome of an order to the store is sent.
pub type ReplyTo<T> = Sender<std::result::Result<T, String>>;

/// Where the outcome of a retry is sent.
pub type RetryReplyTo = Sender<std::result::Result<(), Box<Refusal>>>;

/// A question to the machine, at the time of the turn; it sends its own answer.
pub type AskMachine = Box<dyn FnOnce(&mut Machine, Millis) + Send>;

/// A request that this process submits to its own dispatcher.
#[derive(Clone, Debug)]
pub struct LocalSubmission {
    pub ticket: u64,
    pub name: Arc<str>,
    pub arguments: Blob,
    pub options: Arc<Options>,
}

/// A started worker: its connection, its process, and the generation of its lease.
pub struct StartedWorker {
    pub connection: Arc<Connection>,
    pub pid: i32,
    pub pidfd: OwnedFd,
    pub generation: u32,
    /// Its runs are in that process, whose memory is theirs.
    pub is_measured: bool,
}

/// Who asks for a cordon, why, and whether what was accepted is dispatched.
pub struct CordonOrder {
    pub by: Arc<str>,
    pub reason: Arc<str>,
    pub dispatches: bool,
}

/// A command to the dispatcher.
pub enum Command {
    /// The server's main thread has answered a call.
    Answer {
        ticket: u64,
        head: Vec<u8>,
    },
    Submit(LocalSubmission),
    /// Cancel the request of a ticket if it has not begun; whether it was.
    Cancel(u64, Sender<bool>),
    Ready(Slot, StartedWorker),
    Failed(Slot, Arc<str>),
    Died(Slot, Death),
    /// Run an ended request again, for this person.
    Retry(RequestId, Arc<str>, RetryReplyTo),
    Prune(PruneRule, ReplyTo<Pruned>),
    Install(Arc<Manifest>, Sender<Result<()>>),
    /// Watch these source files.
    Watch(Vec<PathBuf>, Sender<Result<()>>),
    Hold(Option<Arc<str>>, Sender<()>),
    /// Begin nothing for this reason, and accept submissions all the same; or go on.
    Pause(Option<Arc<str>>, Sender<()>),
    /// The server before has let go of everything: accept clients, read from its workers, begin requests.
    Begin(Sender<()>),
    /// How many requests run that cannot go over to another server now.
    Unmovable(Sender<usize>),
    /// Give the clients' socket and the workers away, at most after this time.
    Give(Duration, Sender<Result<Handover>>),
    /// Take no submissions, as this one asks; at the time of the turn.
    Cordon(CordonOrder, Sender<()>),
    /// Take submissions again; whether there was a cordon.
    Uncordon(Sender<bool>),
    /// The gateway is this process now.
    Gateway(Option<NonZeroI32>, Sender<()>),
    /// Write a line into the audit log.
    Audit(AuditLine),
    /// Refuse further work: answered at once, and notified when nothing runs.
    Drain {
        begun: Sender<()>,
        drained: Sender<()>,
    },
    Ask(AskMachine),
    /// Append an event, of this request if one has to do with it.
    Note(Happening),
    Metrics(Sender<Exposition>),
    Close,
}

/// An order to the supervisor, which starts and ends workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Start a worker; it identifies itself by the nonce when it connects its side socket.
    Start { slot: Slot, lane: Lane, nonce: u64 },
    /// It was asked to leave: make sure that it exits.
    Stop { slot: Slot },
    /// Its process has ended: report how.
    Died { slot: Slot },
    /// It was killed because it used too much memory; `Died` follows.
    Expelled { slot: Slot },
    /// Source files of the application have changed.
    Sources(Vec<String>),
    /// Nothing waits or runs.
    Idle,
    /// A socket was removed and made again.
    Rebound,
    /// For the log of the server.
    Warn(String),
}

/// A call that the server's main thread answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminCall {
    pub ticket: u64,
    pub method: String,
    /// A msgpack array.
    pub arguments: Vec<u8>,
    /// Who asks: the holder of a token, as the gateway says, or the user of a Unix socket.
    pub by: Arc<str>,
}

/// The end of an in-process submission.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    pub ticket: u64,
    pub kind: FinishedKind,
    pub payload: Blob,
}

/// What the payload of an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FinishedKind {
    Result = 0,
    /// The exception of the work, as the worker encoded it.
    Raised = 1,
    /// JSON.
    Failure = 2,
    /// Nothing.
    Cancelled = 3,
}
