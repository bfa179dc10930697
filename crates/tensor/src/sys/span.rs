//! Lent memory: rows of tensors, destinations of pulls, sources of pushes.
//!
//! No reference to it is ever made here, because the lender or a peer may write it concurrently: bytes are copied in
//! and out, and values are checked after they were copied.
use std::ptr::{self, NonNull};

/// `bytes` of memory at `address`, laid out as C's `iovec` is.
///
/// Its maker promises how long it is valid; state machines pass it on to the fabric that moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Span {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an address and a number; its maker promised that the memory is valid from any thread.
unsafe impl Send for Span {}
// SAFETY: as above; reading and writing through it is for the machines that hold it exclusively.
unsafe impl Sync for Span {}

impl Span {
    /// Memory without a byte.
    pub const EMPTY: Self = Self {
        address: NonNull::dangling(),
        bytes: 0,
    };

    /// Borrow `bytes` at `address`.
    ///
    /// # Safety
    ///
    /// The memory is readable, and writable where it is a destination or a tensor,
    /// until the receiver of the span hands its keeper back.
    /// No reference to a destination or a tensor is used meanwhile; a source may be read by others.
    pub unsafe fn new(address: NonNull<u8>, bytes: usize) -> Self {
        Self { address, bytes }
    }

    /// The first byte's address.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A part of it.
    ///
    /// # Panics
    ///
    /// Where the part is not inside.
    #[must_use]
    pub fn part(&self, from: usize, bytes: usize) -> Self {
        assert!(
            from <= self.bytes && bytes <= self.bytes - from,
            "a part outside of its span"
        );
        Self {
            // SAFETY: the assertion keeps it inside, or one past the end.
            address: unsafe { self.address.add(from) },
            bytes,
        }
    }

    /// All but the first `count` bytes.
    ///
    /// # Panics
    ///
    /// Where it has fewer.
    #[must_use]
    pub fn after(&self, count: usize) -> Self {
        assert!(count <= self.bytes, "a part outside of its span");
        self.part(count, self.bytes - count)
    }

    /// Whether both have a byte in common.
    pub(crate) fn overlaps(&self, other: Self) -> bool {
        let start = self.address.as_ptr() as usize;
        let other_start = other.address.as_ptr() as usize;
        start < other_start + other.bytes && other_start < start + self.bytes
    }

    /// The memory of a buffer of our own, valid until that is moved, resized or dropped.
    pub(crate) fn of(buffer: &mut [u8]) -> Self {
        Self {
            bytes: buffer.len(),
            address: NonNull::from(buffer).cast(),
        }
    }

    /// As `of`, for whole words.
    #[cfg(test)]
    pub(crate) fn of_words(words: &mut [u64]) -> Self {
        Self {
            bytes: words.len() * 8,
            address: NonNull::from(words).cast(),
        }
    }

    /// The memory of bytes that are to be sent, valid until they are moved, resized or dropped. Never written.
    pub(crate) fn sending(buffer: &[u8]) -> Self {
        Self {
            bytes: buffer.len(),
            address: NonNull::from(buffer).cast(),
        }
    }

    /// Copy `source` here, from the front. Memory that overlaps is copied as if through a temporary buffer.
    pub(crate) fn write(&self, source: &[u8]) {
        self.copy_from(Self::sending(source));
    }

    /// Copy all of `source` here, from the front.
    pub(crate) fn copy_from(&self, source: Self) {
        assert!(source.bytes <= self.bytes, "more than there is room for");
        // SAFETY: both are valid as their makers promised, and the assertion bounds the copy; they may overlap.
        unsafe {
            forebay_memory::copy(source.address.as_ptr(), self.address.as_ptr(), source.bytes);
        }
    }

    /// Append a copy of all of it.
    pub(crate) fn append_to(&self, buffer: &mut Vec<u8>) {
        buffer.reserve(self.bytes);
        // SAFETY: readable as its maker promised; the room was reserved, and is not shared.
        unsafe {
            let end = buffer.as_mut_ptr().add(buffer.len());
            forebay_memory::copy(self.address.as_ptr(), end, self.bytes);
            buffer.set_len(buffer.len() + self.bytes);
        }
    }
}

/// `count` row numbers of 64 bits in the machine's order, at any address.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    memory: Span,
}

impl Words {
    /// Row numbers that fill `memory`, which is read while its keeper is lent.
    /// The lender may change them concurrently: the request is then for an arbitrary row, or refused.
    ///
    /// # Panics
    ///
    /// Where its size is no multiple of 8.
    pub fn new(memory: Span) -> Self {
        assert!(
            memory.bytes.is_multiple_of(8),
            "row numbers have 8 bytes each"
        );
        Self { memory }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.memory.bytes / 8
    }

    /// Their memory.
    pub(crate) fn memory(&self) -> Span {
        self.memory
    }

    pub(crate) fn get(&self, index: usize) -> u64 {
        assert!(index < self.count(), "beyond what was lent");
        let mut word = [0; 8];
        let from = self.memory.part(index * 8, 8).address;
        // SAFETY: in range and readable as promised; by value, so a concurrent change yields another number.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), word.as_mut_ptr(), 8) };
        u64::from_ne_bytes(word)
    }
}
