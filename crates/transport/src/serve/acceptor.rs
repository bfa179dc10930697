//! Accepting from everything that a server listens on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use forebay_base::accept;

use crate::serve::dial::tune;
use crate::stream::listed::Listed;
use crate::stream::owner::Owners;
use crate::stream::unix;

/// The sockets to listen on.
#[derive(Debug)]
pub enum Listening {
    /// Nonblocking sockets, one for each address of a host.
    Tcp(Vec<OwnedFd>),
    /// The same on the loopback interface, for this user alone.
    OwnTcp(Vec<OwnedFd>, Owners),
    Unix(unix::Listener),
}

/// The result of an attempt to accept.
pub enum Accepted {
    Connection(OwnedFd),
    /// No connection waits.
    Nothing,
    /// A connection of another user, which is closed; the user, if known.
    ForeignUser(Option<u32>),
    /// No descriptor was left; the first connection of the queue was closed. Pause.
    Exhausted,
}

/// The listening sockets, with a descriptor in reserve.
pub struct Acceptor {
    _listed: Vec<Listed>,
    listening: Listening,
    accept: accept::Acceptor,
}

impl Acceptor {
    pub fn new(listening: Listening) -> Self {
        let listed = match &listening {
            Listening::Tcp(sockets) | Listening::OwnTcp(sockets, _) => {
                sockets.iter().map(Listed::new).collect()
            }
            Listening::Unix(_) => Vec::new(), // lists itself
        };
        Self {
            _listed: listed,
            listening,
            accept: accept::Acceptor::default(),
        }
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
        socket_of(&self.listening, index)
    }

    /// Accept one connection of one of the sockets.
    pub fn accept(&mut self, index: usize) -> Accepted {
        let connection = match self.accept.accept(socket_of(&self.listening, index)) {
            accept::Accepted::Connection(connection) => connection,
            accept::Accepted::Nothing => return Accepted::Nothing,
            accept::Accepted::Exhausted => return Accepted::Exhausted,
        };
        match &self.listening {
            Listening::OwnTcp(_, owners) if !owners.admits(&connection) => {
                return Accepted::ForeignUser(owners.of_peer(&connection));
            }
            Listening::Tcp(_) | Listening::OwnTcp(..) => tune(&connection),
            Listening::Unix(_) => {}
        }
        Accepted::Connection(connection)
    }
}

fn socket_of(listening: &Listening, index: usize) -> BorrowedFd<'_> {
    match listening {
        Listening::Tcp(sockets) | Listening::OwnTcp(sockets, _) => sockets[index].as_fd(),
        Listening::Unix(listener) => listener.as_fd(),
    }
}
