//! What every part works with: the machine that decides, the feed that tells it, the epoll, the time of the turn, the
//! queues to the program.

use std::sync::Arc;

use crate::dispatcher::poll::Poll;
use crate::dispatcher::supervisor::protocol::CordonOrder;
use crate::dispatcher::supervisor::shared::Shared;
use crate::error::Refusal;
use crate::feed::{Feed, Happening, ServerState, UNKNOWN_MS};
use crate::id::RequestId;
use crate::limit::OPTION_TEXT_BYTES_MAX;
use crate::machine::{Cordon, Machine, SCHEDULE_SUBMITTER};
use crate::news::News;
use crate::request::{Ending, Millis, Request};
use crate::secret::Secrets;

/// The driver lends it to the parts, one event at a time.
pub struct Context {
    pub poll: Poll,
    /// The time of this turn, the same for every event in it.
    pub now: Millis,
    pub machine: Machine,
    pub feed: Feed,
    pub shared: Arc<Shared>,
    /// What secret arguments are sealed with.
    pub secrets: Secrets,
}

/// What an operator asks of the server.
impl Context {
    /// Take no submissions until `uncordon`; what is accepted stays, and runs if the order says so.
    pub fn cordon(&mut self, order: CordonOrder) {
        let cordon = Cordon {
            by: order.by,
            reason: order.reason,
            at: self.now,
            dispatches: order.dispatches,
        };
        let text = cordon.text();
        self.machine.cordon(self.now, Some(cordon));
        self.note_server(ServerState::Cordoned, Some(text.into()));
    }

    /// Take submissions again; whether there was a cordon.
    pub fn uncordon(&mut self) -> bool {
        let was_cordoned = self.machine.cordoned().is_some();
        if was_cordoned {
            self.machine.cordon(self.now, None);
            self.note_server(ServerState::Uncordoned, None);
        }
        was_cordoned
    }
}

/// What goes to the feed.
impl Context {
    /// Append what has become of requests since the last time.
    pub fn append_news(&mut self) {
        let Self {
            machine, feed, now, ..
        } = self;
        let mut scheduled = Vec::new();
        for news in machine.news() {
            match news {
                News::Accepted(request) => {
                    let options = &request.submission.options;
                    let (lane, parent) = (options.lane, options.parent);
                    feed.append(*now, &request, Happening::Accepted { lane, parent });
                    if &*request.submission.submitter == SCHEDULE_SUBMITTER {
                        scheduled.push(request);
                    }
                }
                News::Queued {
                    request,
                    attempt,
                    reason,
                } => feed.append(*now, &request, Happening::Queued { attempt, reason }),
                News::Ended {
                    request,
                    ending,
                    queued_ms,
                    run_ms,
                } => feed.append(*now, &request, ended(&ending, queued_ms, run_ms)),
                News::Retried(request) => feed.append(*now, &request, Happening::Retried),
            }
        }
        for request in scheduled {
            if machine.is_scheduled(request.id) {
                feed.append(*now, &request, Happening::Scheduled);
            }
        }
    }

    /// Append an event of an unfinished request.
    pub fn append(&mut self, id: RequestId, happening: Happening) {
        if let Some(request) = self.machine.request(id) {
            self.feed.append(self.now, request, happening);
        }
    }

    /// Append that a run was given to its worker.
    pub fn append_started(&mut self, request: &Request, attempt: u32, worker: u32) {
        let queued_at = self.machine.queued_at(request.id);
        let queued_ms = short(queued_at.map(|since| self.now.saturating_sub(since)));
        let started = Happening::Started {
            attempt,
            worker,
            queued_ms,
        };
        self.feed.append(self.now, request, started);
    }

    /// Append an event that is about no request.
    pub fn note(&mut self, happening: Happening) {
        self.feed.note(self.now, happening);
    }

    /// Append what the server does now.
    pub fn note_server(&mut self, state: ServerState, reason: Option<Arc<str>>) {
        self.note(Happening::Server { state, reason });
    }

    /// Append that a submission was refused before it had an id. Its name may be anything.
    pub fn submission_refused(&mut self, name: &str, refusal: &Refusal) {
        let name = cut(name).into();
        self.feed.refused(self.now, &name, None, refusal.code);
    }
}

fn ended(ending: &Ending, queued_ms: Option<u64>, run_ms: Option<u64>) -> Happening {
    Happening::Ended {
        status: ending.status,
        attempt: ending.attempts,
        queued_ms: short(queued_ms),
        run_ms: short(run_ms),
        cause: ending.outcome.cause(),
    }
}

/// A time of a request: one above 49 days counts as that.
fn short(ms: Option<u64>) -> u32 {
    let longest = u64::from(UNKNOWN_MS - 1);
    let known = ms.and_then(|ms| u32::try_from(ms.min(longest)).ok());
    known.unwrap_or(UNKNOWN_MS)
}

fn cut(name: &str) -> &str {
    let fits = |end: &usize| *end <= OPTION_TEXT_BYTES_MAX;
    let ends = name
        .char_indices()
        .map(|(at, letter)| at + letter.len_utf8());
    &name[..ends.take_while(fits).last().unwrap_or(0)]
}
