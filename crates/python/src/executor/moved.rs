//! Workers that go over to another server, as Python passes them on: their facts and their descriptors.

use std::os::fd::{IntoRawFd, RawFd};

use forebay_executor::dispatcher::{self, MovedRun, MovedWorker};
use forebay_executor::id::RequestId;
use forebay_executor::machine::AdoptedRun;
use forebay_executor::request::Lane;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Result, config};
use crate::sys::descriptor::take;

/// The facts of a worker, which Python encodes; and its connection, its pidfd, its side socket, its output if it has one.
pub type Moved<'py> = (Bound<'py, PyDict>, Vec<RawFd>);

/// The socket of the clients and its lock; the workers.
pub type HandoverSeen<'py> = ([RawFd; 2], Vec<Moved<'py>>);

/// A call, its request, the number of the run, how long it has run, and 1 if it waits for its children.
type Run = [u64; 5];

/// What a dispatcher has given: the socket of the clients with its lock, and the workers. All descriptors are Python's.
pub fn given(py: Python<'_>, given: dispatcher::Handover) -> PyResult<HandoverSeen<'_>> {
    let clients = given.clients.map(IntoRawFd::into_raw_fd);
    let workers = given.workers.into_iter().map(|worker| moved(py, worker));
    Ok((clients, workers.collect::<PyResult<_>>()?))
}

fn moved(py: Python<'_>, worker: MovedWorker) -> PyResult<Moved<'_>> {
    let runs = worker.runs.iter();
    let runs: Vec<Run> = runs
        .map(|moved| {
            [
                moved.call,
                moved.run.id.0,
                moved.run.attempt.into(),
                moved.run.ran_ms,
                moved.run.waits.into(),
            ]
        })
        .collect();
    let facts = PyDict::new(py);
    facts.set_item("slot", worker.slot)?;
    facts.set_item("lane", worker.lane.word())?;
    facts.set_item("pid", worker.pid)?;
    facts.set_item("generation", worker.generation)?;
    facts.set_item("is_measured", worker.is_measured)?;
    facts.set_item("runs", runs)?;
    let descriptors = [worker.connection, worker.pidfd, worker.side];
    let descriptors = descriptors.into_iter().chain(worker.output);
    Ok((facts, descriptors.map(IntoRawFd::into_raw_fd).collect()))
}

/// A worker from what [`given`] has made of it.
pub fn moved_of(worker: &Bound<'_, PyAny>) -> Result<MovedWorker> {
    let (facts, descriptors): Moved<'_> = worker.extract()?;
    let taken = descriptors.into_iter().map(take);
    let mut taken = taken.collect::<PyResult<Vec<_>>>()?.into_iter();
    let few = || config("a moved worker has three descriptors, or four");
    let mut next = || taken.next().ok_or_else(few);
    let (connection, pidfd, side) = (next()?, next()?, next()?);
    let fact = |name: &str| {
        let found = facts.get_item(name)?;
        found.ok_or_else(|| PyErr::from(config(format!("a moved worker without {name:?}"))))
    };
    let lane: String = fact("lane")?.extract()?;
    let unknown = || config(format!("there is no lane {lane:?}"));
    let runs: Vec<Run> = fact("runs")?.extract()?;
    Ok(MovedWorker {
        slot: fact("slot")?.extract()?,
        lane: Lane::of_word(&lane).ok_or_else(unknown)?,
        pid: fact("pid")?.extract()?,
        generation: fact("generation")?.extract()?,
        // A server of an older version does not say it, and measures each.
        is_measured: facts
            .get_item("is_measured")?
            .is_none_or(|it| it.is_truthy().unwrap_or(true)),
        connection,
        pidfd,
        side,
        output: taken.next(),
        runs: runs.into_iter().map(run_of).collect(),
    })
}

fn run_of([call, id, attempt, ran_ms, waits]: Run) -> MovedRun {
    let run = AdoptedRun {
        id: RequestId(id),
        attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
        ran_ms,
        waits: waits > 0,
    };
    MovedRun { call, run }
}
