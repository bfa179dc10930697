//! Admission: the token that one end shows after its preface, and that the other end requires.

use crate::link::outbox::Outbox;
use crate::wire::frame::{Header, Kind};

/// What this end requires of the peer before it takes a message or a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Only a preface.
    #[default]
    Anybody,
    /// A preface followed by this token.
    Token(Vec<u8>),
}

impl Admission {
    /// Whether a peer that shows this token is admitted.
    pub fn admits(&self, shown: &[u8]) -> bool {
        match self {
            Self::Anybody => true,
            Self::Token(token) => is_same(token, shown),
        }
    }
}

/// How the two ends admit each other.
#[derive(Clone, Debug, Default)]
pub struct Handshake {
    /// What this end requires of the peer.
    pub admission: Admission,
    /// The token that it shows.
    pub token: Option<Vec<u8>>,
    /// Whether memory for announced lengths is allocated at once, even for a peer of another user.
    pub trusted: bool,
}

/// Queue the frame that shows a token.
pub fn show(token: &[u8], outbox: &mut Outbox) {
    let header = Header {
        head_bytes: u32::try_from(token.len()).unwrap_or(u32::MAX),
        ..Header::control(Kind::Token, 0)
    };
    outbox.push_copy(&header.encode());
    outbox.push_copy(token);
}

/// Compare in a time that does not depend on how many bytes match.
fn is_same(token: &[u8], shown: &[u8]) -> bool {
    token.len() == shown.len()
        && token
            .iter()
            .zip(shown)
            .fold(0, |differing, (one, other)| differing | (one ^ other))
            == 0
}
