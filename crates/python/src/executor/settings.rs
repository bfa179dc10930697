//! The settings of a dispatcher, from a dict.

use std::path::PathBuf;

use forebay_executor::dispatcher::Settings;
use forebay_executor::machine::Policy;
use forebay_executor::store::{StoreConfig, Synchronous};
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

/// Read them all; a name that is none is an error.
pub fn settings_of(dict: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let mut settings = Settings::default();
    let mut store = StoreConfig::new("");
    for (name, value) in dict {
        let name: String = name.extract()?;
        match name.as_str() {
            "socket" => settings.socket = path(&value)?,
            "state_dir" => store.directory = path(&value)?.unwrap_or_default(),
            name if set_store(&mut store, name, &value)? => {}
            name => set_policy(&mut settings.policy, name, &value)?,
        }
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
