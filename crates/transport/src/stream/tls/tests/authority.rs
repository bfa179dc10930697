//! A throw-away CA, and files that hold what it signed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

use super::tls::{Client, ClientSettings, Identity, Server, ServerSettings, Version};

static FOLDERS: AtomicU32 = AtomicU32::new(0);

/// A CA with a folder of its own, removed when dropped.
pub struct Authority {
    pub folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-tls-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(&name);
        std::fs::create_dir(&folder).expect("a folder");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, &name);
        let ca = params.self_signed(&key).expect("a CA");
        std::fs::write(folder.join("ca.pem"), ca.pem()).expect("written");
        Self {
            folder,
            issuer: Issuer::new(params, key),
        }
    }

    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// Sign a certificate for a name; one that is `over` ended in 2001.
    pub fn sign(&self, file: &str, name: &str, over: bool) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        if over {
            params.not_before = date_time_ymd(2000, 1, 1);
            params.not_after = date_time_ymd(2001, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("signed");
        write(&self.folder, file, &signed.pem(), &key)
    }

    /// A certificate that signs itself.
    pub fn lonely(&self, name: &str) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let signed = params.self_signed(&key).expect("signed");
        write(&self.folder, "lonely", &signed.pem(), &key)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn write(folder: &Path, file: &str, certificate: &str, key: &KeyPair) -> Identity {
    let identity = Identity {
        certificate: folder.join(format!("{file}.pem")),
        key: folder.join(format!("{file}.key")),
    };
    std::fs::write(&identity.certificate, certificate).expect("written");
    std::fs::write(&identity.key, key.serialize_pem()).expect("written");
    identity
}

/// What a server says that asks for no client certificate.
pub fn serving(identity: Identity) -> ServerSettings {
    ServerSettings {
        identity,
        client_ca: None,
        alpn: Vec::new(),
        version: Version::Tls13,
    }
}

/// What a client says that shows no certificate.
pub fn dialling(ca: PathBuf) -> ClientSettings {
    ClientSettings {
        ca,
        identity: None,
        server_name: None,
        check_hostname: true,
        alpn: Vec::new(),
        version: Version::Tls13,
    }
}

/// Both ends, which believe each other.
pub fn both(authority: &Authority) -> (Server, Client) {
    let identity = authority.sign("server", "localhost", false);
    let server = Server::new(serving(identity)).expect("a server");
    let client = Client::new(dialling(authority.ca())).expect("a client");
    (server, client)
}
