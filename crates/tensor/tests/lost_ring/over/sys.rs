//! What takes a number that belongs to somebody else.
#![allow(unsafe_code)]
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

/// Have the descriptor `number` be `file`, whatever it was.
pub fn put_over(number: RawFd, file: &File) {
    // SAFETY: both are open; whoever owns the number finds another file there, which is what the test is about.
    let put = unsafe { libc::dup2(file.as_raw_fd(), number) };
    assert_eq!(put, number);
}
