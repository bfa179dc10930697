//! The machine's metrics, with views of single requests, of workers.

use super::Machine;
use super::admission::Cordon;
use super::entry::{Entry, State};
use super::policy::LANES;
use super::queues::Waits;
use super::workers::{Stage, Worker};
use crate::feed::Exposition;
use crate::id::RequestId;
use crate::request::{Lane, Millis, Slot, Status};

/// An unfinished request as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestView {
    /// As it is reported: an end that is not on disk yet counts as `Running`.
    pub status: Status,
    /// Its row is on disk, so that its id may be sent.
    pub accepted: bool,
    /// Runs that began.
    pub attempt: u32,
    pub slot: Option<Slot>,
}

/// One lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneFigures {
    pub lane: Lane,
    /// Requests that wait for a worker, or were handed to one behind another request; not the parked ones.
    pub ready: usize,
    pub running: u32,
    /// Requests that run and wait for their children.
    pub waiting: u32,
    pub workers_starting: u32,
    /// Workers that have started, busy or not.
    pub workers_up: u32,
    pub workers_idle: u32,
}

/// The whole machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    pub lanes: [LaneFigures; 3],
    /// Unfinished requests.
    pub unfinished: usize,
    /// Of them, those that wait for something else than a worker.
    pub waits: Waits,
    /// How long the oldest ready request of each lane has waited.
    pub oldest_ready_ms: [Option<u64>; 3],
    pub accepted: u64,
    pub refused: u64,
    /// Since the start.
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub dead: u64,
    /// Deaths of workers that ran something.
    pub deaths: u64,
    /// Changes that the store has not answered; `store_kept` are those that wait until it works.
    pub store_in_flight: usize,
    pub store_kept: usize,
    /// Memory as last measured; `promised_bytes` is what running requests may still grow by.
    pub resident_bytes: u64,
    pub promised_bytes: u64,
    pub memory_limit_bytes: Option<u64>,
    pub low_resource: bool,
    /// Why nothing is dispatched.
    pub held: Option<String>,
    /// Who let it take no submissions.
    pub cordon: Option<Cordon>,
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerView {
    pub slot: Slot,
    pub lane: Lane,
    /// "starting", "idle", "busy", "waiting" or "stopping".
    pub state: &'static str,
    pub burst: bool,
    /// What it runs; of the async lane, the first hundred.
    pub running: Vec<RequestId>,
    pub age_ms: u64,
    pub uses: u64,
    pub private_bytes: u64,
}

/// Requests of one worker that are listed.
const LISTED_MAX: usize = 100;

impl Figures {
    /// Add them as gauges.
    pub fn expose(&self, to: &mut Exposition) {
        for (lane, oldest) in self.lanes.iter().zip(self.oldest_ready_ms) {
            lane.expose(to);
            let name = [("lane", lane.lane.word())];
            to.seconds(
                "forebay_requests_oldest_queued_seconds",
                &name,
                oldest.unwrap_or(0),
            );
        }
        let ready: usize = self.lanes.iter().map(|lane| lane.ready).sum();
        let waits = self.waits;
        let waiting: u32 = self.lanes.iter().map(|lane| lane.waiting).sum();
        for (reason, count) in [
            ("worker", ready),
            ("request", waits.requests),
            ("time", waits.time),
            ("key", waits.key),
            ("name", waits.name),
            ("children", waiting as usize),
        ] {
            let name = "forebay_requests_waiting";
            to.gauge(name, &[("reason", reason)], count as u64);
        }
        let bytes = [
            ("forebay_memory_resident_bytes", Some(self.resident_bytes)),
            ("forebay_memory_limit_bytes", self.memory_limit_bytes),
            ("forebay_memory_promised_bytes", Some(self.promised_bytes)),
        ];
        for (name, bytes) in bytes {
            if let Some(bytes) = bytes {
                to.gauge(name, &[], bytes);
            }
        }
        to.gauge("forebay_store_in_flight", &[], self.store_in_flight as u64);
        to.gauge("forebay_store_kept", &[], self.store_kept as u64);
        to.gauge("forebay_server_held", &[], u64::from(self.held.is_some()));
        let cordoned = u64::from(self.cordon.is_some());
        to.gauge("forebay_server_cordoned", &[], cordoned);
    }
}

impl LaneFigures {
    fn expose(&self, to: &mut Exposition) {
        let lane = self.lane.word();
        let queued = self.ready as u64;
        to.gauge("forebay_requests_queued", &[("lane", lane)], queued);
        let running = u64::from(self.running);
        to.gauge("forebay_requests_running", &[("lane", lane)], running);
        let busy = self.workers_up.saturating_sub(self.workers_idle);
        for (state, count) in [
            ("starting", self.workers_starting),
            ("idle", self.workers_idle),
            ("busy", busy),
        ] {
            let labels = [("lane", lane), ("state", state)];
            to.gauge("forebay_workers", &labels, u64::from(count));
        }
    }
}

