//! Bytes of blocks that a device writes.
#![allow(unsafe_code)]
use std::slice;

use forebay_memory::Lease;

/// A copy of a block's bytes. For a block that no pull goes to.
pub(crate) fn bytes(block: &Lease) -> Vec<u8> {
    // SAFETY: mapped while leased; nothing writes it while the copy is made, as the caller says.
    unsafe { slice::from_raw_parts(block.as_ptr().as_ptr(), block.len()) }.to_vec()
}

/// Fill a block. For one that no pull goes to, and that nobody reads.
pub(crate) fn fill(block: &Lease, byte_at: impl Fn(usize) -> u8) {
    for at in 0..block.len() {
        // SAFETY: inside of a block that is mapped while leased.
        unsafe { block.as_ptr().add(at).write(byte_at(at)) };
    }
}
