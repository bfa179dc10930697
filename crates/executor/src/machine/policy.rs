//! The machine's policy: limits, weights, times.

use crate::request::Lane;

/// Lanes, in the order of their numbers.
pub(crate) const LANES: [Lane; 3] = Lane::ALL;

/// The policy of one machine; the driver fills it from the configuration and from the host's limits.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Thousandths of a core that the host has.
    pub cores_milli: u32,
    /// Running requests may ask for this many times the cores: most of them wait rather than compute.
    pub cpu_factor_max: u32,
    /// Memory of the cgroup or the machine; `None`: memory is not considered.
    pub memory_limit: Option<u64>,
    /// Fraction of it that stays free: 0.03, or 0.10 where the cgroup ends all its processes at once.
    pub memory_free_fraction: f32,
    /// Fraction of it above which the guard ends a worker that outgrew its estimate: 0.97, or 0.95.
    pub guard_fraction: f32,
    /// Fraction of the time that tasks stalled for memory (PSI), above which nothing more is admitted.
    pub pressure_max: f32,
    /// Private bytes of a worker that has run nothing, until one was measured.
    pub worker_bytes: u64,
    /// Assumed need of a request without an estimate, by its lane; `None`: it runs alone first. A short one must not wait
    /// for long ones to end.
    pub unknown_bytes: [Option<u64>; 3],
    /// Workers at once; each lane in use has one of its own, whatever this says.
    pub workers_max: u32,
    /// Workers that stay, per lane.
    pub guaranteed: [u32; 3],
    /// Start further workers on demand.
    pub burst: bool,
    /// Below this mean time of a lane's runs, more workers than cores do not help (`burst.rs`).
    pub burst_run_ms_min: u64,
    /// A worker is handed this much work ahead, by the mean of its lane's runs; what waits behind one run for longer is
    /// recalled (`ahead.rs`).
    pub ahead_ms_max: u64,
    /// An idle burst worker ends after this.
    pub worker_idle_ms: u64,
    /// A worker is replaced after this many requests.
    pub worker_uses_max: u64,
    /// A worker is replaced at this age, between two requests.
    pub worker_age_max_ms: u64,
    /// A worker whose private memory has grown by this is replaced, between two requests.
    pub worker_growth_max_bytes: u64,
    /// Requests that share one worker of the async lane.
    pub async_at_once: u32,
    /// A request is set aside after this many deaths of its worker.
    pub deaths_max: u32,
    /// From the exception in a run that is to end to the termination of its worker.
    pub exception_ms: u64,
    /// From there to its kill, and from one kill to the next.
    pub terminate_ms: u64,
    /// Time until a failed start is tried again, doubled each time.
    pub start_backoff_ms: u64,
    pub start_backoff_max_ms: u64,
    /// Unfinished requests.
    pub queued_max: u32,
    /// Those of one submitter, unless the submission says another number; 0: as many as of all.
    pub queued_per_submitter_max: u32,
    /// Shares of the lanes where they compete for memory, cores or workers.
    pub lane_weights: [u32; 3],
    /// How long a request that does not fit may be overtaken; then its lane waits for it.
    pub overtaken_ms_max: u64,
    /// `false`: there is no store, and each change counts as committed at once.
    pub durable: bool,
    /// Larger results are files, which are written before the end of their request.
    pub result_bytes_max: u64,
    /// Little memory or few cores: no guaranteed workers beyond the first.
    pub low_resource: bool,
    /// The seed of the back-offs' jitter.
    pub seed: u64,
    /// The number of this server in the ids that it gives, at most [`crate::id::SERVER_NUMBER_MAX`].
    pub server_number: u8,
}

/// What there is for workers, which changes with a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// See [`Policy::workers_max`].
    pub workers_max: u32,
    /// See [`Policy::guaranteed`].
    pub guaranteed: [u32; 3],
    /// See [`Policy::cores_milli`]; `None`: as before.
    pub cores_milli: Option<u32>,
    /// See [`Policy::memory_limit`]; `None`, or less: as before.
    pub memory_limit: Option<u64>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            cores_milli: 1_000,
            cpu_factor_max: 16,
            memory_limit: None,
            memory_free_fraction: 0.03,
            guard_fraction: 0.97,
            pressure_max: 0.20,
            worker_bytes: 6_000_000,
            unknown_bytes: [Some(64_000_000), None, None],
            workers_max: 64,
            guaranteed: [1, 1, 0],
            burst: true,
            burst_run_ms_min: 10,
            ahead_ms_max: 25,
            worker_idle_ms: 10_000,
            worker_uses_max: 100_000,
            worker_age_max_ms: 3_600_000,
            worker_growth_max_bytes: 256_000_000,
            async_at_once: 10_000,
            deaths_max: 3,
            exception_ms: 5_000,
            terminate_ms: 5_000,
            start_backoff_ms: 100,
            start_backoff_max_ms: 30_000,
            queued_max: 100_000,
            queued_per_submitter_max: 0,
            lane_weights: [4, 2, 2],
            overtaken_ms_max: 10_000,
            durable: true,
            result_bytes_max: u64::MAX,
            low_resource: false,
            seed: 1,
            server_number: 0,
        }
    }
}

impl Policy {
    /// Workers of a lane that stay.
    pub(crate) fn guaranteed(&self, lane: Lane) -> u32 {
        let wanted = self.guaranteed[lane as usize];
        if !self.low_resource {
            return wanted;
        }
        let first = LANES.iter().find(|one| self.guaranteed[**one as usize] > 0);
        u32::from(first == Some(&lane)).min(wanted)
    }

    /// The same for another capacity.
    pub(crate) fn with_capacity(&self, capacity: Capacity) -> Self {
        Self {
            workers_max: capacity.workers_max,
            guaranteed: capacity.guaranteed,
            cores_milli: capacity.cores_milli.unwrap_or(self.cores_milli),
            // Never less: what the workers of a lost node had counts until their ends are known, and the guard would
            // end others for it.
            memory_limit: capacity.memory_limit.max(self.memory_limit),
            ..self.clone()
        }
    }

    /// Cores, rounded up.
    pub(crate) fn cores(&self) -> u32 {
        self.cores_milli.div_ceil(1_000).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_resource_keeps_one_worker_of_the_first_lane_that_has_any() {
        let policy = Policy {
            low_resource: true,
            guaranteed: [0, 3, 1],
            ..Policy::default()
        };
        assert_eq!(LANES.map(|lane| policy.guaranteed(lane)), [0, 1, 0]);
    }
}
