//! How a server's thread accepts connections.
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use forebay_transport::Wire;
use forebay_transport::owner::stranger;
use forebay_transport::serve::Arrival;
use forebay_transport::stream::socket::Socket;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::handshake::Handshake;
use super::reactor::{LISTENERS, Reactor, SOCKETS_MAX};
use super::slots::Connection;

const ACCEPTS_A_TURN: usize = 64;
/// Handshakes at once: each holds a descriptor, even if its client sends nothing.
const HANDSHAKES_MAX: usize = 256;

impl<K: Send> Reactor<K> {
    pub(super) fn accept(&mut self, listener: usize, socket: usize) {
        for _ in 0..ACCEPTS_A_TURN {
            if self.handshakes >= HANDSHAKES_MAX {
                _ = self.set_accepting(false);
                return;
            }
            let Some(found) = self.listeners.get_mut(listener) else {
                return;
            };
            match found.acceptor.accept(socket) {
                Arrival::Connection(connection) => self.begin_handshake(listener, connection),
                Arrival::Nobody => return,
                Arrival::Stranger(uid) => {
                    self.metrics().fail(&self.metrics().refused, stranger(uid))
                }
                Arrival::Exhausted => {
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
        for (listener, number) in self.listeners.iter().zip(0u64..) {
            for (at, socket) in (0..listener.acceptor.sockets()).zip(0u64..) {
                let data = EventData::new_u64(LISTENERS + number * SOCKETS_MAX + socket);
                let socket = listener.acceptor.socket(at);
                if accepting {
                    epoll::add(&self.epoll, socket, data, EventFlags::IN)?;
                } else {
                    epoll::delete(&self.epoll, socket)?;
                }
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
        let data = EventData::new_u64(key.to_data());
        if epoll::add(&self.epoll, &socket, data, EventFlags::IN).is_err() {
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
