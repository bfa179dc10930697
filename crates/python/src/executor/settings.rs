//! The settings of a dispatcher, from a dict.

use std::num::NonZeroI32;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_executor::dispatcher::Settings;
use forebay_executor::id::RequestId;
use forebay_executor::machine::Policy;
use forebay_executor::request::{Lane, Status};
use forebay_executor::store::{PruneRule, StoreConfig, Synchronous};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::moved::moved_of;
use super::outbox::PyHookOutbox;
use crate::error::{Result, config};
use crate::fields::set_field;
use crate::sys::descriptor::take;

/// Read them all; an unknown name is an error.
pub fn settings_of(dict: &Bound<'_, PyDict>) -> Result<Settings> {
    let mut settings = Settings::default();
    let mut store = StoreConfig::new("");
    for (name, value) in dict {
        let name: String = name.extract()?;
        let is_known = set_server(&mut settings, &name, &value)?
            || set_store(&mut store, &name, &value)?
            || set_policy(&mut settings.policy, &name, &value)?;
        if !is_known {
            return Err(config(format!(
                "unknown setting {name:?} of the dispatcher; use the names of Policy, or the paths"
            )));
        }
    }
    read_zeros(&mut settings.policy);
    settings.policy.durable = !store.directory.as_os_str().is_empty();
    settings.store = settings.policy.durable.then_some(store);
    Ok(settings)
}

/// 0 means never, for what makes a worker be replaced.
fn read_zeros(policy: &mut Policy) {
    for never in [
        &mut policy.worker_age_max_ms,
        &mut policy.worker_uses_max,
        &mut policy.worker_growth_max_bytes,
    ] {
        if *never == 0 {
            *never = u64::MAX;
        }
    }
    policy.workers_max = workers_or_default(policy.workers_max);
}

/// 0 means as many workers as there is room for.
pub fn workers_or_default(workers_max: u32) -> u32 {
    match workers_max {
        0 => Policy::default().workers_max,
        given => given,
    }
}

/// Set one of the server's own; false if it is another's.
fn set_server(settings: &mut Settings, name: &str, value: &Bound<'_, PyAny>) -> Result<bool> {
    match name {
        "idle_end_ms" => settings.idle_end = Some(Duration::from_millis(value.extract()?)),
        "gateway" => settings.gateway = NonZeroI32::new(value.extract()?),
        "passed" => {
            let [socket, lock] = value.extract::<[RawFd; 2]>()?;
            settings.passed = Some([take(socket)?, take(lock)?]);
        }
        "moved" => {
            let workers = value.try_iter()?;
            let workers = workers.map(|worker| moved_of(&worker?));
            settings.moved = workers.collect::<Result<_>>()?;
        }
        _ => return set_plain(settings, name, value),
    }
    Ok(true)
}

/// Set one that is taken as it is; false if it is another's.
fn set_plain(settings: &mut Settings, name: &str, value: &Bound<'_, PyAny>) -> Result<bool> {
    Ok(set_field!(
        settings, name, value;
        socket side_socket log_bytes_max arguments_bytes_max elsewhere reload
    ))
}

/// Set one of the store's; false if it is another's.
fn set_store(store: &mut StoreConfig, name: &str, value: &Bound<'_, PyAny>) -> Result<bool> {
    match name {
        "state_dir" => store.directory = value.extract::<Option<PathBuf>>()?.unwrap_or_default(),
        "hooks" => store.outbox = Some(Arc::clone(&value.cast::<PyHookOutbox>()?.get().core)),
        "synchronous" => store.synchronous = synchronous_of(value.extract()?)?,
        _ => {
            return Ok(set_field!(
                store, name, value;
                result_bytes_max queue_bytes_max retention_age_ms retention_bytes retention_every_ms
            ));
        }
    }
    Ok(true)
}

fn synchronous_of(word: &str) -> Result<Synchronous> {
    match word {
        "full" => Ok(Synchronous::Full),
        "normal" => Ok(Synchronous::Normal),
        other => Err(config(format!(
            "synchronous is {other:?}; give \"full\" or \"normal\""
        ))),
    }
}

/// Set one of the machine's policy; false if it is another's.
fn set_policy(policy: &mut Policy, name: &str, value: &Bound<'_, PyAny>) -> Result<bool> {
    Ok(set_field!(
        policy, name, value;
        cores_milli cpu_factor_max
        memory_limit memory_free_fraction guard_fraction pressure_max
        worker_bytes unknown_bytes
        workers_max guaranteed burst burst_run_ms_min
        worker_idle_ms worker_uses_max worker_age_max_ms worker_growth_max_bytes
        async_at_once deaths_max exception_ms terminate_ms
        start_backoff_ms start_backoff_max_ms
        queued_max queued_per_submitter_max lane_weights overtaken_ms_max low_resource seed
        server_number
    ))
}

/// A rule of what to prune: `older_s`, `status` as words, `ids` as numbers, `dry_run`.
pub fn prune_rule(dict: &Bound<'_, PyDict>, now_ms: u64) -> Result<PruneRule> {
    let mut rule = PruneRule::default();
    for (name, value) in dict.iter().filter(|(_, value)| !value.is_none()) {
        match name.extract::<&str>()? {
            "older_s" => rule.ended_before = Some(before(now_ms, value.extract()?)),
            "status" => {
                let words: Vec<String> = value.extract()?;
                let statuses = words.iter().map(|word| ended_status_of(word));
                rule.statuses = statuses.collect::<Result<_>>()?;
            }
            "ids" => {
                let ids: Vec<u64> = value.extract()?;
                rule.ids = Some(ids.into_iter().map(RequestId).collect());
            }
            "dry_run" => rule.dry_run = value.extract()?,
            other => {
                return Err(config(format!(
                    "unknown field {other:?} of a prune rule; use older_s, status, ids or dry_run"
                )));
            }
        }
    }
    Ok(rule)
}

/// The moment that many seconds ago, in milliseconds since 1970.
fn before(now_ms: u64, seconds: f64) -> u64 {
    let elapsed = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    now_ms.saturating_sub(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

fn ended_status_of(word: &str) -> Result<Status> {
    let status = Status::of_word(word).filter(|status| status.has_ended());
    status.ok_or_else(|| {
        config(format!(
            "status {word:?} cannot be pruned; give succeeded, failed, cancelled or dead"
        ))
    })
}

/// The status of a word.
pub fn status_of(word: &str) -> Result<Status> {
    let words = Status::ALL.map(Status::word).join(", ");
    Status::of_word(word)
        .ok_or_else(|| config(format!("unknown status {word:?}; give one of {words}")))
}

/// The lane of a word.
pub fn lane_of(word: &str) -> Result<Lane> {
    let words = Lane::ALL.map(Lane::word).join(", ");
    Lane::of_word(word).ok_or_else(|| config(format!("unknown lane {word:?}; give one of {words}")))
}
