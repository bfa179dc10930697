//! All the `unsafe` of verbs: libibverbs, what it points to, and the memory that a device reads and writes.
//!
//! What a device may touch is decided by keys that it checks itself: of a [`registration`], whose pages stay pinned
//! until it ends, or of a [`window`] on one. So a wrong address or a late operation is refused by the device, and
//! never reaches memory that is not registered. What keys cannot say is whether a block of registered memory has
//! become somebody else's: every operation is therefore made from a [`Lease`](forebay_memory::Lease), which whoever
//! posts it keeps until the operation is over, or its key is. No reference to such memory is made here.
#![allow(unsafe_code)]
pub(crate) mod bytes;
pub(crate) mod completion;
pub(crate) mod device;
pub(crate) mod layout;
pub(crate) mod library;
pub(crate) mod pair;
pub(crate) mod registration;
#[cfg(test)]
mod tests;
pub(crate) mod window;
