//! Events: what happened, in as few bytes as it takes; their form for a reader is made when one takes them.

use std::sync::Arc;

use crate::id::RequestId;
use crate::request::{Cause, Lane, Slot, Status};

/// A time of a request that is not known: a server does not know how long one waited that an earlier server had queued
/// again, and what ended while it waited had no run. An `Option` would make each event longer.
pub const UNKNOWN_MS: u32 = u32::MAX;

/// What happened, beside the number, the time, the request and the name.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// The row of a request is on disk.
    Accepted {
        lane: Lane,
        /// The request that submitted it.
        parent: Option<RequestId>,
    },
    /// A worker has it.
    Started {
        attempt: u32,
        worker: Slot,
        /// Or [`UNKNOWN_MS`].
        queued_ms: u32,
    },
    /// Its function reports: a msgpack map.
    Progress(Arc<[u8]>),
    /// It has been running, and waits again.
    Queued {
        attempt: u32,
        reason: Cause,
    },
    /// Its end is on disk.
    Ended {
        status: Status,
        attempt: u32,
        /// Or [`UNKNOWN_MS`].
        queued_ms: u32,
        /// Or [`UNKNOWN_MS`].
        run_ms: u32,
        cause: Option<Cause>,
    },
    /// An operator has queued it again.
    Retried,
    /// A submission was refused, with this code.
    Refused(&'static str),
    WorkerStarted {
        worker: Slot,
        lane: Lane,
        pid: i32,
    },
    WorkerEnded {
        worker: Slot,
        lane: Lane,
        pid: i32,
        cause: Cause,
    },
    /// Of a service of the application.
    Service {
        change: ServiceChange,
        service: Arc<str>,
        pid: i32,
        cause: Option<Cause>,
    },
    /// A schedule has submitted a request.
    Scheduled,
    Server {
        state: ServerState,
        reason: Option<Arc<str>>,
    },
    /// A newer progress of the same request has replaced it: readers skip it.
    Superseded,
}

/// What became of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceChange {
    Leased,
    Returned,
    Ended,
}

impl ServiceChange {
    const ALL: [Self; 3] = [Self::Leased, Self::Returned, Self::Ended];

    fn kind(self) -> EventKind {
        match self {
            Self::Leased => EventKind::ServiceLeased,
            Self::Returned => EventKind::ServiceReturned,
            Self::Ended => EventKind::ServiceEnded,
        }
    }

    /// The change that an event of this word tells; `None`: it tells none.
    pub fn of_word(word: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|change| change.kind().word() == word)
    }
}

/// What a server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// It has loaded a code of the application.
    Loaded,
    /// It dispatches nothing.
    Held,
    Resumed,
    /// It takes no submissions; the reason says who asked for that, and whether anything begins.
    Cordoned,
    Uncordoned,
    /// It takes nothing more, and ends when what runs has ended.
    Draining,
}

impl ServerState {
    /// As readers see it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Held => "held",
            Self::Resumed => "resumed",
            Self::Cordoned => "cordoned",
            Self::Uncordoned => "uncordoned",
            Self::Draining => "draining",
        }
    }
}

/// The kind of an event, by which readers choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    Accepted,
    Started,
    Progress,
    Queued,
    Ended,
    Retried,
    Refused,
    WorkerStarted,
    WorkerEnded,
    ServiceLeased,
    ServiceReturned,
    ServiceEnded,
    Schedule,
    Server,
}

impl EventKind {
    pub const ALL: [Self; 14] = [
        Self::Accepted,
        Self::Started,
        Self::Progress,
        Self::Queued,
        Self::Ended,
        Self::Retried,
        Self::Refused,
        Self::WorkerStarted,
        Self::WorkerEnded,
        Self::ServiceLeased,
        Self::ServiceReturned,
        Self::ServiceEnded,
        Self::Schedule,
        Self::Server,
    ];

    /// As readers see it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Started => "started",
            Self::Progress => "progress",
            Self::Queued => "queued",
            Self::Ended => "ended",
            Self::Retried => "retried",
            Self::Refused => "refused",
            Self::WorkerStarted => "worker_started",
            Self::WorkerEnded => "worker_ended",
            Self::ServiceLeased => "service_leased",
            Self::ServiceReturned => "service_returned",
            Self::ServiceEnded => "service_ended",
            Self::Schedule => "schedule",
            Self::Server => "server",
        }
    }

    /// The kind of this word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl Happening {
    /// Its kind; `None` if it was superseded.
    pub fn kind(&self) -> Option<EventKind> {
        Some(match self {
            Self::Accepted { .. } => EventKind::Accepted,
            Self::Started { .. } => EventKind::Started,
            Self::Progress(_) => EventKind::Progress,
            Self::Queued { .. } => EventKind::Queued,
            Self::Ended { .. } => EventKind::Ended,
            Self::Retried => EventKind::Retried,
            Self::Refused(_) => EventKind::Refused,
            Self::WorkerStarted { .. } => EventKind::WorkerStarted,
            Self::WorkerEnded { .. } => EventKind::WorkerEnded,
            Self::Service { change, .. } => change.kind(),
            Self::Scheduled => EventKind::Schedule,
            Self::Server { .. } => EventKind::Server,
            Self::Superseded => return None,
        })
    }

    /// Bytes that it holds beside its place.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Progress(record) => record.len(),
            Self::Service { service, .. } => service.len(),
            Self::Server { reason, .. } => reason.as_ref().map_or(0, |reason| reason.len()),
            _ => 0,
        }
    }
}

/// An event as a reader takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<'a> {
    pub number: u64,
    /// Milliseconds since 1970.
    pub at: u64,
    pub id: Option<RequestId>,
    pub name: Option<&'a str>,
    /// Of the request, if it is about one.
    pub submitter: Option<&'a str>,
    pub kind: EventKind,
    pub happening: &'a Happening,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stays_small() {
        assert!(size_of::<Happening>() <= 24, "{}", size_of::<Happening>());
    }

    #[test]
    fn each_kind_is_found_by_its_word() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::of_word(kind.word()), Some(kind));
        }
        assert_eq!(EventKind::of_word("gap"), None, "it is told to each reader");
    }
}
