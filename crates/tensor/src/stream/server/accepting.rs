//! The listening sockets of a server: whether they are watched, and how many handshakes there may be.
use std::sync::Arc;

use forebay_base::poll::{Poll, Ready, Token};
use forebay_base::slots::Key;
use forebay_transport::link::Admission;
use forebay_transport::serve::{Accepted, Acceptor};
use forebay_transport::stream::{Socket, Wire, tls};
use rustix::io::Errno;

use super::Entrance;
use super::connection::Watched;
use super::handshake::Handshake;

/// Handshakes at once: each holds a descriptor, even if its client sends nothing.
const HANDSHAKES_MAX: usize = 256;

struct Listener {
    acceptor: Acceptor,
    tls: Option<Arc<tls::Server>>,
    admission: Admission,
}

/// The listeners of a server.
pub(super) struct Acceptors {
    listeners: Vec<Listener>,
    /// The listener of each listening socket, and its number there.
    sockets: Vec<(usize, usize)>,
    /// The sockets are watched.
    accepting: bool,
    /// Handshakes that have not ended.
    handshakes: usize,
}

impl Acceptors {
    pub(super) fn new(entrances: Vec<Entrance>) -> Self {
        let listeners = entrances.into_iter().map(|entrance| Listener {
            acceptor: Acceptor::new(entrance.listening),
            tls: entrance.tls,
            admission: entrance.admission,
        });
        let listeners: Vec<_> = listeners.collect();
        let sockets = |(at, listener): (usize, &Listener)| {
            (0..listener.acceptor.sockets()).map(move |socket| (at, socket))
        };
        let sockets = listeners.iter().enumerate().flat_map(sockets).collect();
        Self {
            listeners,
            sockets,
            accepting: false,
            handshakes: 0,
        }
    }

    /// Whether there is room for another handshake.
    pub(super) fn has_room(&self) -> bool {
        self.handshakes < HANDSHAKES_MAX
    }

    /// Accept from the listening socket with this position.
    pub(super) fn accept(&mut self, socket: usize) -> Accepted {
        let Some(&(listener, socket)) = self.sockets.get(socket) else {
            return Accepted::Nothing;
        };
        match self.listeners.get_mut(listener) {
            Some(listener) => listener.acceptor.accept(socket),
            None => Accepted::Nothing,
        }
    }

    /// Begin the handshake of a connection that the socket accepted.
    ///
    /// # Errors
    ///
    /// Why TLS refuses it.
    pub(super) fn begin_handshake(
        &mut self,
        socket: usize,
        connection: Socket,
    ) -> Result<Handshake, String> {
        let (listener, _) = self.sockets[socket];
        let listener = &self.listeners[listener];
        let wire = match &listener.tls {
            None => Wire::Socket(connection),
            Some(tls) => {
                let accepted = tls.accept(connection);
                Wire::from(accepted.map_err(|error| error.to_string())?)
            }
        };
        self.handshakes += 1;
        Ok(Handshake::new(wire, listener.admission.clone()))
    }

    /// A handshake has ended, admitted or not.
    pub(super) fn end_handshake(&mut self) {
        self.handshakes -= 1;
    }

    /// Watch the sockets, or stop watching them.
    pub(super) fn set_accepting(
        &mut self,
        accepting: bool,
        poll: &Poll<Watched>,
    ) -> Result<(), Errno> {
        if self.accepting == accepting {
            return Ok(());
        }
        for (index, &(listener, socket)) in (0..).zip(&self.sockets) {
            let key = Key {
                index,
                generation: 0,
            };
            let socket = self.listeners[listener].acceptor.socket(socket);
            if accepting {
                poll.add(socket, Token::new(Watched::Listener, key), Ready::READ)?;
            } else {
                poll.remove(socket);
            }
        }
        self.accepting = accepting;
        Ok(())
    }

    /// Close the sockets.
    pub(super) fn close(&mut self) {
        self.listeners.clear();
    }
}
