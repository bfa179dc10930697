//! Memory that two processes see: words as atomics, bytes by copy.
//!
//! One process writes, the other maps it read-only. No Rust reference to its bytes is ever made; indices are atomics,
//! everything else is copied out before it is examined.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_memory::{Lease, Window};

const WORD_BYTES: usize = size_of::<AtomicU64>();

/// A block of our own region, in which only this process writes, and every field but the words only under one lock.
#[derive(Debug)]
pub struct OwnBlock(Lease);

impl OwnBlock {
    /// Take a block, all zero from now on.
    pub fn new(lease: Lease) -> Self {
        // SAFETY: the lease is the only one of its block, and the block is mapped for writing over its length.
        unsafe { lease.as_ptr().as_ptr().write_bytes(0, lease.len()) };
        Self(lease)
    }

    /// The word at a multiple of 8.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(WORD_BYTES) && offset + WORD_BYTES <= self.0.len());
        // SAFETY: inside the block, which the lease keeps mapped; blocks begin at 64 bytes, so the word is aligned.
        // Every other user of it, here or in the other process, uses it as an atomic too.
        #[allow(clippy::cast_ptr_alignment)]
        unsafe {
            &*self.0.as_ptr().as_ptr().add(offset).cast::<AtomicU64>()
        }
    }

    /// Copy bytes in.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.0.len() && bytes.len() <= self.0.len() - offset);
        // SAFETY: inside the block; `bytes` is no part of it, since no slices of the block are made.
        // The other process may read beside this: it reads only what was published, which is never written here.
        unsafe {
            let to = self.0.as_ptr().as_ptr().add(offset);
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }
}

/// Bytes that were copied into our region to be sent, and are not written again.
#[derive(Debug)]
pub struct Staged(Lease);

impl Staged {
    /// Fill a block; `None` if it has another lease, or another size.
    pub fn new(mut lease: Lease, bytes: &[u8]) -> Option<Self> {
        let room = lease.bytes_mut()?;
        if room.len() != bytes.len() {
            return None;
        }
        room.copy_from_slice(bytes);
        Some(Self(lease))
    }

    /// The block, to keep it while others read it.
    pub fn into_lease(self) -> Lease {
        self.0
    }
}

impl AsRef<[u8]> for Staged {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the block is mapped while the lease lives, was written over its length above, and has not been
        // written since: only the ledger makes further leases of it, and it only keeps them.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().as_ptr(), self.0.len()) }
    }
}

/// A part of another process's chunk, read-only here.
#[derive(Clone, Debug)]
pub struct PeerBlock {
    window: Arc<Window>,
    start: usize,
    bytes: usize,
}

impl PeerBlock {
    /// The part of `window` from `start` on; `None` where it is not inside, or not aligned to 64 bytes.
    pub fn new(window: Arc<Window>, start: u64, bytes: usize) -> Option<Self> {
        let start = usize::try_from(start).ok()?;
        let end = start.checked_add(bytes)?;
        (end <= window.len() && start.is_multiple_of(64)).then_some(Self {
            window,
            start,
            bytes,
        })
    }

    /// What the word at a multiple of 8 holds at this moment.
    pub fn load(&self, offset: usize, order: Ordering) -> u64 {
        assert!(offset.is_multiple_of(WORD_BYTES) && offset + WORD_BYTES <= self.bytes);
        // SAFETY: inside the window, which stays mapped while it lives and cannot shrink, since it is sealed; aligned,
        // because the mapping begins at a page and the part at a cache line. An atomic load needs no write access.
        #[allow(clippy::cast_ptr_alignment)]
        unsafe {
            let word = self.window.as_ptr().add(self.start + offset);
            (*word.cast::<AtomicU64>()).load(order)
        }
    }

    /// Copy ranges (offset and length) out, one behind the other; what of `into` was written.
    pub fn read<'a>(
        &self,
        ranges: [(usize, usize); 2],
        into: &'a mut [MaybeUninit<u8>],
    ) -> &'a mut [u8] {
        let to = into.as_mut_ptr().cast::<u8>();
        let mut count = 0;
        for (offset, bytes) in ranges {
            assert!(offset <= self.bytes && bytes <= self.bytes - offset);
            assert!(bytes <= into.len() - count);
            // SAFETY: inside the window as above, and inside `into`, which is memory of this process. The writer may be
            // hostile and write meanwhile: then the copy holds a mix, which is only ever taken for bytes.
            unsafe {
                let from = self.window.as_ptr().add(self.start + offset);
                to.add(count).copy_from_nonoverlapping(from, bytes);
            }
            count += bytes;
        }
        // SAFETY: the first `count` bytes of `into` were written above; it stays borrowed.
        unsafe { std::slice::from_raw_parts_mut(to, count) }
    }
}
