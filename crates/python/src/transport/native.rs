//! Native listeners for Python: their thread never takes the GIL.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_transport::limit;
use forebay_transport::link::Admission;
use forebay_transport::serve::{
    Address, Health, MessageServer, ServerOptions, Service, Shared, Store, Table, Target,
};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use super::conversion::seconds;
use super::messages::{MessageConnection, limits_of};
use super::owner::listening;
use crate::error::{Result, config};
use crate::fields::set_items;
use crate::sys::kept::{Kept, end_exports};
use crate::sys::lent::Lent;

/// What answers messages.
#[pyclass(frozen, module = "forebay._core")]
pub struct NativeService {
    service: Service,
}

#[pymethods]
impl NativeService {
    /// Each message goes back.
    #[staticmethod]
    fn echo() -> Self {
        let service = Service::Echo;
        Self { service }
    }

    /// Keys are answered with values.
    #[staticmethod]
    fn store(store: PyRef<'_, NativeStore>) -> Self {
        let service = Service::Store(Arc::clone(&store.core));
        Self { service }
    }

    /// Any message is answered with a status.
    #[staticmethod]
    fn health(health: PyRef<'_, NativeHealth>) -> Self {
        let service = Service::Health(Arc::clone(&health.core));
        Self { service }
    }

    /// Connections go to an address of TCP, or to a path.
    #[staticmethod]
    #[pyo3(signature = (*, address = None, path = None, token = None, limits = None))]
    fn forward(
        address: Option<(String, u16)>,
        path: Option<PathBuf>,
        token: Option<Vec<u8>>,
        limits: Option<Bound<'_, PyDict>>,
    ) -> Result<Self> {
        let address = match (address, path) {
            (Some((host, port)), None) => {
                let Ok(ip) = host.parse::<IpAddr>() else {
                    return Err(config(format!("invalid IP address: {host:?}")));
                };
                Address::Tcp(SocketAddr::new(ip, port))
            }
            (None, Some(path)) => Address::Unix(path),
            _ => return Err(config("forward: give an address or a path")),
        };
        let limits = limits_of(limits)?;
        let service = Service::Forward(Arc::new(Target {
            address,
            token,
            limits,
        }));
        Ok(Self { service })
    }

    /// The first frame names one of `services`.
    #[staticmethod]
    fn table(services: HashMap<Vec<u8>, PyRef<'_, NativeService>>, hands_over: bool) -> Self {
        let named = services
            .into_iter()
            .map(|(name, service)| (name, service.service.clone()));
        let service = Service::Table(Arc::new(Table::new(named.collect(), hands_over)));
        Self { service }
    }
}

/// Values by key.
#[pyclass(frozen, module = "forebay._core")]
pub struct NativeStore {
    core: Arc<Store>,
}

#[pymethods]
impl NativeStore {
    #[new]
    fn new() -> Self {
        let core = Arc::default();
        Self { core }
    }

    /// Serve a value from now on; `copy` says whether the caller may change its buffers afterwards.
    fn put(&self, py: Python<'_>, key: &[u8], value: &Bound<'_, PyAny>, copy: bool) -> Result<()> {
        let frames: Vec<_> = if let Ok(list) = value.cast::<PyList>() {
            list.iter().collect()
        } else if let Ok(tuple) = value.cast::<PyTuple>() {
            tuple.iter().collect()
        } else {
            vec![value.clone()]
        };
        let frames = frames
            .iter()
            .map(|frame| shared(py, frame, copy))
            .collect::<Result<Vec<_>>>()?;
        if frames.iter().all(|frame| (**frame).as_ref().is_empty()) {
            return Err(config(format!(
                "the value of {key:?} is empty, which means a miss; put at least one byte"
            )));
        }
        drop(self.core.put(key, frames));
        end_exports(py);
        Ok(())
    }

    /// Serve a key no more; whether it was there.
    fn delete(&self, py: Python<'_>, key: &[u8]) -> bool {
        let found = self.core.delete(key).is_some();
        end_exports(py);
        found
    }

