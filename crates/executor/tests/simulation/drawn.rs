//! What is drawn by lot: policies, options, and the one death that there is.

use forebay_executor::id::RequestId;
use forebay_executor::machine::Policy;
use forebay_executor::request::{Death, Lane, Millis, Options};

use super::chance::Chance;
use super::workers::AHEAD;

pub const GB: u64 = 1_000_000_000;

pub fn policy(chance: &mut Chance) -> Policy {
    Policy {
        durable: true,
        cores_milli: 1_000 + 1_000 * u32::try_from(chance.below(3)).unwrap_or(0),
        cpu_factor_max: 4,
        memory_limit: chance.one_in(2).then_some(GB),
        workers_max: 3 + u32::try_from(chance.below(8)).unwrap_or(0),
        guaranteed: *chance.pick(&[[0, 0, 0], [1, 1, 0], [1, 2, 1]]),
        burst: !chance.one_in(4),
        worker_idle_ms: 500,
        worker_uses_max: 5 + chance.below(50),
        worker_age_max_ms: 20_000,
        ahead_ms_max: *chance.pick(&[20, 200, 2_000]),
        async_at_once: 4,
        exception_ms: 100,
        terminate_ms: 100,
        start_backoff_ms: 10,
        start_backoff_max_ms: 1_000,
        queued_max: 60,
        overtaken_ms_max: 1_000,
        low_resource: chance.one_in(4),
        seed: chance.below(1 << 40),
        ..Policy::default()
    }
}

/// Options of a request, which may come after one of the `newest`.
pub fn options(chance: &mut Chance, now: Millis, submitted: u64, newest: &[RequestId]) -> Options {
    let mut options = Options {
        lane: *chance.pick(&[Lane::Short, Lane::Long, Lane::Long, Lane::Async]),
        priority: i32::try_from(chance.below(3)).unwrap_or(0),
        idempotent: chance.one_in(6),
        backoff_ms: 20,
        backoff_max_ms: 500,
        key_at_once: 1 + u32::try_from(chance.below(2)).unwrap_or(0),
        cpu_milli: *chance.pick(&[500, 1_000, 4_000]),
        ..Options::default()
    };
    if chance.one_in(2) {
        options.ahead = 1 + u32::try_from(chance.index(AHEAD)).unwrap_or(0);
    }
    if chance.one_in(3) {
        options.retries = 1 + u32::try_from(chance.below(5)).unwrap_or(0);
    }
    if chance.one_in(3) {
        options.timeout_ms = Some(50 + chance.below(500));
    }
    if chance.one_in(5) {
        options.key = Some((*chance.pick(&["x", "y"])).into());
    }
    if chance.one_in(3) {
        options.memory_bytes = Some(chance.below(GB / 2));
    }
    if chance.one_in(8) {
        options.not_before = Some(now + chance.below(300));
    }
    if chance.one_in(20) {
        options.idempotency = Some(format!("key {}", submitted / 30).into());
    }
    if chance.one_in(6) && !newest.is_empty() {
        options.after = vec![*chance.pick(newest), *chance.pick(newest)];
    }
    options
}

pub fn death(cause: &str) -> Death {
    Death {
        cause: cause.into(),
        pid: 1,
        exit_code: None,
        signal: Some(9),
        peak_bytes: None,
        limit_bytes: None,
        last_output: "".into(),
    }
}
