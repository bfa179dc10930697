//! What both kinds of pools are given by Python, as the core takes it.

use forebay_pool::confine::Limits;
use forebay_pool::death::Cause;
use forebay_pool::readiness::Readiness;
use forebay_pool::wire::Launch;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::Result;

/// Names and values of an environment.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Bytes of memory, thousandths of a core, open files, processes, whether they are only advice, and whether the service
/// is stateful.
pub type PyLimits = (u64, u32, u32, u32, bool, bool);

/// Command line, environment, directory, how it becomes ready, whether the caller looks, whether its own socket is its
/// standard input and output.
pub type PyLaunch = (Vec<Vec<u8>>, Pairs, Vec<u8>, (u8, Vec<u8>), bool, bool);

/// How a program is started.
pub fn launch_of(given: PyLaunch) -> Result<Launch> {
    let (arguments, environment, directory, (code, text), caller_looks, stdio) = given;
    Ok(Launch {
        arguments,
        environment,
        directory,
        readiness: Readiness::from_parts(code, text)?,
        caller_looks,
        stdio,
    })
}

/// How a template is started.
pub fn template_launch(arguments: Vec<Vec<u8>>, environment: Pairs, directory: Vec<u8>) -> Launch {
    Launch {
        arguments,
        environment,
        directory,
        ..Launch::default()
    }
}

/// None is no limits.
pub fn limits_of(limits: Option<PyLimits>) -> Limits {
    let (memory_bytes, cpu_millis, open_files, processes, advisory, stateful) =
        limits.unwrap_or_default();
    Limits {
        memory_bytes,
        cpu_millis,
        open_files,
        processes,
        advisory,
        stateful,
    }
}

/// Why a service is ended that was lent.
pub fn discard_cause(name: &str) -> Cause {
    match name {
        "returned" => Cause::Returned,
        name => Cause::from_name(name).unwrap_or(Cause::Discarded),
    }
}

/// Rounded up, so that a wait never ends before its time.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked to be in range
pub fn milliseconds(seconds: f64) -> PyResult<u64> {
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!(
            "a time of {seconds} s cannot be waited for"
        )));
    }
    Ok((seconds * 1000.0).ceil().min(1e15) as u64)
}
