//! What a handshake established.

use std::sync::atomic::{AtomicU64, Ordering};

use rustls::{CommonState, HandshakeKind, ProtocolVersion};

use crate::stream::tls::session::Session;

/// The peer's identity and the negotiated parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// "TLSv1.2" or "TLSv1.3".
    pub version: &'static str,
    /// The name of the cipher suite, for example `TLS_AES_256_GCM_SHA384`.
    pub cipher: String,
    /// The length of its secret key.
    pub secret_bits: u16,
    /// The protocol that both sides named.
    pub alpn: Option<Vec<u8>>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The peer's certificates in DER, its own first; empty where it showed none.
    pub certificates: Vec<Vec<u8>>,
}

impl Peer {
    pub(super) fn of(session: &Session) -> Self {
        let common = session.common();
        let suite = common.negotiated_cipher_suite();
        let name = suite.map_or_else(String::new, |suite| format!("{:?}", suite.suite()));
        let cipher = name.replacen("TLS13_", "TLS_", 1);
        let secret_bits = if cipher.contains("AES_128") { 128 } else { 256 };
        let certificates = common.peer_certificates().unwrap_or_default();
        Self {
            version: match common.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "TLSv1.3",
            },
            cipher,
            secret_bits,
            alpn: common.alpn_protocol().map(<[u8]>::to_vec),
            resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
            certificates: certificates.iter().map(|one| one.to_vec()).collect(),
        }
    }
}

/// Handshakes of one configuration, counted.
#[derive(Debug, Default)]
pub struct Handshakes {
    full: AtomicU64,
    resumed: AtomicU64,
    failed: AtomicU64,
}

impl Handshakes {
    pub(super) fn count(&self, common: &CommonState) {
        let kind = match common.handshake_kind() {
            Some(HandshakeKind::Resumed) => &self.resumed,
            _ => &self.full,
        };
        kind.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Handshakes in full.
    pub fn full(&self) -> u64 {
        self.full.load(Ordering::Relaxed)
    }

    /// Handshakes that resumed an earlier session.
    pub fn resumed(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    /// Handshakes that failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}
