//! Bytes of blocks that a device writes.
#![allow(unsafe_code)]
use std::ops::Range;
use std::slice;

use forebay_memory::Lease;
use forebay_tensor::Span;

/// A copy of a part of a block. For one that no pull goes to.
pub(crate) fn part(block: &Lease, range: Range<usize>) -> Vec<u8> {
    assert!(range.start <= range.end && range.end <= block.len());
    // SAFETY: inside of a block that is mapped while leased; nothing writes it meanwhile, as the caller says.
    unsafe { slice::from_raw_parts(block.as_ptr().as_ptr().add(range.start), range.len()) }.to_vec()
}

/// Copy bytes into the front of a block. For one that no pull goes to, and that nobody reads.
pub(crate) fn fill(block: &Lease, bytes: &[u8]) {
    assert!(bytes.len() <= block.len());
    // SAFETY: inside of a block that is mapped while leased, and nobody else's at the moment.
    unsafe {
        block
            .as_ptr()
            .as_ptr()
            .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    };
}

/// The memory of a block, which the test keeps leased.
pub(crate) fn span(block: &Lease) -> Span {
    // SAFETY: the caller gives the lease as the keeper of whatever has the span.
    unsafe { Span::new(block.as_ptr(), block.len()) }
}
