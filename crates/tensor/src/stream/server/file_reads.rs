//! The part of a server's turn for tensors that are backed by files.
use forebay_base::poll::{Ready, Token};

use super::connection::Watched;
use super::reactor::Reactor;

impl<K: Send> Reactor<K> {
    /// Watch the descriptor of finished reads, from the first file on.
    pub(super) fn watch_files(&mut self) {
        if !self.watches_files
            && let Some(descriptor) = self.files.descriptor()
        {
            let token = Token::only(Watched::Files);
            self.watches_files = self.poll.add(descriptor, token, Ready::READ).is_ok();
        }
    }

    /// Take finished reads, and begin further ones.
    pub(super) fn read(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        if std::mem::take(&mut self.files_woken) {
            self.files.turn(&mut self.shard, &mut ready);
        }
        self.files.issue(&mut self.shard, &mut ready);
        for id in ready.drain(..) {
            if let Some(Some(key)) = self.peer_keys.get(id.index()).copied() {
                self.serve(key); // if that peer is gone its successor gets one more turn, which is harmless
            }
        }
        self.ready = ready;
        self.retire();
    }

    /// Release memory and files that are no longer used.
    pub(super) fn retire(&mut self) {
        self.files.retire(&mut self.shard);
    }
}
