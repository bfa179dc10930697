//! What is drawn by lot: policies, options, and the one death that there is.

use forebay_executor::id::RequestId;
use forebay_executor::machine::Policy;
use forebay_executor::request::{Death, Lane, Millis, Options};

use super::chance::Chance;
use super::workers::AHEAD;

pub const GB: u64 = 1_000_000_000;
/// Memory is drawn in these, and times in tens of milliseconds, so that limits are met exactly now and then.
pub const UNIT: u64 = GB / 32;

pub fn policy(chance: &mut Chance) -> Policy {
    Policy {
        durable: true,
        cores_milli: 1_000 + 1_000 * u32::try_from(chance.below(3)).unwrap_or(0),
        cpu_factor_max: 4,
        memory_limit: chance.one_in(2).then_some(GB),
        memory_free_fraction: 1.0 / 32.0,
        guard_fraction: 31.0 / 32.0,
        worker_bytes: UNIT,
        unknown_bytes: [Some(2 * UNIT), chance.one_in(4).then_some(3 * UNIT), None],
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
        queued_max: *chance.pick(&[12, 30, 60]),
        result_bytes_max: *chance.pick(&[10, u64::MAX]),
        worker_growth_max_bytes: *chance.pick(&[2 * UNIT, 8 * UNIT]),
        deaths_max: 1 + u32::try_from(chance.below(3)).unwrap_or(0),
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
        options.timeout_ms = Some(50 + 10 * chance.below(50));
    }
    if chance.one_in(5) {
        let (key, at_once) = *chance.pick(&[("x", 1), ("y", 2), ("z", 0)]);
        (options.key, options.key_at_once) = (Some(key.into()), at_once);
    }
    if chance.one_in(3) {
        options.memory_bytes = Some(UNIT * chance.below(16));
    }
    if chance.one_in(8) {
        options.not_before = Some(now + 10 * chance.below(30));
    }
    if chance.one_in(20) {
        options.idempotency = Some(format!("key {}", submitted / 30).into());
    }
    if chance.one_in(6) && !newest.is_empty() {
        options.after = vec![*chance.pick(newest), *chance.pick(newest)];
        if chance.one_in(20) {
            options.after.push(RequestId(7)); // nobody has it
        }
    }
    options
}

pub fn death(cause: &str) -> Death {
    Death {
        pid: 1,
        signal: Some(9),
        ..Death::of(cause)
    }
}
