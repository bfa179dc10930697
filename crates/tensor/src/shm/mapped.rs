//! A requester's windows on an owner's chunks, and the tensors found in them.
//!
//! A window stays open while a tensor is known in it, so tensors that the owner dropped must be forgotten even if they
//! are never pulled again. Each pull checks a few. Forgetting may unmap memory, which takes milliseconds for a large
//! chunk, so only callers that may block do it (`sweep`).
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
/// Tensors that one `check_some` goes through: half a microsecond.
const CHECKED_AT_ONCE: usize = 64;

/// A tensor whose chunk is mapped.
#[derive(Clone, Debug)]
pub(super) struct MappedTensor {
    generation: u32,
    pub(super) memory: Span,
    /// Keeps the memory mapped.
    _window: Arc<Window>,
}

impl MappedTensor {
    /// A tensor of `generation` in `memory`, which is a part of the window.
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
    tensors: Vec<Option<MappedTensor>>,
    windows: HashMap<File, Weak<Window>>,
    /// Where the next check begins.
    next: usize,
}

/// Tensors and windows of one owner.
#[derive(Debug, Default)]
pub(super) struct MappedTensors {
    contents: Mutex<Contents>,
    /// The owner has dropped one of them.
    has_stale: AtomicBool,
}

impl MappedTensors {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mapped tensor, if it is known.
    pub(super) fn get(&self, key: Key) -> Option<MappedTensor> {
        let contents = self.lock();
        let tensor = contents.tensors.get(key.id as usize)?.as_ref()?;
        (tensor.generation == key.generation).then(|| tensor.clone())
    }

    /// Remember a tensor, in place of the previous one with this id.
    pub(super) fn add(&self, id: u32, tensor: MappedTensor) {
        let at = id as usize;
        let mut contents = self.lock();
        if contents.tensors.len() <= at {
            contents.tensors.resize(at + 1, None);
        }
        let before = contents.tensors[at].replace(tensor);
        drop(contents); // the previous one may be the last in its window, and unmapping is slow
        drop(before);
    }

    /// Forget a tensor; the last one in a chunk unmaps the chunk.
    pub(super) fn forget(&self, id: u32) {
        let mut contents = self.lock();
        let tensor = contents.tensors.get_mut(id as usize).and_then(Option::take);
        drop(contents);
        drop(tensor);
    }

    /// The window on a chunk, opened by `open` if necessary; `None` if that fails, or too many are open.
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
        drop(contents); // other threads continue while this one maps
        let window = Arc::new(open()?);
        let mut contents = self.lock();
        if let Some(theirs) = contents.windows.get(&file).and_then(Weak::upgrade) {
            drop(contents);
            return Some(theirs); // another thread mapped it first
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

    /// Check whether some tensors still exist; the next call continues after them.
    pub(super) fn check_some(&self, versions: &VersionTable) {
        let mut contents = self.lock();
        let count = contents.tensors.len();
        for _ in 0..CHECKED_AT_ONCE.min(count) {
            let at = contents.next % count;
            contents.next = at + 1;
            if is_stale(versions, at, contents.tensors[at].as_ref()) {
                self.has_stale.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Whether a check found a tensor that must be forgotten.
    pub(super) fn has_stale(&self) -> bool {
        self.has_stale.load(Ordering::Relaxed)
    }

    /// Forget all dropped tensors.
    pub(super) fn sweep(&self, versions: &VersionTable) {
        self.has_stale.store(false, Ordering::Relaxed);
        let mut gone = Vec::new();
        let mut contents = self.lock();
        for (at, tensor) in contents.tensors.iter_mut().enumerate() {
            if is_stale(versions, at, tensor.as_ref()) {
                gone.extend(tensor.take());
            }
        }
        drop(contents);
        drop(gone);
    }
}

fn is_stale(versions: &VersionTable, id: usize, tensor: Option<&MappedTensor>) -> bool {
    let key = |tensor: &MappedTensor| Key {
        id: u32::try_from(id).unwrap_or(u32::MAX),
        generation: tensor.generation,
    };
    tensor.is_some_and(|tensor| !versions.has(key(tensor)))
}