impl Machine {
    /// A view of an unfinished request.
    pub fn view(&self, id: RequestId) -> Option<RequestView> {
        let entry = self.parts.register.by_id(id)?;
        let run = entry.run();
        let ending = matches!(entry.state(), State::Ending(_));
        Some(RequestView {
            status: if run.is_some() || ending {
                Status::Running
            } else {
                Status::Queued
            },
            accepted: !matches!(entry.state(), State::Accepting { .. }),
            attempt: entry.attempts(),
            slot: run.map(|run| run.slot),
        })
    }

    /// Since when an unfinished request has waited for its next run, or had waited for the one that it is in, if that is
    /// known.
    pub fn queued_at(&self, id: RequestId) -> Option<Millis> {
        self.parts.register.by_id(id).and_then(Entry::queued_at)
    }

    /// Since when an unfinished request runs.
    pub fn began(&self, id: RequestId) -> Option<Millis> {
        let entry = self.parts.register.by_id(id)?;
        entry.run().map(|run| run.began)
    }

    /// Whether an unfinished request runs and waits for its children.
    pub fn is_waiting(&self, id: RequestId) -> bool {
        let entry = self.parts.register.by_id(id);
        entry.is_some_and(Entry::waits_for_children)
    }

    /// Cost: a look at each worker.
    pub fn figures(&self, now: Millis) -> Figures {
        let lanes = LANES.map(|lane| self.lane_figures(lane));
        let since = LANES.map(|lane| self.parts.queues.ready_since(lane));
        let oldest_ready_ms = since.map(|at| at.map(|at| now.saturating_sub(at)));
        let waits = self.parts.queues.waits();
        let counts = self.runs.counts();
        let ended = |status: Status| counts.ended[status as usize];
        Figures {
            lanes,
            unfinished: self.parts.register.len(),
            waits,
            oldest_ready_ms,
            accepted: counts.accepted,
            refused: counts.refused,
            succeeded: ended(Status::Succeeded),
            failed: ended(Status::Failed),
            cancelled: ended(Status::Cancelled),
            dead: ended(Status::Dead),
            deaths: counts.deaths,
            store_in_flight: self.runs.store_in_flight(),
            store_kept: self.runs.store_kept(),
            resident_bytes: self.parts.admission.resident(),
            promised_bytes: self.parts.admission.promised(),
            memory_limit_bytes: self.parts.policy.memory_limit,
            low_resource: self.parts.policy.low_resource,
            held: self
                .runs
                .stopped_because(&self.parts, now)
                .map(|(reason, _)| reason),
            cordon: self.cordoned().cloned(),
        }
    }

    fn lane_figures(&self, lane: Lane) -> LaneFigures {
        let lane_workers = self.parts.workers.of_lane(lane);
        let workers = self.parts.workers.iter();
        let mine = workers.filter(|(_, worker)| worker.lane() == lane);
        // The lane counts handed requests as running, since they occupy a worker; to a person they wait.
        let handed = mine.clone().filter(|_| lane != Lane::Async);
        let handed: usize = handed
            .map(|(_, worker)| worker.runs().len().saturating_sub(1))
            .sum();
        let idle = mine.filter(|(_, worker)| worker.stage() == Stage::Up && worker.is_idle());
        LaneFigures {
            lane,
            ready: self.parts.queues.ready(lane) + handed,
            running: lane_workers.running() - u32::try_from(handed).unwrap_or_default(),
            waiting: lane_workers.waiting(),
            workers_starting: lane_workers.starting(),
            workers_up: lane_workers.alive() - lane_workers.starting(),
            workers_idle: u32::try_from(idle.count()).unwrap_or(u32::MAX),
        }
    }

    /// Every worker whose death is not known.
    pub fn workers(&self) -> Vec<WorkerView> {
        let workers = self.parts.workers.iter();
        workers
            .map(|(slot, worker)| self.worker_view(slot, worker))
            .collect()
    }

    fn worker_view(&self, slot: Slot, worker: &Worker) -> WorkerView {
        let runs = worker.runs().iter().take(LISTED_MAX);
        let ids = runs.filter_map(|key| Some(self.parts.register.get(*key)?.id()));
        WorkerView {
            slot,
            lane: worker.lane(),
            state: match worker.stage() {
                Stage::Starting => "starting",
                Stage::Stopping => "stopping",
                Stage::Up if worker.is_idle() => "idle",
                Stage::Up if worker.waits() => "waiting",
                Stage::Up => "busy",
            },
            burst: worker.is_burst(),
            running: ids.collect(),
            age_ms: self.now.saturating_sub(worker.born()),
            uses: worker.uses(),
            private_bytes: self.parts.admission.private_of(slot),
        }
    }
}
