//! The name of a block, which can be sent to another process.
use std::fmt;

/// Names one allocation of one region, for ever: a later one at the same place has another generation.
///
/// Plain numbers without a lifetime: a reference keeps nothing alive, a [`crate::Lease`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reference {
    /// Number of the region, drawn at random when it was made.
    pub region: u64,
    /// Number of the chunk in its region; never used again for another chunk.
    pub chunk: u32,
    /// Where the block begins in its chunk, in bytes.
    pub offset: u64,
    /// Bytes that were asked for.
    pub length: u64,
    /// Which allocation of the region this is.
    pub generation: u64,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            region,
            chunk,
            offset,
            length,
            generation,
        } = self;
        write!(
            f,
            "reference (region {region:016x}, chunk {chunk}, offset {offset}, length {length}, generation {generation})"
        )
    }
}
