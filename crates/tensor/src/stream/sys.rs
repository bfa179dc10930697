//! System calls on lent memory, without making a reference to it.
#![allow(unsafe_code)]
use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::sys::span::Span;

/// Send as many of the spans' bytes as fit, without waiting.
pub(super) fn send(socket: BorrowedFd<'_>, spans: &[Span]) -> Result<usize, Errno> {
    let message = message_of(spans);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message lives through the call, and its spans are readable, as the state machine promised.
    // Only the kernel reads them: bytes that are written concurrently are sent torn, and nothing depends on them.
    outcome(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) })
}

/// Receive the available bytes into the spans, in order, without waiting; 0 is the end of the stream.
pub(super) fn receive(socket: BorrowedFd<'_>, spans: &[Span]) -> Result<usize, Errno> {
    let mut message = message_of(spans);
    // SAFETY: the message lives through the call, and its spans are writable and exclusive, as the state machine
    // promised. Only the kernel writes them.
    outcome(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) })
}

/// A message made of the spans.
fn message_of(spans: &[Span]) -> libc::msghdr {
    // SAFETY: plain numbers and pointers, for which zero means "none".
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    // A span is laid out as an `iovec`; the kernel does not write those.
    message.msg_iov = spans.as_ptr().cast_mut().cast();
    #[allow(clippy::useless_conversion)] // musl declares another type
    {
        message.msg_iovlen = spans.len().try_into().unwrap_or(0);
    }
    message
}

fn outcome(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}

/// Lend the spans' bytes as slices to `act`, for TLS, which reads them here rather than in the kernel.
pub(super) fn with_slices<T>(spans: &[Span], act: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
    const PIECES: usize = 64;
    let mut slices = [IoSlice::new(&[]); PIECES];
    let count = spans.len().min(PIECES);
    for (slice, span) in slices.iter_mut().zip(spans) {
        // SAFETY: readable until this returns, as the state machine promised. Only this thread writes a server's
        // tensors; the lender of pushed values must not change them while they are lent, which is documented.
        *slice = IoSlice::new(unsafe {
            std::slice::from_raw_parts(span.address().as_ptr(), span.bytes())
        });
    }
    act(&slices[..count])
}
