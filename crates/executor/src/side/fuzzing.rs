//! What a worker may say on its side socket.

use super::{Record, read};
use crate::message::progressed;
use crate::usage::Usage;

/// A record that no hello is: its payload is part of it, and progress is passed on or left out.
///
/// # Panics
/// Where a payload is longer than its record.
pub fn side(input: &[u8]) -> bool {
    let Ok(record) = read(input) else {
        return true;
    };
    let payload = match record {
        Record::Log { bytes, .. } => bytes,
        Record::Progress { map, .. } => {
            let _ = progressed(map, None);
            map
        }
        Record::Warning { text, .. } => text.as_bytes(),
        Record::Usage { figures } => {
            let _ = Usage::default().take(0, figures);
            figures
        }
        Record::Hello { .. }
        | Record::Returned { .. }
        | Record::Waits { .. }
        | Record::Items { .. } => &[],
    };
    assert!(payload.len() < input.len());
    false
}
