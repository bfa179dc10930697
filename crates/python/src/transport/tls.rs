//! TLS for Python: what accepts, what connects, and what a handshake found out.
#![allow(clippy::needless_pass_by_value)] // PyO3 passes arguments by value

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_transport::stream::Wire;
use forebay_transport::stream::tls::{
    Certificate, Client, ClientSettings, Handshakes, Identity, Peer, Server, ServerSettings,
    Version,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::error::{Result, config};

/// What accepts TLS connections; made once, shared by listeners.
#[pyclass(frozen, module = "forebay._core")]
pub struct TlsServer {
    core: Arc<Server>,
}

impl TlsServer {
    /// The core's handle.
    pub(crate) fn core(&self) -> Arc<Server> {
        Arc::clone(&self.core)
    }
}

#[pymethods]
impl TlsServer {
    #[new]
    #[pyo3(signature = (certificate, key, *, client_ca = None, alpn = None, min_version = "1.3"))]
    fn new(
        certificate: PathBuf,
        key: PathBuf,
        client_ca: Option<PathBuf>,
        alpn: Option<Vec<String>>,
        min_version: &str,
    ) -> Result<Self> {
        let settings = ServerSettings {
            identity: Identity { certificate, key },
            client_ca,
            alpn: bytes_of(alpn.unwrap_or_default()),
            version: version(min_version)?,
        };
        let core = Arc::new(Server::new(settings)?);
        Ok(Self { core })
    }

    /// Read the files again now; where that fails, what was read before stays in use.
    fn reload(&self) -> Result<()> {
        Ok(self.core.reload()?)
    }

    /// Why the newest files are not in use, if so.
    #[getter]
    fn failure(&self) -> Option<String> {
        self.core.failure().map(|error| error.to_string())
    }

    /// Handshakes by how they ended.
    fn handshakes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counts(py, self.core.handshakes())
    }
}

/// What opens TLS connections; made once, shared by connections, so that sessions are resumed.
#[pyclass(frozen, module = "forebay._core")]
pub struct TlsClient {
    core: Client,
}

#[pymethods]
impl TlsClient {
    #[new]
    #[pyo3(signature = (ca, *, identity = None, server_name = None, check_hostname = true, alpn = None, min_version = "1.3"))]
    fn new(
        ca: PathBuf,
        identity: Option<(PathBuf, PathBuf)>,
        server_name: Option<String>,
        check_hostname: bool,
        alpn: Option<Vec<String>>,
        min_version: &str,
    ) -> Result<Self> {
        let identity = identity.map(|(certificate, key)| Identity { certificate, key });
        let settings = ClientSettings {
            ca,
            identity,
            server_name,
            check_hostname,
            alpn: bytes_of(alpn.unwrap_or_default()),
            version: version(min_version)?,
        };
        let core = Client::new(settings)?;
        Ok(Self { core })
    }

    /// Read the files again now; where that fails, what was read before stays in use.
    fn reload(&self) -> Result<()> {
        Ok(self.core.reload()?)
    }

    /// Why the newest files are not in use, if so.
    #[getter]
    fn failure(&self) -> Option<String> {
        self.core.failure().map(|error| error.to_string())
    }

    /// Handshakes by how they ended.
    fn handshakes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counts(py, self.core.handshakes())
    }
}

/// A stream over a socket, by a `TlsServer` or a `TlsClient` where there is one.
pub fn wire_over(socket: OwnedFd, tls: Option<&Bound<'_, PyAny>>, host: &str) -> Result<Wire> {
    let Some(tls) = tls else {
        return Ok(Wire::from(socket));
    };
    let stream = if let Ok(server) = tls.cast::<TlsServer>() {
        server.get().core.accept(Arc::new(socket))
    } else {
        let client = tls.cast::<TlsClient>()?;
        client.get().core.connect(Arc::new(socket), host)
    };
    Ok(Wire::from(stream?))
}

/// What a handshake found out, as Python's `ssl` words it.
pub fn peer_to_python<'py>(py: Python<'py>, peer: &Peer) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("version", peer.version)?;
    found.set_item("cipher", (&peer.cipher, peer.version, peer.secret_bits))?;
    let alpn = peer.alpn.as_deref().map(String::from_utf8_lossy);
    found.set_item("alpn", alpn)?;
    found.set_item("resumed", peer.resumed)?;
    let chain = peer.certificates.iter().map(|der| PyBytes::new(py, der));
    found.set_item("chain", PyTuple::new(py, chain)?)?;
    let first = peer.certificates.first();
    let certificate = first.and_then(|der| Certificate::read(der));
    found.set_item(
        "certificate",
        match certificate {
            Some(certificate) => Some(certificate_to_python(py, &certificate)?),
            None => None,
        },
    )?;
    Ok(found)
}

/// The fields of `getpeercert`; the dates are seconds, for `_tls.py` to word.
fn certificate_to_python<'py>(py: Python<'py>, said: &Certificate) -> PyResult<Bound<'py, PyDict>> {
    let names = |name: &[Vec<(String, String)>]| {
        let sets = name.iter().map(|set| PyTuple::new(py, set.iter().cloned()));
        PyTuple::new(py, sets.collect::<PyResult<Vec<_>>>()?)
    };
    let fields = PyDict::new(py);
    fields.set_item("subject", names(&said.subject)?)?;
    fields.set_item("issuer", names(&said.issuer)?)?;
    fields.set_item("version", said.version)?;
    fields.set_item("serialNumber", &said.serial)?;
    fields.set_item("notBefore", said.not_before)?;
    fields.set_item("notAfter", said.not_after)?;
    if !said.alternative_names.is_empty() {
        let alternatives = said.alternative_names.iter().cloned();
        fields.set_item("subjectAltName", PyTuple::new(py, alternatives)?)?;
    }
    Ok(fields)
}

fn counts<'py>(py: Python<'py>, counted: &Handshakes) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("full", counted.full())?;
    found.set_item("resumed", counted.resumed())?;
    found.set_item("failed", counted.failed())?;
    Ok(found)
}

fn version(word: &str) -> Result<Version> {
    match word {
        "1.2" => Ok(Version::Tls12),
        "1.3" => Ok(Version::Tls13),
        other => Err(config(format!(
            "invalid min_version {other:?}; use \"1.2\" or \"1.3\""
        ))),
    }
}

fn bytes_of(names: Vec<String>) -> Vec<Vec<u8>> {
    names.into_iter().map(String::into_bytes).collect()
}
