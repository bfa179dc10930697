//! Certificates and keys out of PEM files, with errors that say which file and what is wrong in it.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::{Error, Result};

/// The certificates of a file, in its order; at least one.
///
/// # Errors
/// `Config`: it cannot be read, holds none, or is damaged.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(path)?;
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| damaged(path, &error))?;
    if found.is_empty() {
        return Err(lacks(path, "certificate", "CERTIFICATE", &bytes));
    }
    Ok(found)
}

/// The first private key of a file.
///
/// # Errors
/// As [`certificates`]; also where the key is encrypted.
pub fn key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let bytes = read(path)?;
    match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) if has(&bytes, "ENCRYPTED PRIVATE KEY") => {
            Err(Error::Config(format!(
                "{}: the private key is encrypted; write it in the clear with `openssl pkey -in {0}`, \
                 readable by its owner alone",
                path.display()
            )))
        }
        Err(pem::Error::NoItemsFound) => Err(lacks(path, "private key", "PRIVATE KEY", &bytes)),
        Err(error) => Err(damaged(path, &error)),
    }
}

/// The roots of a CA file.
///
/// # Errors
/// As [`certificates`]; also where one of them is no certificate of X.509.
pub fn roots(path: &Path) -> Result<(RootCertStore, Vec<CertificateDer<'static>>)> {
    let listed = certificates(path)?;
    let mut roots = RootCertStore::empty();
    for (index, certificate) in listed.iter().enumerate() {
        roots.add(certificate.clone()).map_err(|error| {
            let (path, number) = (path.display(), index + 1);
            Error::Config(format!(
                "{path}: certificate {number} cannot be a CA: {error}"
            ))
        })?;
    }
    Ok((roots, listed))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::Config(format!("{}: {error}", path.display())))
}

fn damaged(path: &Path, error: &pem::Error) -> Error {
    Error::Config(format!(
        "{}: the PEM text is damaged: {error}",
        path.display()
    ))
}

/// What a file lacks, and what it holds instead.
fn lacks(path: &Path, what: &str, label: &str, bytes: &[u8]) -> Error {
    let mut held = Vec::new();
    let mut rest = bytes;
    while let Ok(Some((kind, _))) = pem::from_buf(&mut rest) {
        held.push(name(kind));
    }
    let held = if held.is_empty() {
        "no PEM block at all".to_owned()
    } else {
        held.join(", ")
    };
    let path = path.display();
    Error::Config(format!(
        "{path}: no {what} in it (a block \"-----BEGIN {label}-----\"); it holds {held}"
    ))
}

fn name(kind: SectionKind) -> &'static str {
    match kind {
        SectionKind::Certificate => "a certificate",
        SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
            "a private key"
        }
        SectionKind::Csr => "a certificate request",
        SectionKind::PublicKey => "a public key",
        _ => "another block",
    }
}

fn has(bytes: &[u8], label: &str) -> bool {
    String::from_utf8_lossy(bytes).contains(&format!("-----BEGIN {label}-----"))
}
