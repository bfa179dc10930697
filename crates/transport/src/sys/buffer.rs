//! Memory for received bytes: aligned, never zeroed, grown only on demand.

use std::alloc::{Layout, realloc};
use std::any::Any;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use forebay_memory::Window;

use super::shelf;

/// Alignment of segments: a cache line, and enough for every numpy dtype and vector load.
pub const SEGMENT_ALIGN: usize = 64;
/// Alignment of heads; `malloc` gives it without a detour.
pub const HEAD_ALIGN: usize = 16;

/// The alignment of shared memory that may not be written: what has it is never written or freed here.
const READ_ONLY: usize = 1;

/// Stands for a block of no bytes.
#[repr(align(64))]
struct Aligned;

/// An owned block of which the first `len` bytes are initialised.
///
/// Large ones are reused while their pages are warm: see [`super::shelf`].
pub struct Buffer {
    pointer: NonNull<u8>,
    capacity: usize,
    len: usize,
    /// Of our own memory; 1 for memory that was given, and for shared memory that may not be written.
    align: usize,
    /// The owner of memory that was given rather than allocated.
    owner: Option<Owner>,
    /// Keeps memory of another process mapped; then nothing is written or freed here.
    keeper: Option<Keeper>,
}

/// Keeps memory alive that was given to receive into, and gets it back.
pub type Owner = Box<dyn Any + Send + Sync>;

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, given) = (self.len, self.owner.is_some());
        write!(formatter, "Buffer {{ len: {len}, given: {given} }}")
    }
}

/// Keeps shared memory mapped; dropping it releases the memory to its owner.
type Keeper = Box<dyn fmt::Debug + Send + Sync>;

// SAFETY: the block is owned by this value alone, and plain bytes have no thread affinity.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference gives out `&[u8]` only.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocate `capacity` bytes; `None` if there is no memory.
    pub fn with_capacity(capacity: usize, align: usize) -> Option<Self> {
        let layout = Layout::from_size_align(capacity, align).ok()?;
        if capacity == 0 {
            let pointer = NonNull::new(std::ptr::without_provenance_mut(align))?;
            return Some(Self {
                pointer,
                capacity,
                len: 0,
                align,
                owner: None,
                keeper: None,
            });
        }
        let pointer = shelf::obtain(layout)?;
        Some(Self {
            pointer,
            capacity,
            len: 0,
            align,
            owner: None,
            keeper: None,
        })
    }

    /// The caller's memory to receive into.
    ///
    /// # Safety
    /// `capacity` bytes from `pointer` on are writable, and accessed by nothing else, until `owner` is dropped.
    pub unsafe fn given(pointer: NonNull<u8>, capacity: usize, owner: Owner) -> Self {
        Self {
            pointer,
            capacity,
            len: 0,
            align: 1,
            owner: Some(owner),
            keeper: None,
        }
    }

    /// Take the owner of memory that was given; from now on the bytes are the owner's.
    pub fn into_owner(mut self) -> Result<Owner, Self> {
        self.owner.take().ok_or(self)
    }

    /// An empty buffer without memory.
    pub fn empty() -> Self {
        Self {
            pointer: NonNull::<Aligned>::dangling().cast(),
            capacity: 0,
            len: 0,
            align: SEGMENT_ALIGN,
            owner: None,
            keeper: None,
        }
    }

    /// `bytes` bytes of another process from `offset` of its window on: full, and read-only unless the window is private,
    /// in which case this process's writes are seen by no other.
    ///
    /// The window stays mapped while they are used; then `keeper` is dropped, which releases them. Their owner could
    /// change them, if it broke the rule that sent memory is not written.
    ///
    /// # Panics
    /// If they are not inside.
    pub(crate) fn shared(
        window: Arc<Window>,
        offset: usize,
        bytes: usize,
        keeper: impl fmt::Debug + Send + Sync + 'static,
    ) -> Self {
        assert!(offset <= window.len() && bytes <= window.len() - offset);
        let start = window.as_ptr().wrapping_add(offset).cast_mut();
        Self {
            pointer: NonNull::new(start).expect("mapped memory is not at address 0"),
            capacity: bytes,
            len: bytes,
            align: if window.is_private() {
                HEAD_ALIGN
            } else {
                READ_ONLY
            },
            owner: None,
            keeper: Some(Box::new((keeper, window))), // released before it is unmapped
        }
    }

    /// Whether it was given, and returns to its owner.
    pub(crate) fn is_given(&self) -> bool {
        self.owner.is_some()
    }

    /// Whether it may not be written.
    pub fn is_read_only(&self) -> bool {
        self.is_shared() && self.align == READ_ONLY
    }

    /// Whether its bytes are in another process's memory.
    pub fn is_shared(&self) -> bool {
        self.keeper.is_some()
    }

    /// Enlarge to `capacity` bytes, keeping the content; `false` if there is no memory.
    pub fn grow(&mut self, capacity: usize) -> bool {
        if capacity <= self.capacity {
            return true;
        }
        if self.owner.is_some() {
            return false; // its size was agreed on
        }
        debug_assert!(!self.is_shared(), "memory of another process does not grow");
        if self.capacity == 0 {
            return Self::with_capacity(capacity, self.align).is_some_and(|fresh| {
                *self = fresh;
                true
            });
        }
        if Layout::from_size_align(capacity, self.align).is_err() {
            return false;
        }
        // SAFETY: pointer and layout are those of the allocation; the new size is not zero and
        // was checked against overflow above.
        let moved = unsafe { realloc(self.pointer.as_ptr(), self.layout(), capacity) };
        let Some(pointer) = NonNull::new(moved) else {
            return false;
        };
        self.pointer = pointer;
        self.capacity = capacity;
        true
    }

    /// Append as much of `bytes` as there is room for; returns how many.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.capacity - self.len);
        let start = self.spare().as_mut_ptr().cast::<u8>();
        // SAFETY: `count` bytes are readable in `bytes` and writable from `start`, and an exclusively
        // borrowed buffer cannot overlap a shared slice.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), count) };
        self.len += count;
        count
    }

    /// Let `receive` write into the free part, and append what it returns as initialised.
    ///
    /// # Errors
    /// Those of `receive`.
    ///
    /// # Panics
    /// If `receive` returns a slice that is not a prefix of the one it got.
    pub fn receive_with<E>(
        &mut self,
        receive: impl for<'a> FnOnce(&'a mut [MaybeUninit<u8>]) -> Result<&'a mut [u8], E>,
    ) -> Result<usize, E> {
        let spare = self.spare();
        let start = spare.as_ptr().cast::<u8>();
        let room = spare.len();
        let filled = receive(spare)?;
        let count = filled.len();
        assert!(
            count == 0 || (filled.as_ptr() == start && count <= room),
            "not a prefix"
        );
        self.len += count;
        Ok(count)
    }

    /// Bytes that may still be appended without growing.
    pub fn room(&self) -> usize {
        self.capacity - self.len
    }

    /// Initialised bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The initialised bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are initialised, and owned, or kept readable by the owner or the keeper. What
        // another process may write of shared ones is only ever taken for bytes.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }

    /// The address of the bytes, for a binding that lends them out.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    fn spare(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: `len <= capacity`, the range lies within the allocation, and MaybeUninit
        // makes no claim about its content.
        unsafe {
            let start = self.pointer.as_ptr().add(self.len).cast();
            std::slice::from_raw_parts_mut(start, self.capacity - self.len)
        }
    }

    fn layout(&self) -> Layout {
        // SAFETY: the same values passed the checked constructor.
        unsafe { Layout::from_size_align_unchecked(self.capacity, self.align) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.capacity > 0 && self.align > 1 && !self.is_shared() {
            // SAFETY: pointer and layout are those of the allocation, which is freed only here.
            unsafe { shelf::give_back(self.pointer, self.layout()) };
        }
    }
}

