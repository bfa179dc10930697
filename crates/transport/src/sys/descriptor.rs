//! Descriptors that a table keeps as numbers, and those that arrive with bytes.

use std::io::IoSliceMut;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{DupFlags, Errno, dup3};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, recvmsg};

/// The descriptor of this number, for one system call; `None` for a negative number.
pub fn borrow<'a>(number: RawFd) -> Option<BorrowedFd<'a>> {
    if number < 0 {
        return None;
    }
    // SAFETY: not negative. Its owner may have closed it meanwhile: then the system call fails, or
    // adds the file that took its number to an epoll set, whose events carry an outdated generation.
    Some(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Make an open number refer to another file, as dup3(2) does. Its owner continues to own the number.
pub fn replace(number: RawFd, with: impl AsFd) {
    // SAFETY: a number of this process, which its owner keeps: it is not closed here, as it is never dropped.
    let mut replaced = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    let _ = dup3(with, &mut replaced, DupFlags::CLOEXEC); // refused, it stays as it is
}

/// Close a number that its owner continues to own: the next file that is opened must take it.
pub fn vacate(number: RawFd) {
    // SAFETY: a number of this process. Its owner will close the file that takes the number.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
}

/// Receive bytes with their descriptors, which are closed on exec; also returns whether descriptors were lost.
pub fn receive<'a>(
    socket: BorrowedFd<'_>,
    into: &'a mut [MaybeUninit<u8>],
    ancillary: &mut RecvAncillaryBuffer<'_>,
) -> Result<(&'a mut [u8], bool), Errno> {
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    // SAFETY: the memory is writable and borrowed exclusively. The kernel writes it and nobody reads it before: the slice
    // goes into the system call alone, and only what that says it wrote is used afterwards.
    let bytes = unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast(), into.len()) };
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], ancillary, flags)?;
    Ok((
        &mut bytes[..received.bytes],
        received.flags.contains(ReturnFlags::CTRUNC),
    ))
}
