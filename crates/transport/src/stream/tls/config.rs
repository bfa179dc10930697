//! What a program says about TLS, and the machine's configuration that follows from it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};

use crate::error::{Error, Result};
use crate::limit::SESSIONS_MAX;
use crate::stream::tls::pem;
use crate::stream::tls::verify::{Authority, ClientCheck, ServerCheck};

/// The oldest version that is spoken. Renegotiation exists in neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    Tls12,
    #[default]
    Tls13,
}

impl Version {
    fn spoken(self) -> &'static [&'static SupportedProtocolVersion] {
        static BOTH: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        match self {
            Self::Tls12 => &BOTH,
            Self::Tls13 => &BOTH[..1],
        }
    }
}

/// A certificate chain and its key, in PEM files; one file may hold both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Identity {
    fn load(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        Ok((pem::certificates(&self.certificate)?, pem::key(&self.key)?))
    }

    fn refused(&self, error: &rustls::Error) -> Error {
        let (key, certificate) = (self.key.display(), self.certificate.display());
        Error::Config(match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("{key}: the key is not that of the first certificate in {certificate}")
            }
            error => format!("{certificate} with {key}: {error}"),
        })
    }
}

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    pub identity: Identity,
    /// Ask for a client certificate that leads here, and refuse clients without one.
    pub client_ca: Option<PathBuf>,
    /// Protocols, the best first; a client that names others alone is refused.
    pub alpn: Vec<Vec<u8>>,
    pub version: Version,
}

impl ServerSettings {
    /// Files that the configuration depends on.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.identity.certificate.clone(), self.identity.key.clone()];
        paths.extend(self.client_ca.clone());
        paths
    }

    /// Read the files.
    ///
    /// # Errors
    /// `Config`, naming the file and what is wrong in it.
    pub fn load(&self) -> Result<Arc<ServerConfig>> {
        let provider = Arc::new(ring::default_provider());
        let (chain, key) = self.identity.load()?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(self.version.spoken())
            .map_err(|error| Error::Config(error.to_string()))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => builder.with_client_cert_verifier(client_check(path, &provider)?),
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| self.identity.refused(&error))?;
        config.alpn_protocols.clone_from(&self.alpn);
        config.session_storage = rustls::server::ServerSessionMemoryCache::new(SESSIONS_MAX);
        Ok(Arc::new(config))
    }
}

fn client_check(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Arc<ClientCheck>> {
    let authority = authority(path)?;
    let roots = authority.roots.clone();
    let chain = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
        .build()
        .map_err(|error| Error::Config(format!("{}: {error}", path.display())))?;
    Ok(Arc::new(ClientCheck { authority, chain }))
}

fn authority(path: &Path) -> Result<Authority> {
    let (roots, listed) = pem::roots(path)?;
    Ok(Authority {
        roots: Arc::new(roots),
        listed,
    })
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    /// The authorities to trust.
    pub ca: PathBuf,
    /// The certificate for a server that asks for one.
    pub identity: Option<Identity>,
    /// The name to ask for and to look for in the certificate, instead of the host that is dialled.
    pub server_name: Option<String>,
    /// Whether the certificate has to be made for that name.
    pub check_hostname: bool,
    /// Protocols, the best first.
    pub alpn: Vec<Vec<u8>>,
    pub version: Version,
}

impl ClientSettings {
    /// Files that the configuration depends on.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.ca.clone()];
        if let Some(identity) = &self.identity {
            paths.push(identity.certificate.clone());
            paths.push(identity.key.clone());
        }
        paths
    }

    /// Read the files.
    ///
    /// # Errors
    /// `Config`, naming the file and what is wrong in it.
    pub fn load(&self) -> Result<Arc<ClientConfig>> {
        let provider = Arc::new(ring::default_provider());
        let check = ServerCheck {
            authority: authority(&self.ca)?,
            check_hostname: self.check_hostname,
            algorithms: provider.signature_verification_algorithms,
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.version.spoken())
            .map_err(|error| Error::Config(error.to_string()))?
            .dangerous() // rustls's word for checks that are not its own: see verify.rs
            .with_custom_certificate_verifier(Arc::new(check));
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = identity.load()?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| identity.refused(&error))?
            }
        };
        config.alpn_protocols.clone_from(&self.alpn);
        config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
        Ok(Arc::new(config))
    }
}
