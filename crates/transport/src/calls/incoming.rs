//! A call as its server gets it.

use std::time::Instant;

use crate::limit::CALL_BYTES_MIN;
use crate::sys::buffer::Buffer;
use crate::wire::frame::Codec;

/// A call to run.
#[derive(Debug)]
pub struct Call {
    pub id: u64,
    pub codec: Codec,
    pub one_way: bool,
    /// The caller wants a stream of results.
    pub stream: bool,
    pub deadline: Option<Instant>,
    pub generation: u32,
    pub head: Buffer,
    pub segments: Vec<Buffer>,
}

impl Call {
    /// What it counts in an inbox.
    pub(super) fn bytes(&self) -> usize {
        CALL_BYTES_MIN + self.head.len() + self.segments.iter().map(Buffer::len).sum::<usize>()
    }
}
