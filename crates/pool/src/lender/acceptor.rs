//! Accepting programs: a pause while no descriptors are left, and a new socket where its file was removed.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_base::peer::Peer;
use forebay_base::poll::Token;
use forebay_base::unix::ExclusiveListener;

use super::listener::{listen, listen_again};
use super::socket_watch::SocketWatch;
use super::source::{LenderPoll, LenderSource, watch};
use crate::error::Result;
use crate::limit::ACCEPT_PAUSE_MS;

/// The listening socket.
#[derive(Debug)]
pub(super) struct Acceptor {
    listener: ExclusiveListener,
    /// No connection is accepted until then (no descriptors are left), or until a program leaves.
    paused_until: Option<Instant>,
    socket_watch: SocketWatch,
}

impl Acceptor {
    /// Listen at `path`.
    pub fn new(path: &Path) -> Result<Self> {
        Ok(Self {
            listener: listen(path)?,
            paused_until: None,
            socket_watch: SocketWatch::default(),
        })
    }

    /// Watch for programs.
    pub fn watch(&self, poll: &LenderPoll) -> Result<()> {
        watch(poll, &self.listener, Token::only(LenderSource::Listener))
    }

    /// The next program of this user in the queue. While no descriptor is left they stay there: an end of file would
    /// tell them that there is no lender.
    pub fn accept(&mut self, poll: &LenderPoll) -> Option<(OwnedFd, Peer)> {
        self.listener.socket().accept_own().unwrap_or_else(|_| {
            // Out of descriptors: the event would come back at once. Other processes or services may hold
            // them, so a program that leaves is not the only one that gives some back; hence the pause.
            poll.remove(&self.listener);
            self.pause();
            None
        })
    }

    /// A program left, or the pause is over: there may be room for another one.
    pub fn resume(&mut self, poll: &LenderPoll) {
        if self.paused_until.is_none() {
            return;
        }
        match self.watch(poll) {
            Ok(()) => self.paused_until = None,
            Err(_) => self.pause(),
        }
    }

    /// Resume once the pause is over.
    pub fn resume_if_due(&mut self, poll: &LenderPoll) {
        if self
            .paused_until
            .is_some_and(|until| Instant::now() >= until)
        {
            self.resume(poll);
        }
    }

    /// When the pause is over, if there is one.
    pub fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// When to look for the socket's file again.
    pub fn check_due(&self) -> Instant {
        self.socket_watch.due()
    }

    /// Whether the socket's file is gone; looks only from time to time.
    pub fn is_file_gone(&mut self) -> bool {
        self.socket_watch.begin_check() && self.listener.socket().is_gone()
    }

    /// Make the socket again; returns the notice for a person. Accept the programs in the queue of the old one before.
    pub fn listen_again(&mut self, poll: &LenderPoll) -> Option<String> {
        let accepting = self.paused_until.is_none();
        if accepting {
            poll.remove(&self.listener);
        }
        let bound = listen_again(&mut self.listener);
        if accepting && self.watch(poll).is_err() {
            self.pause();
        }
        self.socket_watch
            .notice(self.listener.socket().path(), bound)
    }

    fn pause(&mut self) {
        self.paused_until = Instant::now().checked_add(Duration::from_millis(ACCEPT_PAUSE_MS));
    }
}
