//! The settings of a dispatcher, from a dict.

use std::path::PathBuf;
use std::time::Duration;

use forebay_executor::dispatcher::Settings;
use forebay_executor::id::RequestId;
use forebay_executor::machine::Policy;
use forebay_executor::request::Status;
use forebay_executor::store::{PruneRule, StoreConfig, Synchronous};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::config;

/// Set the fields of the same names.
macro_rules! set {
    ($name:expr, $value:expr, $policy:expr, $($field:ident),+) => {
        match $name {
            $(stringify!($field) => $policy.$field = $value.extract()?,)+
            other => return Err(config(format!(
                "the dispatcher has no setting {other:?}; its names are those of Policy, and the paths"
            ))),
        }
    };
}

/// Read them all; a name that is none is an error. 0 of what makes a worker be replaced means never, and 0 workers
/// as many as there is room for.
pub fn settings_of(dict: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let mut settings = Settings::default();
    let mut store = StoreConfig::new("");
    for (name, value) in dict {
        let name: String = name.extract()?;
        match name.as_str() {
            "socket" => settings.socket = path(&value)?,
            "side_socket" => settings.side_socket = path(&value)?,
            "log_bytes_max" => settings.log_bytes_max = value.extract()?,
            "arguments_bytes_max" => settings.arguments_bytes_max = value.extract()?,
            "reload" => settings.reload = value.extract()?,
            "idle_end_ms" => settings.idle_end = Some(Duration::from_millis(value.extract()?)),
            "state_dir" => store.directory = path(&value)?.unwrap_or_default(),
            name if set_store(&mut store, name, &value)? => {}
            name => set_policy(&mut settings.policy, name, &value)?,
        }
    }
    let policy = &mut settings.policy;
    for never in [
        &mut policy.worker_age_max_ms,
        &mut policy.worker_uses_max,
        &mut policy.worker_growth_max_bytes,
    ] {
        if *never == 0 {
            *never = u64::MAX;
        }
    }
    if policy.workers_max == 0 {
        policy.workers_max = Policy::default().workers_max;
    }
    settings.policy.durable = !store.directory.as_os_str().is_empty();
    settings.store = settings.policy.durable.then_some(store);
    Ok(settings)
}

/// Set one of the store's; false if it is another's.
fn set_store(store: &mut StoreConfig, name: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    match name {
        "synchronous" => {
            store.synchronous = match value.extract::<&str>()? {
                "full" => Synchronous::Full,
                "normal" => Synchronous::Normal,
                other => {
                    let text = format!("synchronous is {other:?}; give \"full\" or \"normal\"");
                    return Err(config(text));
                }
            }
        }
        "result_bytes_max" => store.result_bytes_max = value.extract()?,
        "queue_bytes_max" => store.queue_bytes_max = value.extract()?,
        "retention_age_ms" => store.retention_age_ms = value.extract()?,
        "retention_bytes" => store.retention_bytes = value.extract()?,
        "retention_every_ms" => store.retention_every_ms = value.extract()?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn path(value: &Bound<'_, PyAny>) -> PyResult<Option<PathBuf>> {
    value.extract()
}

fn set_policy(policy: &mut Policy, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    set!(
        name,
        value,
        policy,
        cores_milli,
        cpu_factor_max,
        memory_limit,
        memory_free_fraction,
        guard_fraction,
        pressure_max,
        worker_bytes,
        short_unknown_bytes,
        workers_max,
        guaranteed,
        burst,
        burst_run_ms_min,
        worker_idle_ms,
        worker_uses_max,
        worker_age_max_ms,
        worker_growth_max_bytes,
        async_at_once,
        deaths_max,
        exception_ms,
        terminate_ms,
        start_backoff_ms,
        start_backoff_max_ms,
        queued_max,
        lane_weights,
        overtaken_ms_max,
        low_resource,
        seed
    );
    Ok(())
}

/// A rule of what to prune: `older_s`, `status` as words, `ids` as numbers, `dry_run`.
pub fn prune_rule(dict: &Bound<'_, PyDict>, now_ms: u64) -> PyResult<PruneRule> {
    let mut rule = PruneRule::default();
    for (name, value) in dict {
        if value.is_none() {
            continue;
        }
        match name.extract::<&str>()? {
            "older_s" => {
                let older = Duration::try_from_secs_f64(value.extract()?).unwrap_or(Duration::MAX);
                let older_ms = u64::try_from(older.as_millis()).unwrap_or(u64::MAX);
                rule.ended_before = Some(now_ms.saturating_sub(older_ms));
            }
            "status" => {
                let words: Vec<String> = value.extract()?;
                rule.statuses = words
                    .iter()
                    .map(|word| status_of(word))
                    .collect::<PyResult<_>>()?;
            }
            "ids" => {
                let ids: Vec<u64> = value.extract()?;
                rule.ids = Some(ids.into_iter().map(RequestId).collect());
            }
            "dry_run" => rule.dry_run = value.extract()?,
            other => {
                let text =
                    format!("a prune rule has no {other:?}; it has older_s, status, ids, dry_run");
                return Err(config(text));
            }
        }
    }
    Ok(rule)
}

fn status_of(word: &str) -> PyResult<Status> {
    Ok(match word {
        "succeeded" => Status::Succeeded,
        "failed" => Status::Failed,
        "cancelled" => Status::Cancelled,
        "dead" => Status::Dead,
        other => {
            let text = format!(
                "status {other:?} cannot be pruned; give succeeded, failed, cancelled or dead"
            );
            return Err(config(text));
        }
    })
}
