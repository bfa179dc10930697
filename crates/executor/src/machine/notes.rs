//! The decisions about a request that a person can read, and amounts as a person reads them.

use crate::request::Millis;

/// Notes kept of one request: the first ones and the newest.
const NOTES_MAX: usize = 16;

/// Decisions about a request beyond its ordinary way. Most requests have none, which costs no allocation.
#[derive(Debug, Default)]
pub(crate) struct Notes(Vec<(Millis, String)>);

impl Notes {
    pub(crate) fn add(&mut self, at: Millis, text: impl Into<String>) {
        let notes = &mut self.0;
        if notes.len() == NOTES_MAX {
            // The first half shows how it began.
            notes.remove(NOTES_MAX / 2);
        }
        notes.push((at, text.into()));
    }

    pub(crate) fn list(&self) -> &[(Millis, String)] {
        &self.0
    }
}

/// Bytes for a person.
pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

/// A time span for a person.
pub(crate) fn seconds(span_ms: u64) -> String {
    format!("{}.{} s", span_ms / 1_000, span_ms % 1_000 / 100)
}
