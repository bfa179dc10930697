//! The reads of files in a server's turn: their descriptor in the poll, and the peers that they are for.
use forebay_base::poll::{Poll, Ready, Token};

use super::connection::Watched;
use super::files::Files;
use crate::responder::{PeerId, Shard};

/// The files of a server, and what their reads have to do in the next turn.
#[derive(Default)]
pub(super) struct FileReads {
    files: Files,
    /// Reads may have ended.
    is_woken: bool,
    is_watched: bool,
    /// Peers whose reads have ended.
    ready: Vec<PeerId>,
}

impl FileReads {
    /// The files, for a command of the owner.
    pub(super) fn files(&mut self) -> &mut Files {
        &mut self.files
    }

    /// Watch the descriptor of finished reads, from the first file on.
    pub(super) fn watch(&mut self, poll: &Poll<Watched>) {
        if !self.is_watched
            && let Some(descriptor) = self.files.descriptor()
        {
            let token = Token::only(Watched::Files);
            self.is_watched = poll.add(descriptor, token, Ready::READ).is_ok();
        }
    }

    /// The descriptor is readable.
    pub(super) fn wake(&mut self) {
        self.is_woken = true;
    }

    /// Whether there is something to do without an event.
    pub(super) fn is_due<K: Send>(&self, shard: &Shard<K>) -> bool {
        self.files.is_due(shard)
    }

    /// Take finished reads, and begin further ones; returns the peers to serve. [`Self::served`] takes the list back.
    pub(super) fn turn<K: Send>(&mut self, shard: &mut Shard<K>) -> Vec<PeerId> {
        let mut ready = std::mem::take(&mut self.ready);
        if std::mem::take(&mut self.is_woken) {
            self.files.turn(shard, &mut ready);
        }
        self.files.issue(shard, &mut ready);
        ready
    }

    /// The peers of a turn are served: keep the list's capacity.
    pub(super) fn served(&mut self, mut ready: Vec<PeerId>) {
        ready.clear();
        self.ready = ready;
    }

    /// Release memory and files that are no longer used.
    pub(super) fn retire<K: Send>(&mut self, shard: &mut Shard<K>) {
        self.files.retire(shard);
    }

    /// The server ends.
    pub(super) fn end(self) {
        self.files.end();
    }
}
