//! Counters and histograms that appending an event updates: to read them costs the same whatever is queued.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::event::{Happening, ServiceChange, UNKNOWN_MS};
use super::exposition::Exposition;
use super::histogram::{Histogram, REQUEST_BOUNDS_MS};
use crate::limit::METRIC_NAMES_MAX;
use crate::request::{Cause, Status};

/// The row of the names beyond [`METRIC_NAMES_MAX`].
const OTHERS: u32 = 0;
const PER_SECOND: f64 = 1e3;

/// The requests of one name.
#[derive(Debug)]
struct NameCounts {
    name: Arc<str>,
    submitted: u64,
    /// Indexed by the number of the status.
    finished: [u64; 6],
    queue: Histogram,
    run: Histogram,
}

impl NameCounts {
    fn new(name: Arc<str>) -> Self {
        Self {
            name,
            submitted: 0,
            finished: [0; 6],
            queue: Histogram::new(REQUEST_BOUNDS_MS, PER_SECOND),
            run: Histogram::new(REQUEST_BOUNDS_MS, PER_SECOND),
        }
    }

    fn is_empty(&self) -> bool {
        self.submitted == 0 && self.queue.count() == 0 && self.finished == [0; 6]
    }
}

/// What was counted since the server's start.
#[derive(Debug)]
pub struct Metrics {
    names: Vec<NameCounts>,
    rows: HashMap<Arc<str>, u32>,
    refused: BTreeMap<&'static str, u64>,
    /// By the role of the process and the cause.
    deaths: BTreeMap<(&'static str, &'static str), u64>,
    gaps: u64,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            names: vec![NameCounts::new("other".into())],
            rows: HashMap::new(),
            refused: BTreeMap::new(),
            deaths: BTreeMap::new(),
            gaps: 0,
        }
    }
}

/// Counting.
impl Metrics {
    /// The row of a name: its own, or that of the others if there are too many.
    pub(super) fn row(&mut self, name: &Arc<str>) -> u32 {
        if let Some(row) = self.rows.get(name) {
            return *row;
        }
        if self.names.len() > METRIC_NAMES_MAX {
            return OTHERS;
        }
        let row = u32::try_from(self.names.len()).unwrap_or(OTHERS);
        self.names.push(NameCounts::new(Arc::clone(name)));
        self.rows.insert(Arc::clone(name), row);
        row
    }

    /// Count an event of a request whose name has this row.
    pub(super) fn count(&mut self, row: u32, happening: &Happening) {
        let Some(counts) = self.names.get_mut(row as usize) else {
            return;
        };
        match happening {
            Happening::Accepted { .. } => counts.submitted += 1,
            Happening::Started { queued_ms, .. } => observe(&mut counts.queue, *queued_ms),
            Happening::Ended { status, run_ms, .. } => {
                counts.finished[*status as usize] += 1;
                observe(&mut counts.run, *run_ms);
            }
            _ => {}
        }
    }

    /// Count an event that is about no request.
    pub(super) fn count_other(&mut self, happening: &Happening) {
        match happening {
            // An end that was asked for is no death.
            Happening::WorkerEnded {
                cause: Cause::Stopped,
                ..
            }
            | Happening::Service {
                cause: Some(Cause::Stopped),
                ..
            } => {}
            Happening::WorkerEnded { cause, .. } => self.died("worker", *cause),
            Happening::Service {
                change: ServiceChange::Ended,
                cause: Some(cause),
                ..
            } => self.died("service", *cause),
            _ => {}
        }
    }

    fn died(&mut self, role: &'static str, cause: Cause) {
        *self.deaths.entry((role, cause.word())).or_default() += 1;
    }

    pub(super) fn refused(&mut self, code: &'static str) {
        *self.refused.entry(code).or_default() += 1;
    }

    /// A reader was told a gap.
    pub fn missed(&mut self) {
        self.gaps += 1;
    }
}

