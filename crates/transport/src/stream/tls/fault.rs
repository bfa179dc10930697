//! The words for what failed.

use rustls::{AlertDescription, CertificateError, Error};

/// The text for the caller. During the handshake `first` are the first bytes of the peer's stream.
pub fn describe(error: &Error, first: Option<[u8; 4]>) -> String {
    match (error, first) {
        (Error::InvalidMessage(_), Some(first)) if !is_tls(first) => format!(
            "the peer does not speak TLS: its stream starts with {first:02x?}{}",
            if first == *b"FBAY" {
                ", a Forebay peer on a plain address"
            } else {
                ""
            }
        ),
        (
            Error::InvalidCertificate(
                why @ (CertificateError::UnknownIssuer | CertificateError::BadSignature),
            ),
            _,
        ) => format!("the peer's certificate was not issued by the CA given here ({why})"),
        (Error::InvalidCertificate(why), _) => format!("the peer's certificate is refused: {why}"),
        (Error::AlertReceived(AlertDescription::CertificateRequired), _) => {
            "the peer wants a client certificate and got none (certificate_required)".into()
        }
        (Error::AlertReceived(AlertDescription::UnknownCA), _) => {
            "the peer does not know the CA of our certificate (unknown_ca)".into()
        }
        (Error::AlertReceived(AlertDescription::NoApplicationProtocol), _) => {
            "the peer speaks none of the protocols named here (no_application_protocol)".into()
        }
        (Error::NoApplicationProtocol, _) => {
            "the peer names none of the protocols spoken here (no_application_protocol)".into()
        }
        (Error::NoCertificatesPresented, _) => {
            "the peer showed no client certificate, which is wanted here".into()
        }
        (error, _) => error.to_string(),
    }
}

/// Whether a stream that starts so may be TLS: a record of the handshake or an alert, version 3.
fn is_tls(first: [u8; 4]) -> bool {
    matches!(first, [0x15 | 0x16, 3, ..])
}
