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
pub enum Accepted {
    Connection(OwnedFd),
    None,
    /// Another user's connection, which is closed; whose it was, where that could be told.
    ForeignUser(Option<u32>),
    /// No descriptor was left; the first in the queue was turned away.
    OutOfDescriptors,
}

/// The listening sockets, with a descriptor in reserve.
pub struct Acceptor {
    _listed: Vec<Listed>,
    listening: Listening,
    spare: Option<OwnedFd>,
}

impl Acceptor {
    pub fn new(listening: Listening) -> Self {
        let listed = match &listening {
            Listening::Tcp(sockets) | Listening::OwnTcp(sockets, _) => {
                sockets.iter().map(Listed::new).collect()
            }
            Listening::Unix(_) => Vec::new(), // lists itself
        };
        let mut acceptor = Self {
            _listed: listed,
            listening,
            spare: None,
        };
        acceptor.reserve_descriptor();
        acceptor
    }

    /// How many sockets there are.
    pub fn sockets(&self) -> usize {
        match &self.listening {
            Listening::Tcp(sockets) | Listening::OwnTcp(sockets, _) => sockets.len(),
            Listening::Unix(_) => 1,
        }
    }

    /// One of the sockets.
    pub fn socket(&self, index: usize) -> BorrowedFd<'_> {
        match &self.listening {
            Listening::Tcp(sockets) | Listening::OwnTcp(sockets, _) => sockets[index].as_fd(),
            Listening::Unix(listener) => listener.socket(),
        }
    }

    /// Accept one connection of one of the sockets.
    pub fn accept(&mut self, index: usize) -> Accepted {
        match self.next(index) {
            Ok(Some(socket)) => match &self.listening {
                Listening::OwnTcp(_, owners) if !owners.admits(&socket) => {
                    Accepted::ForeignUser(owners.of_peer(&socket))
                }
                _ => Accepted::Connection(socket),
            },
            Ok(None) => Accepted::None,
            Err(_) => {
                // Rather than let it wait for what may never come.
                drop(self.spare.take());
                drop(self.next(index));
                self.reserve_descriptor();
                Accepted::OutOfDescriptors
            }
        }
    }

    fn next(&self, index: usize) -> Result<Option<OwnedFd>, Errno> {
        match &self.listening {
            Listening::Unix(listener) => listener.accept().map_err(|error| match error {
                Error::System { errno, .. } => errno,
                _ => Errno::IO,
            }),
            Listening::Tcp(sockets) | Listening::OwnTcp(sockets, _) => {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                match accept_with(&sockets[index], flags) {
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

    fn reserve_descriptor(&mut self) {
        self.spare = eventfd(0, EventfdFlags::CLOEXEC).ok();
    }
}
