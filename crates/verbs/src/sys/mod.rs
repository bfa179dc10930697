//! All the `unsafe` of verbs: libibverbs, its objects, and the memory that a device reads and writes.
//!
//! The device checks a key for each access: of a [`registration`], whose pages stay pinned until it ends, or of a
//! [`window`] on one. So it refuses a wrong address or a late operation, and never touches unregistered memory. Keys do
//! not show whether a block of registered memory was reused: every operation therefore starts from a
//! [`Lease`](forebay_memory::Lease), which the caller keeps until the operation has ended or its key is revoked. No
//! reference to such memory is made here.
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
