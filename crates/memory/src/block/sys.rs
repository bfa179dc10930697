//! A block's memory as a slice.
#![allow(unsafe_code)]
use std::sync::Arc;

use super::Block;

/// The bytes of a block, if `holder` is its only lease.
pub(crate) fn sole_bytes(holder: &mut Arc<Block>) -> Option<&mut [u8]> {
    if !holder.holders.is_sole() {
        return None;
    }
    let length = holder.length();
    // SAFETY: the block's memory is mapped while `holder` lives, which the result borrows, and was zeroed by the kernel.
    // This process has no other slice of it: slices come from here alone, to a sole lease, mutably borrowed.
    // A lease that is taken from a reference meanwhile makes two, so it gets none;
    // code that writes through the raw address says in its `SAFETY` line why there is no reader.
    // Other processes can map the chunk for reading only, which the seals see to.
    Some(unsafe { std::slice::from_raw_parts_mut(holder.start().as_ptr(), length) })
}
