//! TLS over any stream: rustls with ring, without a thread and without I/O of its own.
//!
//! [`Server`] and [`Client`] are made once from PEM files and shared by connections; they remember
//! sessions, so that a later handshake is short, and follow their files. [`Tls`] is one end of a
//! connection and a [`crate::stream::Stream`], so a state machine does not notice it.
//! The design note is `docs/concepts/transport/messages.md`.

mod certificate;
mod config;
mod der;
mod fault;
mod files;
mod peer;
mod pem;
mod plain;
mod session;
mod stream;
#[cfg(test)]
mod tests;
mod verify;

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::{ClientConfig, ServerConfig};

pub use certificate::Certificate;
pub use config::{ClientSettings, Identity, ServerSettings, Version};
pub use peer::{Handshakes, Peer};
pub use stream::Tls;

use crate::error::{Error, Result};
use crate::stream::Stream;
use files::Files;
use session::Session;

/// What accepts TLS connections.
pub struct Server {
    files: Files<ServerConfig>,
    handshakes: Arc<Handshakes>,
}

impl Server {
    /// Read the files that the settings name.
    ///
    /// # Errors
    /// `Config`, naming the file and what is wrong in it.
    pub fn new(settings: ServerSettings) -> Result<Self> {
        let paths = settings.paths();
        Ok(Self {
            files: Files::new(paths, Box::new(move || settings.load()))?,
            handshakes: Arc::default(),
        })
    }

    /// Begin on an accepted stream. New certificates are used from here on, where files changed.
    ///
    /// # Errors
    /// `Config`, where the machine refuses its configuration.
    pub fn accept<S: Stream>(&self, stream: S) -> Result<Tls<S>> {
        let side = UnbufferedServerConnection::new(self.files.current())
            .map_err(|error| refused(&error))?;
        let session = Session::Server(Box::new(side));
        Ok(Tls::new(stream, session, self.handshakes.clone()))
    }

    /// Read the files again now.
    ///
    /// # Errors
    /// As [`Self::new`]; what was read before then stays in use.
    pub fn reload(&self) -> Result<()> {
        self.files.reload()
    }

    /// Why the newest files are not in use, if so.
    pub fn failure(&self) -> Option<Error> {
        self.files.failure()
    }

    /// What was counted.
    pub fn handshakes(&self) -> &Handshakes {
        &self.handshakes
    }
}

/// What opens TLS connections.
pub struct Client {
    files: Files<ClientConfig>,
    server_name: Option<String>,
    handshakes: Arc<Handshakes>,
}

impl Client {
    /// Read the files that the settings name.
    ///
    /// # Errors
    /// `Config`, naming the file and what is wrong in it, or the server name.
    pub fn new(settings: ClientSettings) -> Result<Self> {
        let paths = settings.paths();
        let server_name = settings.server_name.clone();
        if let Some(name) = &server_name {
            parse(name)?;
        }
        Ok(Self {
            files: Files::new(paths, Box::new(move || settings.load()))?,
            server_name,
            handshakes: Arc::default(),
        })
    }

    /// Begin on a stream that is connected to `host`, a name or an address.
    ///
    /// # Errors
    /// `Config`, where the host is neither.
    pub fn connect<S: Stream>(&self, stream: S, host: &str) -> Result<Tls<S>> {
        let name = parse(self.server_name.as_deref().unwrap_or(host))?;
        let side = UnbufferedClientConnection::new(self.files.current(), name)
            .map_err(|error| refused(&error))?;
        let session = Session::Client(Box::new(side));
        Ok(Tls::new(stream, session, self.handshakes.clone()))
    }

    /// Read the files again now. Sessions from before are forgotten.
    ///
    /// # Errors
    /// As [`Self::new`]; what was read before then stays in use.
    pub fn reload(&self) -> Result<()> {
        self.files.reload()
    }

    /// Why the newest files are not in use, if so.
    pub fn failure(&self) -> Option<Error> {
        self.files.failure()
    }

    /// What was counted.
    pub fn handshakes(&self) -> &Handshakes {
        &self.handshakes
    }
}

fn parse(name: &str) -> Result<ServerName<'static>> {
    let bare = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let bare = bare.unwrap_or(name);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(ServerName::from(address));
    }
    ServerName::try_from(bare.to_owned()).map_err(|_| {
        Error::Config(format!(
            "TLS server name {name:?} is neither a host name nor an address"
        ))
    })
}

fn refused(error: &rustls::Error) -> Error {
    Error::Config(format!("TLS: {error}"))
}
