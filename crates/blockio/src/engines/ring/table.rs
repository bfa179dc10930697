//! The files that a ring knows by place, so that the kernel need not look them up for each operation.
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use crate::engines::ring::entry::Target;
use crate::file::{BlockFile, FileHolder, FileMark};
use crate::sys::ring::Ring;

/// Places in a ring's table of files; operations on files beyond them use their descriptors.
const PLACES: u32 = 64;

/// Which file has which place.
///
/// The kernel keeps a file open while it has a place, so places of closed files are given up when the ring's thread hears
/// of a close, and before each batch.
pub(crate) struct FileTable {
    places: Vec<Option<FileMark>>,
    /// Places that the kernel gave; none where it refused.
    places_max: usize,
    /// The place that was looked up last, which is most often the next.
    last: usize,
    /// Hears when files with places are closed.
    holder: Arc<dyn FileHolder>,
}

impl FileTable {
    pub(crate) fn new(ring: &mut Ring, holder: Arc<dyn FileHolder>) -> Self {
        let given = ring.register_file_table(PLACES).is_ok();
        Self {
            places: Vec::new(),
            places_max: if given { PLACES as usize } else { 0 },
            last: 0,
            holder,
        }
    }

    /// What to call `file` in an entry; it gets a place if one is free.
    pub(crate) fn target(&mut self, ring: &mut Ring, file: &BlockFile) -> Target {
        let holds =
            |place: &Option<FileMark>| place.as_ref().is_some_and(|known| known.is_of(file));
        let at = match self.places.get(self.last) {
            Some(place) if holds(place) => Some(self.last),
            _ => self.places.iter().position(holds),
        };
        match at.or_else(|| self.enter(ring, file)) {
            Some(at) => {
                self.last = at;
                Target::Registered(u32::try_from(at).expect("places are few"))
            }
            None => Target::Descriptor(file.as_fd().as_raw_fd()),
        }
    }

    fn enter(&mut self, ring: &mut Ring, file: &BlockFile) -> Option<usize> {
        let at = match self.places.iter().position(Option::is_none) {
            Some(at) => at,
            None if self.places.len() < self.places_max => {
                self.places.push(None);
                self.places.len() - 1
            }
            None => return None,
        };
        let place = u32::try_from(at).expect("places are few");
        ring.update_file(place, file.as_fd().as_raw_fd()).ok()?;
        self.places[at] = Some(file.mark(&self.holder));
        Some(at)
    }

    /// Give up the places of files that were closed.
    pub(crate) fn sweep(&mut self, ring: &mut Ring) {
        for (at, place) in (0..).zip(&mut self.places) {
            let unused = place.as_ref().is_some_and(FileMark::is_gone);
            if unused && ring.update_file(at, -1).is_ok() {
                *place = None;
            }
        }
    }
}
