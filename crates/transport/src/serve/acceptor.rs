//! Accepting from everything that a server listens on.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use forebay_base::accept::{self, Accepting};
use forebay_base::poll::{Kind, Poll};
use rustix::io::Errno;

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
    /// A connection, and the position of the [`Listening`] that it came to: not that of the socket.
    Connection { socket: OwnedFd, listening: usize },
    /// No connection waits.
    Nothing,
    /// A connection of another user, which is closed; the user, if known.
    ForeignUser(Option<u32>),
    /// No descriptor was left; the first connection of the queue was closed, and a pause has begun.
    Exhausted,
}

/// The listening sockets of a server's loop, with a descriptor in reserve; watched or not, see [`Accepting`].
///
/// An event has this kind, and the position of the socket as the index of its key.
pub struct Acceptor<K> {
    listed: Vec<Listed>,
    listening: Vec<Listening>,
    kind: K,
    accept: accept::Acceptor,
    accepting: Accepting,
}

impl<K: Kind> Acceptor<K> {
    pub fn new(listening: Vec<Listening>, kind: K) -> Self {
        let tcp = listening.iter().flat_map(|listening| match listening {
            Listening::Tcp(sockets) | Listening::OwnTcp(sockets, _) => sockets.as_slice(),
            Listening::Unix(_) => &[], // lists itself
        });
        Self {
            listed: tcp.map(Listed::new).collect(),
            listening,
            kind,
            accept: accept::Acceptor::default(),
            accepting: Accepting::default(),
        }
    }

    /// Begin to accept.
    ///
    /// # Errors
    /// Those of [`Poll::add`].
    pub fn start(&mut self, poll: &Poll<K>) -> Result<(), Errno> {
        let sockets = sockets(&self.listening);
        self.accepting.start(poll, self.kind, sockets)
    }

    /// Accept again, unless a pause lasts.
    pub fn resume(&mut self, poll: &Poll<K>) {
        let sockets = sockets(&self.listening);
        self.accepting.resume(poll, self.kind, sockets);
    }

    /// Do not accept until [`Self::resume`].
    pub fn stop(&mut self, poll: &Poll<K>) {
        self.accepting.stop(poll, sockets(&self.listening));
    }

    /// Do not accept for a while.
    pub fn pause(&mut self, poll: &Poll<K>) {
        self.accepting.pause(poll, sockets(&self.listening));
    }

    /// Whether a pause is over; returned once.
    pub fn ends_pause(&mut self, now: Instant) -> bool {
        self.accepting.ends_pause(now)
    }

    /// When the pause is over, if there is one.
    pub fn deadline(&self) -> Option<Instant> {
        self.accepting.deadline()
    }

    /// Close the sockets.
    pub fn close(&mut self, poll: &Poll<K>) {
        self.stop(poll);
        self.accepting = Accepting::default(); // with no pause
        self.listed.clear();
        self.listening.clear();
    }

    /// Accept one connection of the socket at a position.
    pub fn accept(&mut self, poll: &Poll<K>, position: usize) -> Accepted {
        let Some((at, listening, listener)) = located(&self.listening).nth(position) else {
            return Accepted::Nothing;
        };
        let socket = match self.accept.accept(listener) {
            accept::Accepted::Connection(socket) => socket,
            accept::Accepted::Nothing => return Accepted::Nothing,
            accept::Accepted::Exhausted => {
                self.pause(poll);
                return Accepted::Exhausted;
            }
        };
        match listening {
            Listening::OwnTcp(_, owners) if !owners.admits(&socket) => {
                return Accepted::ForeignUser(owners.of_peer(&socket));
            }
            Listening::Tcp(_) | Listening::OwnTcp(..) => tune(&socket),
            Listening::Unix(_) => {}
        }
        let listening = at;
        Accepted::Connection { socket, listening }
    }
}

/// The sockets in the order of their positions.
fn sockets(listening: &[Listening]) -> impl Iterator<Item = BorrowedFd<'_>> + Clone {
    located(listening).map(|(_, _, socket)| socket)
}

/// The sockets, each with its [`Listening`] and that one's position.
fn located(
    listening: &[Listening],
) -> impl Iterator<Item = (usize, &Listening, BorrowedFd<'_>)> + Clone {
    let listening = listening.iter().enumerate();
    listening.flat_map(|(at, listening)| {
        let (tcp, unix) = match listening {
            Listening::Tcp(sockets) | Listening::OwnTcp(sockets, _) => (sockets.as_slice(), None),
            Listening::Unix(listener) => (Default::default(), Some(listener.as_fd())),
        };
        let sockets = tcp.iter().map(AsFd::as_fd).chain(unix);
        sockets.map(move |socket| (at, listening, socket))
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Source {
        Listener,
    }

    impl Kind for Source {
        const ALL: &'static [Self] = &[Self::Listener];

        fn index(self) -> usize {
            self as usize
        }
    }

    fn listener() -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        listener.set_nonblocking(true).expect("nonblocking");
        listener
    }

    fn connect(to: &TcpListener) -> TcpStream {
        TcpStream::connect(to.local_addr().expect("an address")).expect("connected")
    }

    /// The positions of the sockets for which a connection waits.
    fn found(poll: &mut Poll<Source>) -> Vec<usize> {
        poll.wait(Some(Duration::ZERO)).expect("an epoll");
        let events = (0..).map_while(|index| poll.event(index));
        let mut found: Vec<_> = events.map(|(token, _)| token.key.index as usize).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn a_connection_comes_with_the_position_of_what_was_listened_on() {
        let listeners = [listener(), listener(), listener()];
        let [one, two, three] = listeners
            .each_ref()
            .map(|one| one.try_clone().expect("a copy"));
        let listening = vec![
            Listening::Tcp(vec![one.into(), two.into()]),
            Listening::Tcp(vec![three.into()]),
        ];
        let mut poll = Poll::new().expect("an epoll");
        let mut acceptor = Acceptor::new(listening, Source::Listener);
        acceptor.start(&poll).expect("watched");
        let _clients = listeners.each_ref().map(connect);
        assert_eq!(found(&mut poll), [0, 1, 2]);
        let mut accepted = |position| match acceptor.accept(&poll, position) {
            Accepted::Connection { listening, .. } => Some(listening),
            _ => None,
        };
        let first = [0, 1, 2, 3].map(&mut accepted);
        assert_eq!(first, [Some(0), Some(0), Some(1), None]);
        assert_eq!(accepted(0), None);
        assert_eq!(found(&mut poll), []);
    }

    #[test]
    fn what_stops_or_is_closed_accepts_nothing() {
        let listener = listener();
        let copy = listener.try_clone().expect("a copy");
        let mut poll = Poll::new().expect("an epoll");
        let listening = vec![Listening::Tcp(vec![copy.into()])];
        let mut acceptor = Acceptor::new(listening, Source::Listener);
        acceptor.start(&poll).expect("watched");
        let _client = connect(&listener);
        acceptor.stop(&poll);
        assert_eq!(found(&mut poll), []);
        acceptor.resume(&poll);
        assert_eq!(found(&mut poll), [0]);
        acceptor.pause(&poll);
        acceptor.close(&poll);
        assert_eq!(acceptor.deadline(), None);
        acceptor.resume(&poll);
        assert_eq!(found(&mut poll), []);
        assert!(matches!(acceptor.accept(&poll, 0), Accepted::Nothing));
    }
}