/// Write a byte of a writable buffer as its user does, for tests; where it begins.
#[cfg(test)]
pub(crate) fn write_at(buffer: &Buffer, offset: usize, value: u8) -> *mut u8 {
    assert!(!buffer.is_read_only() && offset < buffer.len());
    // SAFETY: inside the buffer, which may be written and of which the test holds no slice.
    unsafe { buffer.pointer().add(offset).write_volatile(value) };
    buffer.pointer()
}

/// Memory of a test to receive into, and what is dropped with it.
#[cfg(test)]
pub(crate) fn give(capacity: usize, witness: impl Send + Sync + 'static) -> Buffer {
    let mut memory = vec![0_u8; capacity];
    let pointer = NonNull::new(memory.as_mut_ptr()).expect("never null");
    // SAFETY: the vector's memory does not move with it, and nobody else can reach it.
    unsafe { Buffer::given(pointer, capacity, Box::new((memory, witness))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_grows_and_keeps_alignment() {
        let mut buffer = Buffer::with_capacity(3, SEGMENT_ALIGN).expect("memory");
        assert_eq!(buffer.append(b"abcd"), 3);
        assert!(buffer.grow(100_000));
        assert_eq!(buffer.append(b"d"), 1);
        assert_eq!(buffer.as_slice(), b"abcd");
        assert_eq!(buffer.pointer() as usize % SEGMENT_ALIGN, 0);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(Buffer::with_capacity(usize::MAX, SEGMENT_ALIGN).is_none());
        let mut empty = Buffer::with_capacity(0, HEAD_ALIGN).expect("nothing");
        assert_eq!(empty.append(b"x"), 0);
        assert!(empty.grow(1) && empty.append(b"x") == 1);
        assert!(!empty.grow(usize::MAX));
    }

    #[test]
    fn lends_exactly_its_free_part() {
        let mut buffer = Buffer::with_capacity(8, SEGMENT_ALIGN).expect("memory");
        buffer.append(b"ab");
        let count = buffer.receive_with::<()>(|spare| {
            assert_eq!(spare.len(), 6);
            Ok(&mut [])
        });
        assert_eq!((count, buffer.as_slice()), (Ok(0), &b"ab"[..]));
    }
}
