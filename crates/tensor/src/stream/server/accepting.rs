//! How a server's thread accepts connections.
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use forebay_base::accept::ACCEPTS_PER_TURN;
use forebay_base::poll::{Ready, Token};
use forebay_base::slots::Key;
use forebay_transport::serve::Accepted;
use forebay_transport::stream::owner::foreign_user_message;
use forebay_transport::stream::{Socket, Wire};
use rustix::io::Errno;

use super::connection::{Connection, Watched};
use super::handshake::Handshake;
use super::reactor::Reactor;

/// Handshakes at once: each holds a descriptor, even if its client sends nothing.
const HANDSHAKES_MAX: usize = 256;

impl<K: Send> Reactor<K> {
    pub(super) fn accept(&mut self, listener: usize, socket: usize) {
        for _ in 0..ACCEPTS_PER_TURN {
            if self.handshakes >= HANDSHAKES_MAX {
                _ = self.set_accepting(false);
                return;
            }
            let Some(found) = self.listeners.get_mut(listener) else {
                return;
            };
            match found.acceptor.accept(socket) {
                Accepted::Connection(connection) => self.begin_handshake(listener, connection),
                Accepted::Nothing => return,
                Accepted::ForeignUser(uid) => {
                    self.metrics()
                        .fail(&self.metrics().refused, foreign_user_message(uid));
                }
                Accepted::Exhausted => {
                    let metrics = &self.common.metrics;
                    metrics.turned_away.fetch_add(1, Ordering::Relaxed);
                    _ = self.set_accepting(false);
                    self.timers.pause(Instant::now());
                    return;
                }
            }
        }
    }

    /// Begin to accept, if the owner asked for it since the last turn.
    pub(super) fn open(&mut self) {
        let closing = self.common.closing.load(Ordering::Acquire);
        let asked = !closing && self.common.opening.swap(false, Ordering::AcqRel);
        if asked && self.set_accepting(true).is_err() {
            self.timers.pause(Instant::now());
        }
    }

    pub(super) fn set_accepting(&mut self, accepting: bool) -> Result<(), Errno> {
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
                let token = Token::new(Watched::Listener, key);
                self.poll.add(socket, token, Ready::READ)?;
            } else {
                self.poll.remove(socket);
            }
        }
        self.accepting = accepting;
        Ok(())
    }

    fn begin_handshake(&mut self, listener: usize, connection: OwnedFd) {
        self.common.metrics.accepted.fetch_add(1, Ordering::Relaxed);
        let listener = &self.listeners[listener];
        let socket: Socket = Arc::new(connection);
        let wire = match &listener.tls {
            None => Ok(Wire::Socket(Arc::clone(&socket))),
            Some(tls) => tls.accept(Arc::clone(&socket)).map(Wire::from),
        };
        let wire = match wire {
            Ok(wire) => wire,
            Err(error) => {
                return self
                    .metrics()
                    .fail(&self.metrics().refused, error.to_string());
            }
        };
        let handshake = Handshake::new(wire, listener.admission.clone());
        let key = self
            .slots
            .insert(Connection::Handshake(Box::new(handshake)));
        self.handshakes += 1;
        self.timers.expect_hello(Instant::now(), key);
        let token = Token::new(Watched::Connection, key);
        if self.poll.add(&socket, token, Ready::READ).is_err() {
            return self.remove(key);
        }
        self.step(key);
    }

    /// Accept again after too many handshakes or a pause.
    pub(super) fn resume_accepting(&mut self) {
        let closing = self.common.closing.load(Ordering::Acquire);
        if !closing && !self.timers.is_paused() && self.handshakes < HANDSHAKES_MAX {
            _ = self.set_accepting(true);
        }
    }
}
