//! The files that a ring knows by slot, so that the kernel need not look them up for each operation.
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use crate::engines::ring::entry::Target;
use crate::file::{BlockFile, FileHolder, FileMark};
use crate::sys::ring::Ring;

/// Slots in a ring's table of files; operations on files beyond them use their descriptors.
const SLOTS: u32 = 64;

/// Which file has which slot.
///
/// The kernel keeps a file open while it has a slot, so slots of closed files are given up when the ring's thread learns
/// of a close, and before each batch.
pub(crate) struct FileTable {
    slots: Vec<Option<FileMark>>,
    /// Slots that the kernel gave; none where it refused.
    slots_max: usize,
    /// The slot that was looked up last, which is most often the next.
    last: usize,
    /// Notified when files with slots are closed.
    holder: Arc<dyn FileHolder>,
}

impl FileTable {
    pub(crate) fn new(ring: &mut Ring, holder: Arc<dyn FileHolder>) -> Self {
        let given = ring.register_file_table(SLOTS).is_ok();
        Self {
            slots: Vec::new(),
            slots_max: if given { SLOTS as usize } else { 0 },
            last: 0,
            holder,
        }
    }

    /// What to call `file` in an entry; it gets a slot if one is free.
    pub(crate) fn target(&mut self, ring: &mut Ring, file: &BlockFile) -> Target {
        let holds = |slot: &Option<FileMark>| slot.as_ref().is_some_and(|known| known.is_of(file));
        let at = match self.slots.get(self.last) {
            Some(slot) if holds(slot) => Some(self.last),
            _ => self.slots.iter().position(holds),
        };
        match at.or_else(|| self.enter(ring, file)) {
            Some(at) => {
                self.last = at;
                Target::Registered(u32::try_from(at).expect("slots are few"))
            }
            None => Target::Descriptor(file.as_fd().as_raw_fd()),
        }
    }

    fn enter(&mut self, ring: &mut Ring, file: &BlockFile) -> Option<usize> {
        let at = match self.slots.iter().position(Option::is_none) {
            Some(at) => at,
            None if self.slots.len() < self.slots_max => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => return None,
        };
        let slot = u32::try_from(at).expect("slots are few");
        ring.update_file(slot, file.as_fd().as_raw_fd()).ok()?;
        self.slots[at] = Some(file.mark(&self.holder));
        Some(at)
    }

    /// Give up the slots of files that were closed.
    pub(crate) fn sweep(&mut self, ring: &mut Ring) {
        for (at, slot) in (0..).zip(&mut self.slots) {
            let unused = slot.as_ref().is_some_and(FileMark::is_gone);
            if unused && ring.update_file(at, -1).is_ok() {
                *slot = None;
            }
        }
    }
}
