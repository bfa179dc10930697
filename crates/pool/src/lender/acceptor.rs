//! Accepting programs: a pause while no descriptors are left, and a new socket where its file was removed.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use forebay_base::accept::Accepting;
use forebay_base::peer::Peer;
use forebay_base::unix::ExclusiveListener;

use super::listener::{listen, listen_again};
use super::socket_watch::SocketWatch;
use super::source::{LenderPoll, LenderSource};
use crate::error::{Error, Result};

/// The listening socket.
#[derive(Debug)]
pub(super) struct Acceptor {
    /// `None`: no further program is accepted.
    listener: Option<ExclusiveListener>,
    accepting: Accepting,
    socket_watch: SocketWatch,
}

impl Acceptor {
    /// Listen at `path`.
    pub fn new(path: &Path) -> Result<Self> {
        Ok(Self {
            listener: Some(listen(path)?),
            accepting: Accepting::default(),
            socket_watch: SocketWatch::default(),
        })
    }

    /// Watch for programs. Ends a pause.
    pub fn watch(&mut self, poll: &LenderPoll) -> Result<()> {
        self.accepting
            .start(poll, LenderSource::Listener, &self.listener)
            .map_err(Error::system("epoll_ctl"))
    }

    /// The next program of this user in the queue. While no descriptor is left they stay there: an end of file would
    /// tell them that there is no lender.
    pub fn accept(&mut self, poll: &LenderPoll) -> Option<(OwnedFd, Peer)> {
        let listener = self.listener.as_ref()?;
        listener.socket().accept_own().unwrap_or_else(|_| {
            // Out of descriptors: the event would come back at once. Other processes or services may hold
            // them, so a program that leaves is not the only one that gives some back; hence the pause.
            self.accepting.pause(poll, &self.listener);
            None
        })
    }

    /// A program left: there may be room for another one.
    pub fn resume(&mut self, poll: &LenderPoll) {
        if self.paused_until().is_some() && self.watch(poll).is_err() {
            self.accepting.pause(poll, &self.listener);
        }
    }

    /// Resume once the pause is over.
    pub fn resume_if_due(&mut self, poll: &LenderPoll) {
        if self.accepting.ends_pause(Instant::now()) {
            self.watch_again(poll);
        }
    }

    /// When the pause is over, if there is one.
    pub fn paused_until(&self) -> Option<Instant> {
        self.accepting.deadline()
    }

    /// When to look for the socket's file again.
    pub fn check_due(&self) -> Instant {
        self.socket_watch.due()
    }

    /// Whether the socket's file is gone; looks only from time to time.
    pub fn is_file_gone(&mut self) -> bool {
        let Some(listener) = &self.listener else {
            return false;
        };
        self.socket_watch.begin_check() && listener.socket().is_gone()
    }

    /// Make the socket again; returns the notice for a person. Accept the programs in the queue of the old one before.
    pub fn listen_again(&mut self, poll: &LenderPoll) -> Option<String> {
        self.accepting.stop(poll, &self.listener);
        let listener = self.listener.as_mut()?;
        let bound = listen_again(listener);
        let notice = self.socket_watch.notice(listener.socket().path(), bound);
        self.watch_again(poll);
        notice
    }

    /// Accept no further program, and remove the socket. Accept the programs in its queue before.
    pub fn stop(&mut self, poll: &LenderPoll) {
        self.accepting.stop(poll, &self.listener);
        self.listener = None;
    }

    /// Watch for programs, unless a pause lasts.
    fn watch_again(&mut self, poll: &LenderPoll) {
        self.accepting
            .resume(poll, LenderSource::Listener, &self.listener);
    }
}
