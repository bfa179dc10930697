//! The descriptors of a server's poll, and the connections among them.
use forebay_base::poll::{Kind, Ready};
use forebay_base::slots::Key;
use forebay_transport::stream::Wire;

use super::handshake::Handshake;
use crate::responder::PeerId;
use crate::stream::channel::Channel;

/// What a descriptor of the poll is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Watched {
    /// The wakeup of the owner's commands.
    Commands,
    /// Finished reads of files.
    Files,
    /// A listening socket; the index of its key is its position in the acceptor.
    Listener,
    /// A connection, by the key of its slot.
    Connection,
}

impl Kind for Watched {
    const ALL: &'static [Self] = &[
        Self::Commands,
        Self::Files,
        Self::Listener,
        Self::Connection,
    ];

    fn index(self) -> usize {
        self as usize
    }
}

/// An admitted client.
pub(super) struct PeerConnection {
    pub(super) id: PeerId,
    pub(super) channel: Channel,
    /// What its socket is watched for.
    pub(super) watched: Ready,
    /// It is in the reactor's `again` already.
    pub(super) queued: bool,
}

/// The connection in a slot.
pub(super) enum Connection {
    /// Its handshake is not finished.
    Handshake(Box<Handshake>),
    Peer(Box<PeerConnection>),
    /// A connection over the fabric: its responder endpoint, and the slot of its lifeline.
    Endpoint(Key, Key),
    /// The lifeline of a fabric connection, and the slot of its endpoint.
    Lifeline(Box<Wire>, Key),
}
