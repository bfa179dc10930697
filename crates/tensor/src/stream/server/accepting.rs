//! How a server's thread lets connections in.
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use forebay_transport::serve::Accepted;
use forebay_transport::stream::owner::foreign_user_message;
use forebay_transport::stream::{Socket, Wire};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::guest::Guest;
use super::reactor::{DOORS, Reactor, SOCKETS_MAX};
use super::seats::Occupant;

const ACCEPTS_A_TURN: usize = 64;
/// Guests at once: whoever says nothing costs a descriptor.
const GUESTS_MAX: usize = 256;

impl<K: Send> Reactor<K> {
    pub(super) fn accept(&mut self, way: usize, socket: usize) {
        for _ in 0..ACCEPTS_A_TURN {
            if self.guests >= GUESTS_MAX {
                _ = self.set_accepting(false);
                return;
            }
            let Some(entered) = self.ways.get_mut(way) else {
                return;
            };
            match entered.door.accept(socket) {
                Accepted::Connection(connection) => self.seat(way, connection),
                Accepted::Nothing => return,
                Accepted::ForeignUser(uid) => self
                    .tally()
                    .fail(&self.tally().refused, foreign_user_message(uid)),
                Accepted::Exhausted => {
                    let tally = &self.common.tally;
                    tally.turned_away.fetch_add(1, Ordering::Relaxed);
                    _ = self.set_accepting(false);
                    self.clock.rest(Instant::now());
                    return;
                }
            }
        }
    }

    /// Accept from now on, if that was asked for since the last time.
    pub(super) fn open(&mut self) {
        let closing = self.common.closing.load(Ordering::Acquire);
        let asked = !closing && self.common.opening.swap(false, Ordering::AcqRel);
        if asked && self.set_accepting(true).is_err() {
            self.clock.rest(Instant::now());
        }
    }

    pub(super) fn set_accepting(&mut self, accepting: bool) -> Result<(), Errno> {
        if self.accepting == accepting {
            return Ok(());
        }
        for (way, number) in self.ways.iter().zip(0u64..) {
            for (place, socket) in (0..way.door.sockets()).zip(0u64..) {
                let data = EventData::new_u64(DOORS + number * SOCKETS_MAX + socket);
                let socket = way.door.socket(place);
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

    fn seat(&mut self, way: usize, connection: OwnedFd) {
        self.common.tally.accepted.fetch_add(1, Ordering::Relaxed);
        let way = &self.ways[way];
        let socket: Socket = Arc::new(connection);
        let wire = match &way.tls {
            None => Ok(Wire::Socket(Arc::clone(&socket))),
            Some(tls) => tls.accept(Arc::clone(&socket)).map(Wire::from),
        };
        let wire = match wire {
            Ok(wire) => wire,
            Err(error) => return self.tally().fail(&self.tally().refused, error.to_string()),
        };
        let guest = Guest::new(wire, way.admission.clone());
        let place = self.seats.sit(Occupant::Guest(Box::new(guest)));
        self.guests += 1;
        self.clock.greet(Instant::now(), place);
        let data = EventData::new_u64(place.to_data());
        if epoll::add(&self.epoll, &socket, data, EventFlags::IN).is_err() {
            return self.dismiss(place);
        }
        self.step(place);
    }

    /// Accept again, where too many guests were the reason not to.
    pub(super) fn welcome(&mut self) {
        let closing = self.common.closing.load(Ordering::Acquire);
        if !closing && !self.clock.rests() && self.guests < GUESTS_MAX {
            _ = self.set_accepting(true);
        }
    }
}