    fn __contains__(&self, key: &[u8]) -> bool {
        self.core.contains(key)
    }

    fn __len__(&self) -> usize {
        self.core.counters().values
    }

    /// What was counted.
    fn metrics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let counted = self.core.counters();
        let metrics = PyDict::new(py);
        set_items!(metrics, counted; values hits misses);
        Ok(metrics)
    }
}

/// A frame of a value. `bytes` need no copy: they are immutable.
fn shared(py: Python<'_>, frame: &Bound<'_, PyAny>, copy: bool) -> Result<Shared> {
    if let Ok(bytes) = frame.cast_exact::<PyBytes>() {
        return Ok(Arc::new(PyBackedBytes::from(bytes.clone())));
    }
    let lent = Lent::new(frame)?;
    if !copy {
        return Ok(Arc::new(Kept::new(lent)));
    }
    let bytes = if lent.as_ref().len() > limit::COPY_BYTES_MAX {
        py.detach(|| lent.as_ref().to_vec())
    } else {
        lent.as_ref().to_vec()
    };
    Ok(Arc::new(bytes))
}

/// The answer to health checks.
#[pyclass(frozen, module = "forebay._core")]
pub struct NativeHealth {
    core: Arc<Health>,
}

#[pymethods]
impl NativeHealth {
    #[new]
    fn new(status: String) -> Self {
        let core = Arc::new(Health::new(status));
        Self { core }
    }

    /// Answer this from now on.
    fn set(&self, status: String) {
        self.core.set(status);
    }

    #[getter]
    fn status(&self) -> String {
        self.core.status()
    }
}

/// A listener and its thread.
#[pyclass(frozen, module = "forebay._core")]
pub struct NativeServer {
    core: MessageServer,
}

#[pymethods]
impl NativeServer {
    /// Serve listening sockets, which are given away, or a path.
    #[new]
    #[pyo3(signature = (service, *, descriptors, path, expected, trusted, limits, handshake, stall, own = false))]
    #[allow(clippy::too_many_arguments)] // each is named by the caller
    fn new(
        service: PyRef<'_, NativeService>,
        descriptors: Vec<RawFd>,
        path: Option<PathBuf>,
        expected: Option<Vec<u8>>,
        trusted: bool,
        limits: Option<Bound<'_, PyDict>>,
        handshake: f64,
        stall: f64,
        own: bool,
    ) -> Result<Self> {
        let listening = listening(path, descriptors, own)?;
        let options = ServerOptions {
            limits: limits_of(limits)?,
            admission: expected.map_or(Admission::Anybody, Admission::Token),
            trusted,
            handshake: seconds(handshake)?,
            stall: seconds(stall)?,
        };
        let core = MessageServer::start(listening, service.service.clone(), options)?;
        Ok(Self { core })
    }

    /// Readable when connections were handed over, and once the thread has ended.
    fn fileno(&self) -> RawFd {
        self.core.fileno()
    }

    /// Connections that were handed over; `None` once the thread has ended.
    fn take(&self, py: Python<'_>, peer: &str) -> Result<Option<Vec<MessageConnection>>> {
        let Some(states) = self.core.take_handed() else {
            return Ok(None);
        };
        states
            .into_iter()
            .map(|state| MessageConnection::from_handed(py, state, peer.to_owned()))
            .collect::<Result<_>>()
            .map(Some)
    }

    /// Begin to close.
    fn stop(&self) {
        self.core.stop();
    }

    /// Close, and wait for the thread, without the GIL.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.core.close());
        end_exports(py);
    }

    /// What was counted.
    fn metrics<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let counted = self.core.counters();
        let metrics = PyDict::new(py);
        metrics.set_item("connections", counted.open)?;
        set_items!(metrics, counted; accepted messages handed_over late stalled failed turned_away);
        let failure = counted.failure.map(|failure| failure.to_string());
        metrics.set_item("last_failure", failure)?;
        Ok(metrics)
    }
}
