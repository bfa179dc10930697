//! How the clients of a listening address begin.
use std::sync::Arc;

use forebay_transport::link::Admission;
use forebay_transport::serve::Listening;
use forebay_transport::stream::{Socket, Wire, tls};

use super::Entrance;
use super::handshake::Handshake;

/// What an entrance asks of its clients.
pub(super) struct EntranceRules {
    tls: Option<Arc<tls::Server>>,
    admission: Admission,
}

impl EntranceRules {
    /// What there is to listen on, and the rules of each in the same order.
    pub(super) fn split(entrances: Vec<Entrance>) -> (Vec<Listening>, Vec<Self>) {
        let split = |entrance: Entrance| {
            let (tls, admission) = (entrance.tls, entrance.admission);
            (entrance.listening, Self { tls, admission })
        };
        entrances.into_iter().map(split).unzip()
    }

    /// The handshake of a client that has connected.
    ///
    /// # Errors
    ///
    /// Why TLS refuses it.
    pub(super) fn handshake(&self, connection: Socket) -> Result<Handshake, String> {
        let wire = match &self.tls {
            None => Wire::Socket(connection),
            Some(tls) => {
                let accepted = tls.accept(connection);
                Wire::from(accepted.map_err(|error| error.to_string())?)
            }
        };
        Ok(Handshake::new(wire, self.admission.clone()))
    }
}
