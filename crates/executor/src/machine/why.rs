//! Explains one unfinished request to a person: why it waits, what was decided so far.

use std::fmt::Write as _;
use std::sync::Arc;

use super::Machine;
use super::entry::{Entry, Run, State};
use super::notes::seconds;
use super::queues::LOOKAHEAD;
use super::register::Key;
use crate::id::RequestId;
use crate::request::{Lane, Millis, Status};

/// Requests before it that are counted.
const BEFORE_MAX: usize = 1_000;

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

impl Machine {
    /// Why an unfinished request is where it is; `None` if no unfinished request has this id.
    pub fn why(&self, now: Millis, id: RequestId) -> Option<Why> {
        let key = self.parts.register.key(id)?;
        let entry = self.parts.register.get(key)?;
        let (reason, next) = self.reason(now, key, entry);
        let mut decisions = vec![(entry.request().accepted_at, "accepted".to_owned())];
        decisions.extend_from_slice(entry.notes().list());
        if let Some(run) = entry.run().filter(|run| !run.handed) {
            let text = format!("run {} began in worker {}", entry.attempts(), run.slot);
            decisions.push((run.began, text));
        }
        // The current run began before later notes about it.
        decisions.sort_by_key(|(at, _)| *at);
        Some(Why {
            status: entry.status(),
            reason,
            next,
            decisions,
        })
    }

    fn reason(&self, now: Millis, key: Key, entry: &Entry) -> (String, String) {
        let nothing = String::new();
        let options = entry.options();
        match entry.state() {
            State::Accepting { .. }
            | State::Claiming { .. }
            | State::Retrying
            | State::Unclaiming => ("being written to the store".into(), nothing),
            State::After => (
                format!(
                    "waiting: for {} of the requests it comes after",
                    entry.waits_for()
                ),
                nothing,
            ),
            State::Until => {
                let wait = entry.due().unwrap_or(now).saturating_sub(now);
                (
                    format!("waiting: its time is in {}", seconds(wait)),
                    nothing,
                )
            }
            State::Keyed => (
                format!(
                    "waiting: {} of {} requests hold key {:?}",
                    self.parts.queues.key_holders(options),
                    options.key_at_once,
                    options.key.as_deref().unwrap_or_default()
                ),
                "raise concurrency, or cancel a request that holds the key".into(),
            ),
            State::Named => {
                let name = self.parts.queues.name(entry.name());
                let limit = name.limit().unwrap_or_default();
                let (running, text) = (name.running(), name.text());
                (
                    format!("waiting: {running} of {limit} {text} run at once"),
                    "raise concurrency of the request".into(),
                )
            }
            State::Ready => self.ready_reason(now, key, entry),
            State::Running(run) if run.waits => self.waiting_reason(now, run, entry.id()),
            State::Running(run) => (running_reason(now, run), nothing),
            State::Ending(_) => ("its end is being written to the store".into(), nothing),
        }
    }

    /// The reason of a run that has given its place back, with the first child that has not ended.
    fn waiting_reason(&self, now: Millis, run: &Run, id: RequestId) -> (String, String) {
        let children = self.runs.children(id);
        let of = children.len();
        let mut unfinished = children
            .into_iter()
            .filter_map(|child| self.parts.register.by_id(child))
            .peekable();
        let mut text = running_reason(now, run);
        let next = unfinished.peek().map(|first| {
            let (id, name) = (first.id(), &first.submission().name);
            format!("see why {id}, a {name}, has not ended")
        });
        let _ = write!(
            text,
            "; its place is free while it waits for its children: {} of {of} have not ended",
            unfinished.count()
        );
        (text, next.unwrap_or_default())
    }

    fn ready_reason(&self, now: Millis, key: Key, entry: &Entry) -> (String, String) {
        let parts = &self.parts;
        // In the order in which dispatch looks, so that the first obstacle is the reason.
        if let Some((reason, next)) = self.runs.stopped_because(parts, now) {
            return (format!("waiting: {reason}"), next);
        }
        let lane = entry.lane();
        let submitter = &entry.submission().submitter;
        let before = parts.queues.before(entry, key, BEFORE_MAX);
        if before > 0 {
            return self.behind_others(lane, submitter, before);
        }
        let open = parts.workers.open(lane);
        if let Err(blocked) = parts.fits(key, open) {
            return (format!("waiting: {}", blocked.text()), blocked.next());
        }
        let turn = parts.queues.turn_of(lane, submitter);
        if turn.is_some_and(|turn| turn >= LOOKAHEAD) {
            let text = format!(
                "waiting: {LOOKAHEAD} submitters come before its own, and their requests do not fit"
            );
            return (text, "see why those wait".into());
        }
        let most = parts.policy.overtaken_ms_max;
        let first = parts.queues.comes_first(&parts.register, now, lane, most);
        if let Some(first) = first.filter(|id| *id != entry.id()) {
            let text = format!("waiting: {first} has not fitted for long and comes first");
            return (text, format!("see why {first} waits"));
        }
        if open.is_some() {
            return (
                "waiting: nothing holds it; this is a fault of the executor".into(),
                "report it".into(),
            );
        }
        let lane_workers = parts.workers.of_lane(lane);
        let (alive, starting) = (lane_workers.alive(), lane_workers.starting());
        (
            format!(
                "waiting: for one of {} workers of its lane, {starting} more start",
                alive - starting
            ),
            String::new(),
        )
    }

    /// The reason of a request behind others of its submitter: how many, and what holds the first of them.
    fn behind_others(&self, lane: Lane, submitter: &Arc<str>, before: usize) -> (String, String) {
        let mut text = match before {
            1 => "waiting: 1 request of its submitter comes first".to_owned(),
            BEFORE_MAX => {
                format!("waiting: at least {before} requests of its submitter come first")
            }
            _ => format!("waiting: {before} requests of its submitter come first"),
        };
        // Its own submitter is among them.
        match self.parts.queues.submitters(lane) - 1 {
            0 => {}
            1 => text.push_str(", and 1 other submitter takes turns"),
            others => {
                let _ = write!(text, ", and {others} other submitters take turns");
            }
        }
        let open = self.parts.workers.open(lane);
        let first = self.parts.queues.first_of(lane, submitter);
        match first.map(|first| self.parts.fits(first, open)) {
            Some(Err(blocked)) => {
                let _ = write!(text, "; the first of them: {}", blocked.text());
                (text, blocked.next())
            }
            _ => (text, "raise its priority".into()),
        }
    }
}

fn running_reason(now: Millis, run: &Run) -> String {
    if run.handed {
        return format!("handed: worker {} runs others of its name first", run.slot);
    }
    let mut text = format!(
        "running: for {} in worker {}",
        seconds(now.saturating_sub(run.began)),
        run.slot
    );
    if let Some(stop) = run.stop {
        let _ = write!(text, ", being ended ({:?}, {:?})", stop.reason, stop.step);
    }
    text
}
