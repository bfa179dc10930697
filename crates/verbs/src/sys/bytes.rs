//! Copies out of and into blocks that the peer may write concurrently.
use std::ptr;

use forebay_memory::Lease;

/// Copy bytes out of a block. If the peer writes concurrently they mix old and new bytes: check them afterwards.
///
/// # Panics
///
/// If the part is not inside.
pub(crate) fn copy_out(block: &Lease, at: usize, into: &mut [u8]) {
    assert!(
        at <= block.len() && into.len() <= block.len() - at,
        "a part outside of its block"
    );
    // SAFETY: inside of a block that is leased; `into` is ours, so they do not overlap.
    unsafe {
        ptr::copy_nonoverlapping(
            block.as_ptr().as_ptr().add(at),
            into.as_mut_ptr(),
            into.len(),
        );
    };
}

/// Copy bytes into a block, to which the caller holds no reference.
///
/// # Panics
///
/// If the part is not inside.
pub(crate) fn copy_in(block: &Lease, at: usize, from: &[u8]) {
    assert!(
        at <= block.len() && from.len() <= block.len() - at,
        "a part outside of its block"
    );
    // SAFETY: as above; blocks that come here were lent for writing.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), block.as_ptr().as_ptr().add(at), from.len()) };
}
