//! Memory that is lent to a machine or made known to the kernel, and system calls on it. No reference to it is made.
#![allow(unsafe_code)]
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use forebay_memory::Lease;
use forebay_tensor::Span;
use rustix::io_uring::{
    IoringRegisterOp, IoringRsrcFlags, io_uring_params, io_uring_ptr, io_uring_register,
    io_uring_rsrc_register, io_uring_rsrc_update2, io_uring_setup, iovec,
};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// A ring that nothing is submitted to, for the buffers that are registered with it.
#[derive(Debug)]
pub struct Ring(OwnedFd);

impl Ring {
    /// A ring with so many places for buffers, all empty.
    pub fn new(places: u32) -> io::Result<Self> {
        let mut params = io_uring_params::default();
        // SAFETY: the parameters outlive the call.
        let ring = Self(unsafe { io_uring_setup(1, &mut params)? });
        let mut table = io_uring_rsrc_register::default();
        table.nr = places;
        table.flags = IoringRsrcFlags::REGISTER_SPARSE;
        ring.register(IoringRegisterOp::RegisterBuffers2, &table)?;
        Ok(ring)
    }

    /// Put memory into a place, which pins its pages; `None` empties the place and lets them go.
    pub fn update(&self, place: u32, memory: Option<(NonNull<u8>, usize)>) -> io::Result<()> {
        let (start, bytes) = memory.map_or((ptr::null_mut(), 0), |(start, bytes)| {
            (start.as_ptr(), bytes)
        });
        let vector = iovec {
            iov_base: start.cast(),
            iov_len: bytes,
        };
        let mut update = io_uring_rsrc_update2::default();
        update.offset = place;
        update.data = io_uring_ptr::new((&raw const vector).cast_mut().cast());
        update.nr = 1;
        self.register(IoringRegisterOp::RegisterBuffersUpdate, &update)
    }

    fn register<T>(&self, operation: IoringRegisterOp, argument: &T) -> io::Result<()> {
        let bytes = u32::try_from(size_of::<T>()).map_err(io::Error::other)?;
        let pointer: *const c_void = ptr::from_ref(argument).cast();
        // SAFETY: both operations take the structure that the callers above pass, which outlives the call;
        // the kernel keeps pages by itself, whatever becomes of their mapping.
        unsafe { io_uring_register(&self.0, operation, pointer, bytes)? };
        Ok(())
    }
}

/// Memory that is mapped for one use, no page of which is there yet.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    pub fn new(bytes: usize) -> io::Result<Self> {
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: fresh memory at an address that the kernel picks.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, writable, MapFlags::PRIVATE)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }

    pub fn span(&self) -> Span {
        // SAFETY: mapped and writable until this is dropped, which waits for the keeper that holds it.
        unsafe { Span::new(self.start, self.bytes) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: as it was mapped; whoever wrote it has handed it back.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "it was mapped");
    }
}

/// The first `bytes` of a block.
pub fn span_of(block: &Lease, bytes: usize) -> Span {
    assert!(bytes <= block.len(), "a block is as large as was asked for");
    // SAFETY: the block is writable and nobody else's while the keeper that holds its lease is lent.
    unsafe { Span::new(block.as_ptr(), bytes) }
}

/// Copy what lies in a span.
pub fn read(span: Span, into: &mut Vec<u8>) {
    into.reserve(span.bytes());
    // SAFETY: readable as whoever made the span promised; the room was reserved.
    unsafe {
        let end = into.as_mut_ptr().add(into.len());
        ptr::copy_nonoverlapping(span.address().as_ptr(), end, span.bytes());
        into.set_len(into.len() + span.bytes());
    }
}

/// Write all of a span, of which `bytes` has as many.
pub fn write(span: Span, bytes: &[u8]) {
    assert_eq!(span.bytes(), bytes.len(), "as many as there is room for");
    // SAFETY: writable as whoever made the span promised, and nobody else's.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), span.address().as_ptr(), bytes.len()) };
}

/// Send what fits of the spans, without waiting; `None` where nothing does.
pub fn send(socket: BorrowedFd<'_>, spans: &[Span]) -> io::Result<Option<usize>> {
    let message = message_of(spans);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message outlives the call; its spans are readable as the machine that gave them promised.
    outcome(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) })
}

/// Receive what is there into the spans, without waiting; 0 is the end of the stream, `None` that nothing is there.
pub fn receive(socket: BorrowedFd<'_>, spans: &[Span]) -> io::Result<Option<usize>> {
    let mut message = message_of(spans);
    // SAFETY: the message outlives the call; its spans are writable and nobody else's, as the machine promised.
    outcome(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) })
}

fn message_of(spans: &[Span]) -> libc::msghdr {
    // SAFETY: numbers and pointers, for which zero means "none".
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // A span is laid out as an `iovec`; the kernel does not write those.
    message.msg_iov = spans.as_ptr().cast_mut().cast();
    message.msg_iovlen = spans.len();
    message
}

fn outcome(result: isize) -> io::Result<Option<usize>> {
    match usize::try_from(result) {
        Ok(count) => Ok(Some(count)),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            error => Err(error),
        },
    }
}