/// Count a time, unless it is not known.
fn observe(histogram: &mut Histogram, ms: u32) {
    if ms != UNKNOWN_MS {
        histogram.observe(u64::from(ms));
    }
}

/// Handing out.
impl Metrics {
    /// Add what was counted.
    pub fn expose(&self, to: &mut Exposition) {
        for counts in self.names.iter().filter(|counts| !counts.is_empty()) {
            expose_name(counts, to);
        }
        for (code, count) in &self.refused {
            to.counter("forebay_requests_refused_total", &[("code", code)], *count);
        }
        for ((role, cause), count) in &self.deaths {
            let labels = [("role", *role), ("cause", *cause)];
            to.counter("forebay_process_deaths_total", &labels, *count);
        }
        to.counter("forebay_feed_gaps_total", &[], self.gaps);
    }
}

fn expose_name(counts: &NameCounts, to: &mut Exposition) {
    let name = ("name", &*counts.name);
    let submitted = "forebay_requests_submitted_total";
    to.counter(submitted, &[name], counts.submitted);
    for status in [
        Status::Succeeded,
        Status::Failed,
        Status::Cancelled,
        Status::Dead,
    ] {
        let count = counts.finished[status as usize];
        let labels = [name, ("outcome", status.word())];
        to.counter("forebay_requests_finished_total", &labels, count);
    }
    to.histogram("forebay_request_queue_seconds", &[name], &counts.queue);
    to.histogram("forebay_request_run_seconds", &[name], &counts.run);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_share_a_row() {
        let mut metrics = Metrics::default();
        let accepted = Happening::Accepted {
            lane: crate::request::Lane::Short,
            parent: None,
        };
        for number in 0..METRIC_NAMES_MAX + 5 {
            let row = metrics.row(&format!("name {number}").into());
            metrics.count(row, &accepted);
        }
        let mut exposition = Exposition::default();
        metrics.expose(&mut exposition);
        let submitted = exposition.counters.iter();
        let submitted: Vec<_> = submitted
            .filter(|one| one.name == "forebay_requests_submitted_total")
            .collect();
        assert_eq!(submitted.len(), METRIC_NAMES_MAX + 1);
        let others = submitted.iter().find(|one| one.labels[0].1 == "other");
        assert!((others.expect("the others").value - 5.0).abs() < f64::EPSILON);
    }

    #[test]
    fn a_time_that_is_not_known_is_not_observed() {
        let mut metrics = Metrics::default();
        let row = metrics.row(&"work".into());
        for (queued_ms, run_ms) in [(UNKNOWN_MS, UNKNOWN_MS), (2_000, 4_000)] {
            let (attempt, worker, cause) = (1, 1, None);
            metrics.count(
                row,
                &Happening::Started {
                    attempt,
                    worker,
                    queued_ms,
                },
            );
            metrics.count(
                row,
                &Happening::Ended {
                    status: Status::Cancelled,
                    attempt,
                    queued_ms,
                    run_ms,
                    cause,
                },
            );
        }
        let counts = &metrics.names[row as usize];
        assert_eq!(counts.finished[Status::Cancelled as usize], 2);
        assert_eq!((counts.queue.count(), counts.run.count()), (1, 1));
    }

    #[test]
    fn an_end_that_was_asked_for_is_no_death() {
        let mut metrics = Metrics::default();
        for word in [
            "idle_timeout",
            "uses",
            "lifetime",
            "closed",
            "signal",
            "out_of_memory",
        ] {
            metrics.count_other(&Happening::Service {
                change: ServiceChange::Ended,
                service: "Echo".into(),
                pid: 7,
                cause: Some(Cause::of_death(word)),
            });
        }
        let deaths: Vec<_> = metrics.deaths.into_iter().collect();
        assert_eq!(
            deaths,
            [(("service", "memory"), 1), (("service", "signal"), 1)]
        );
    }
}
