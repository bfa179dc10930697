//! What a server's thread does for tensors whose rows are in files.
use rustix::event::epoll::{self, EventData, EventFlags};

use super::reactor::{FILES, Reactor};

impl<K: Send> Reactor<K> {
    /// Sleep on the ends of reads too, from the first file on.
    pub(super) fn watch_files(&mut self) {
        if !self.watches_files
            && let Some(descriptor) = self.files.descriptor()
        {
            let data = EventData::new_u64(FILES);
            self.watches_files = epoll::add(&self.epoll, descriptor, data, EventFlags::IN).is_ok();
        }
    }

    /// Take what was read from files, and begin further reads.
    pub(super) fn read(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        if std::mem::take(&mut self.files_woken) {
            self.files.turn(&mut self.shard, &mut ready);
        }
        self.files.issue(&mut self.shard, &mut ready);
        for id in ready.drain(..) {
            if let Some(Some(key)) = self.peer_keys.get(id.index()).copied() {
                self.serve(key); // of another peer, where that one is gone: it has a turn more
            }
        }
        self.ready = ready;
        self.retire();
    }

    /// Let go of memory and files that nothing needs any more.
    pub(super) fn retire(&mut self) {
        self.files.retire(&mut self.shard);
    }
}
