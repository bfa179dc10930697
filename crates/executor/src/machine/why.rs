//! Explains one unfinished request to a person: why it waits, what was decided so far.

use std::fmt::Write as _;
use std::sync::Arc;

use super::Machine;
use super::entry::{Entry, State};
use super::queues::queue::Rank;
use super::runs::dispatch::LOOKAHEAD;
use crate::request::{Lane, Millis, Status};

/// Notes kept of one request: the first ones and the newest.
const NOTES_MAX: usize = 16;
/// Requests before it that are counted.
const BEFORE_MAX: usize = 1_000;

/// Decisions about a request beyond its ordinary way. Most requests have none, which costs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Notes(Vec<(Millis, String)>);

impl Notes {
    pub(crate) fn add(&mut self, at: Millis, text: impl Into<String>) {
        let notes = &mut self.0;
        if notes.len() == NOTES_MAX {
            // The first half shows how it began.
            notes.remove(NOTES_MAX / 2);
        }
        notes.push((at, text.into()));
    }

    fn list(&self) -> &[(Millis, String)] {
        &self.0
    }
}

/// Why an unfinished request is where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// `queued` or `running`; an end that is being committed has its own status.
    pub status: Status,
    /// Such as `waiting: needs 210 MB, 95 MB free of 750 MB`.
    pub reason: String,
    /// What a person can do about it; empty if there is nothing.
    pub next: String,
    /// Decisions so far, oldest first; the middle of a long history is left out.
    pub decisions: Vec<(Millis, String)>,
}

/// Bytes for a person.
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

/// A time span for a person.
pub(crate) fn seconds(span_ms: u64) -> String {
    format!("{}.{} s", span_ms / 1_000, span_ms % 1_000 / 100)
}

impl Machine {
    /// Why an unfinished request is where it is; `None` if no unfinished request has this id.
    pub fn why(&self, now: Millis, id: crate::id::RequestId) -> Option<Why> {
        let key = self.register.key(id)?;
        let entry = self.register.get(key)?;
        let (reason, next) = self.reason(now, key, entry);
        let mut decisions = vec![(entry.request.accepted_at, "accepted".to_owned())];
        decisions.extend_from_slice(entry.notes.list());
        if let Some(run) = entry.run().filter(|run| !run.handed) {
            let text = format!("run {} began in worker {}", entry.attempts, run.slot);
            decisions.push((run.began, text));
        }
        // The current run began before later notes about it.
        decisions.sort_by_key(|(at, _)| *at);
        let status = Self::status(entry);
        Some(Why {
            status,
            reason,
            next,
            decisions,
        })
    }

    fn reason(&self, now: Millis, key: u32, entry: &Entry) -> (String, String) {
        let nothing = String::new();
        let options = entry.options();
        match &entry.state {
            State::Accepting { .. }
            | State::Claiming { .. }
            | State::Retrying
            | State::Unclaiming => ("being written to the store".into(), nothing),
            State::After => (
                format!(
                    "waiting: for {} of the requests it comes after",
                    entry.waits_for
                ),
                nothing,
            ),
            State::Until => {
                let wait = entry.due.unwrap_or(now).saturating_sub(now);
                (
                    format!("waiting: its time is in {}", seconds(wait)),
                    nothing,
                )
            }
            State::Keyed => (
                format!(
                    "waiting: {} of {} requests hold key {:?}",
                    self.keys.holders(options),
                    options.key_at_once,
                    options.key.as_deref().unwrap_or_default()
                ),
                "raise concurrency, or cancel a request that holds the key".into(),
            ),
            State::Named => {
                let name = self.names.get(entry.name);
                let limit = name.limit.unwrap_or_default();
                (
                    format!(
                        "waiting: {} of {limit} {} run at once",
                        name.running, name.text
                    ),
                    "raise concurrency of the request".into(),
                )
            }
            State::Ready => self.ready_reason(now, key, entry),
            State::Running(run) if run.handed => (
                format!("handed: worker {} runs others of its name first", run.slot),
                nothing,
            ),
            State::Running(run) => {
                let mut text = format!(
                    "running: for {} in worker {}",
                    seconds(now.saturating_sub(run.began)),
                    run.slot
                );
                if let Some(stop) = run.stop {
                    let _ = write!(text, ", being ended ({:?}, {:?})", stop.reason, stop.step);
                }
                (text, nothing)
            }
            State::Ending(_) => ("its end is being written to the store".into(), nothing),
        }
    }

    fn ready_reason(&self, now: Millis, key: u32, entry: &Entry) -> (String, String) {
        // In the order in which dispatch looks, so that the first obstacle is the reason.
        if let Some((reason, next)) = self.stopped_because(now) {
            return (format!("waiting: {reason}"), next);
        }
        let lane = entry.lane();
        let queue = &self.lanes[lane as usize].ready;
        let submitter = &entry.request.submission.submitter;
        let before = queue.before(submitter, Rank::of(&entry.request, key), BEFORE_MAX);
        if before > 0 {
            return self.behind_others(lane, submitter, before);
        }
        if let Err(blocked) = self.fits(key, self.workers.open(lane)) {
            return (format!("waiting: {}", blocked.text()), blocked.next());
        }
        if queue
            .turn_of(submitter)
            .is_some_and(|turn| turn >= LOOKAHEAD)
        {
            let text = format!(
                "waiting: {LOOKAHEAD} submitters come before its own, and their requests do not fit"
            );
            return (text, "see why those wait".into());
        }
        if let Some(first) = self
            .comes_first(now, lane)
            .filter(|id| *id != entry.request.id)
        {
            let text = format!("waiting: {first} has not fitted for long and comes first");
            return (text, format!("see why {first} waits"));
        }
        if self.workers.open(lane).is_some() {
            return (
                "waiting: nothing holds it; this is a fault of the executor".into(),
                "report it".into(),
            );
        }
        let lane_workers = self.workers.of_lane(lane);
        (
            format!(
                "waiting: for one of {} workers of its lane, {} more start",
                lane_workers.alive - lane_workers.starting,
                lane_workers.starting
            ),
            String::new(),
        )
    }

    /// The reason of a request behind others of its submitter: how many, and what holds the first of them.
    fn behind_others(&self, lane: Lane, submitter: &Arc<str>, before: usize) -> (String, String) {
        let queue = &self.lanes[lane as usize].ready;
        let mut text = match before {
            1 => "waiting: 1 request of its submitter comes first".to_owned(),
            BEFORE_MAX => {
                format!("waiting: at least {before} requests of its submitter come first")
            }
            _ => format!("waiting: {before} requests of its submitter come first"),
        };
        // Its own submitter is among them.
        match queue.submitters() - 1 {
            0 => {}
            1 => text.push_str(", and 1 other submitter takes turns"),
            others => {
                let _ = write!(text, ", and {others} other submitters take turns");
            }
        }
        let first = queue.first_of(submitter);
        match first.map(|first| self.fits(first, self.workers.open(lane))) {
            Some(Err(blocked)) => {
                let _ = write!(text, "; the first of them: {}", blocked.text());
                (text, blocked.next())
            }
            _ => (text, "raise its priority".into()),
        }
    }
}
