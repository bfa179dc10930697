//! The mapped chunks of a peer, and what its names refer to in them.

use std::collections::HashMap;
use std::sync::Arc;

use forebay_memory::{Error, Window};

use crate::error::Violation;
use crate::limit::{LENT_FRAMES_MAX, WINDOWS_MAX};
use crate::stream::shm::Name;

/// By the names that the peer gave its chunks.
#[derive(Debug, Default)]
pub struct Windows(HashMap<u32, Arc<Window>>);

impl Windows {
    /// Map a further chunk, by `map`; returns its window.
    pub fn add(
        &mut self,
        chunk: u32,
        map: impl FnOnce() -> Result<Window, Error>,
    ) -> Result<Arc<Window>, Violation> {
        if self.0.len() == WINDOWS_MAX {
            return Err(Violation::Windows { limit: WINDOWS_MAX });
        }
        let window = Arc::new(map().map_err(refused)?);
        self.0.insert(chunk, Arc::clone(&window));
        Ok(window)
    }

    /// The peer has dropped a chunk; what was received in it stays readable.
    pub fn remove(&mut self, chunk: u32) {
        self.0.remove(&chunk);
    }

    /// Whether a chunk is mapped.
    pub fn has(&self, chunk: u32) -> bool {
        self.0.contains_key(&chunk)
    }

    /// The window, offset and length of a name, every number of which may be invalid.
    pub fn find(&self, name: &Name) -> Result<(&Arc<Window>, usize, usize), Violation> {
        let inside = || {
            let window = self.0.get(&name.chunk)?;
            let offset = usize::try_from(name.offset).ok()?;
            let bytes = usize::try_from(name.bytes).ok()?;
            let is_inside = offset.checked_add(bytes)? <= window.len();
            let is_loan = (name.slot as usize) < LENT_FRAMES_MAX && name.generation != 0;
            (is_inside && is_loan).then_some((window, offset, bytes))
        };
        inside().ok_or_else(|| invalid(name))
    }
}

/// The violation of a peer that gave this name.
pub fn invalid(name: &Name) -> Violation {
    Violation::Reference {
        chunk: name.chunk,
        offset: name.offset,
        bytes: name.bytes,
    }
}

/// The violation of a peer whose chunk cannot be mapped.
#[allow(clippy::needless_pass_by_value)] // for `map_err`
pub fn refused(error: Error) -> Violation {
    Violation::Window(error.to_string())
}
