//! Accepting, also when no descriptor is left.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use crate::error::Error;
use crate::serve::dial::tune;
use crate::stream::listed::Listed;
use crate::stream::owner::Owners;
use crate::stream::unix;

/// What is listened on.
#[derive(Debug)]
pub enum Listening {
    /// Nonblocking sockets, one for each address of a host.
    Tcp(Vec<OwnedFd>),
    /// The same on the loopback interface, for this user alone.
    OwnTcp(Vec<OwnedFd>, Owners),
    Unix(unix::Listener),
}

/// What came of an attempt to accept.
pub enum Arrival {
    Connection(OwnedFd),
    Nobody,
    /// Another user's connection, which is closed; whose it was, where that could be told.
    Stranger(Option<u32>),
    /// No descriptor was left; the first in the queue was turned away.
    Exhausted,
}

/// The listening sockets, with a descriptor in reserve.
pub struct Door {
    _listed: Vec<Listed>,
    listening: Listening,
    spare: Option<OwnedFd>,
}

impl Door {
    pub fn new(listening: Listening) -> Self {
        let listed = match &listening {
            Listening::Tcp(sockets) | Listening::OwnTcp(sockets, _) => {
                sockets.iter().map(Listed::new).collect()
            }
            Listening::Unix(_) => Vec::new(), // lists itself
        };
        let mut door = Self {
            _listed: listed,
            listening,
            spare: None,
        };
        door.lay_by();
        door
    }

    /// How many sockets there are.
    pub fn sockets(&self) -> usize {
        match &self.listening {
            Listening::Tcp(sockets) | Listening::OwnTcp(sockets, _) => sockets.len(),
            Listening::Unix(_) => 1,
        }
    }

    /// One of the sockets.
    pub fn socket(&self, place: usize) -> BorrowedFd<'_> {
        match &self.listening {
            Listening::Tcp(sockets) | Listening::OwnTcp(sockets, _) => sockets[place].as_fd(),
            Listening::Unix(listener) => listener.socket(),
        }
    }

    /// Accept one connection of one of the sockets.
    pub fn accept(&mut self, place: usize) -> Arrival {
        match self.next(place) {
            Ok(Some(socket)) => match &self.listening {
                Listening::OwnTcp(_, owners) if !owners.lets_in(&socket) => {
                    Arrival::Stranger(owners.of_peer(&socket))
                }
                _ => Arrival::Connection(socket),
            },
            Ok(None) => Arrival::Nobody,
            Err(_) => {
                // Rather than let it wait for what may never come.
                drop(self.spare.take());
                drop(self.next(place));
                self.lay_by();
                Arrival::Exhausted
            }
        }
    }

    fn next(&self, place: usize) -> Result<Option<OwnedFd>, Errno> {
        match &self.listening {
            Listening::Unix(listener) => listener.accept().map_err(|error| match error {
                Error::System { errno, .. } => errno,
                _ => Errno::IO,
            }),
            Listening::Tcp(sockets) | Listening::OwnTcp(sockets, _) => {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                match accept_with(&sockets[place], flags) {
                    Ok(socket) => {
                        tune(&socket);
                        Ok(Some(socket))
                    }
                    Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        Err(Errno::MFILE)
                    }
                    // The others are about the one that was next, which is gone: accept(2).
                    Err(_) => Ok(None),
                }
            }
        }
    }

    fn lay_by(&mut self) {
        self.spare = eventfd(0, EventfdFlags::CLOEXEC).ok();
    }
}
