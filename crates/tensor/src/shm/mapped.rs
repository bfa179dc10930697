//! What a requester has of an owner's chunks: windows on them, and the tensors that were found there.
//!
//! A window is open for as long as a tensor is known in it, so tensors that their owner has dropped are let go of,
//! asked for again or not. They are looked for a few at a time while others are pulled. To let go of them unmaps
//! memory, which takes milliseconds for a large chunk, so it is done apart, by whoever may take that long.
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use forebay_memory::Window;

use super::directory::File;
use crate::sys::span::Span;
use crate::table::Key;
use crate::version_table::VersionTable;

/// Chunks of one owner that are mapped at once.
const WINDOWS_MAX: usize = 1024;
/// Tensors that one look goes through: half a microsecond.
const CHECKED_AT_ONCE: usize = 64;

/// A tensor that was found.
#[derive(Clone, Debug)]
pub(super) struct MappedTensor {
    generation: u32,
    pub(super) memory: Span,
    /// Keeps the memory mapped.
    _window: Arc<Window>,
}

impl MappedTensor {
    /// Of a tensor of `generation` in `memory`, which is a part of the window's.
    pub(super) fn new(generation: u32, memory: Span, window: Arc<Window>) -> Self {
        Self {
            generation,
            memory,
            _window: window,
        }
    }
}

#[derive(Debug, Default)]
struct Contents {
    /// By id.
    places: Vec<Option<MappedTensor>>,
    windows: HashMap<File, Weak<Window>>,
    /// Where the next look begins.
    next: usize,
}

/// Tensors and windows of one owner.
#[derive(Debug, Default)]
pub(super) struct MappedTensors {
    contents: Mutex<Contents>,
    /// A tensor is among them that its owner has dropped.
    has_stale: AtomicBool,
}

impl MappedTensors {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a tensor was found.
    pub(super) fn place(&self, key: Key) -> Option<MappedTensor> {
        let contents = self.lock();
        let place = contents.places.get(key.id as usize)?.as_ref()?;
        (place.generation == key.generation).then(|| place.clone())
    }

    /// A tensor was found, in place of the one that the id has meant before.
    pub(super) fn add(&self, id: u32, place: MappedTensor) {
        let at = id as usize;
        let mut contents = self.lock();
        if contents.places.len() <= at {
            contents.places.resize(at + 1, None);
        }
        let before = contents.places[at].replace(place);
        drop(contents); // what was there may be the last of its window
        drop(before);
    }

    /// Let go of a tensor that is no more; with its last one, of a chunk.
    pub(super) fn forget(&self, id: u32) {
        let mut contents = self.lock();
        let place = contents.places.get_mut(id as usize).and_then(Option::take);
        drop(contents);
        drop(place);
    }

    /// The window on a chunk, which `open` opens if there is none; none where that fails, or there are too many.
    pub(super) fn window(
        &self,
        file: File,
        open: impl FnOnce() -> Option<Window>,
    ) -> Option<Arc<Window>> {
        let mut contents = self.lock();
        if let Some(window) = contents.windows.get(&file).and_then(Weak::upgrade) {
            return Some(window);
        }
        contents
            .windows
            .retain(|_, window| window.strong_count() > 0);
        if contents.windows.len() >= WINDOWS_MAX {
            return None;
        }
        drop(contents); // others go on meanwhile
        let window = Arc::new(open()?);
        let mut contents = self.lock();
        if let Some(theirs) = contents.windows.get(&file).and_then(Weak::upgrade) {
            drop(contents);
            return Some(theirs); // somebody was faster
        }
        contents.windows.insert(file, Arc::downgrade(&window));
        Some(window)
    }

    /// How many chunks are mapped.
    pub(super) fn windows(&self) -> usize {
        let contents = self.lock();
        let open = |window: &&Weak<Window>| window.strong_count() > 0;
        contents.windows.values().filter(open).count()
    }

    /// Look at some tensors, whether they are still there; the next look goes on from there.
    pub(super) fn check_some(&self, versions: &VersionTable) {
        let mut contents = self.lock();
        let count = contents.places.len();
        for _ in 0..CHECKED_AT_ONCE.min(count) {
            let at = contents.next % count;
            contents.next = at + 1;
            if is_stale(versions, at, contents.places[at].as_ref()) {
                self.has_stale.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Whether a look has found a tensor that is to be let go of.
    pub(super) fn has_stale(&self) -> bool {
        self.has_stale.load(Ordering::Relaxed)
    }

    /// Let go of all that are no more.
    pub(super) fn sweep(&self, versions: &VersionTable) {
        self.has_stale.store(false, Ordering::Relaxed);
        let mut gone = Vec::new();
        let mut contents = self.lock();
        for (at, place) in contents.places.iter_mut().enumerate() {
            if is_stale(versions, at, place.as_ref()) {
                gone.extend(place.take());
            }
        }
        drop(contents);
        drop(gone);
    }
}

fn is_stale(versions: &VersionTable, id: usize, place: Option<&MappedTensor>) -> bool {
    let key = |place: &MappedTensor| Key {
        id: u32::try_from(id).unwrap_or(u32::MAX),
        generation: place.generation,
    };
    place.is_some_and(|place| !versions.has(key(place)))
}
