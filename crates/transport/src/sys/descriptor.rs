//! Descriptors that a table keeps as numbers.

use std::os::fd::{BorrowedFd, RawFd};

/// The descriptor of this number, for one system call; `None` for a negative number.
pub fn borrow<'a>(number: RawFd) -> Option<BorrowedFd<'a>> {
    if number < 0 {
        return None;
    }
    // SAFETY: not negative. Its owner may have closed it meanwhile: then the kernel says so, or
    // adds what took its number to an epoll set, whose events meet a generation that is over.
    Some(unsafe { BorrowedFd::borrow_raw(number) })
}
