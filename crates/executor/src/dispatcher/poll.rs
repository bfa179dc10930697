//! The dispatcher's epoll: the kinds of descriptors that it watches.

use std::os::fd::AsFd;

use forebay_base::poll::{self, Kind};

pub use forebay_base::poll::Ready;

use crate::error::{Error, Result};

/// What a descriptor is to the dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Commands,
    Store,
    Gauge,
    ClientListener,
    SideListener,
    Inotify,
    Client,
    Worker,
    /// The pidfd of a worker.
    Death,
    Side,
    /// The pipe of a worker's output.
    Output,
}

impl Kind for Source {
    const ALL: &'static [Self] = &[
        Self::Commands,
        Self::Store,
        Self::Gauge,
        Self::ClientListener,
        Self::SideListener,
        Self::Inotify,
        Self::Client,
        Self::Worker,
        Self::Death,
        Self::Side,
        Self::Output,
    ];

    fn index(self) -> usize {
        self as usize
    }
}

/// The epoll of the dispatcher's thread.
pub type Poll = poll::Poll<Source>;

/// What an event is about: a kind, with the key of the client, the worker or the side socket.
pub type Token = poll::Token<Source>;

/// Watch the only descriptor of a kind for reading.
///
/// # Errors
/// `System`: no memory, or the user's limit of watches.
pub fn watch_only(poll: &Poll, descriptor: impl AsFd, source: Source) -> Result<()> {
    poll.add(descriptor, Token::only(source), Ready::READ)
        .map_err(Error::system("epoll_ctl"))
}
