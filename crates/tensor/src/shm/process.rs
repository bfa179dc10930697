//! Descriptors of another process of the same user.
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::directory::File;

/// What the link of a memfd begins with.
const MEMFD: &[u8] = b"/memfd:";

/// A process, by its folder: it finds nothing any more once the process has ended.
#[derive(Debug)]
pub(super) struct Process {
    end: OwnedFd,
    descriptors: OwnedFd,
}

impl Process {
    /// The process of this number, whoever it is.
    ///
    /// # Errors
    ///
    /// There is none here, or `/proc` is not to be had.
    pub(super) fn open(number: u32) -> Result<Self, Errno> {
        let id = i32::try_from(number).ok().and_then(Pid::from_raw);
        // Before its folder: as long as this one lives, the number is nobody else's.
        let end = pidfd_open(id.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = openat(CWD, format!("/proc/{number}/fd"), flags, Mode::empty())?;
        Ok(Self { end, descriptors })
    }

    /// What is readable once it has ended.
    pub(super) fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// Its descriptor of this number, if that is a memfd and `is_it`.
    ///
    /// # Errors
    ///
    /// Why not: it has ended, belongs to another user, or has something else there.
    pub(super) fn memory(
        &self,
        descriptor: u32,
        is_it: impl Fn(File) -> bool,
    ) -> Result<OwnedFd, Errno> {
        let number = descriptor.to_string();
        // Looked at first: to open other things may wait, or do something.
        let link = readlinkat(&self.descriptors, &number, Vec::new())?;
        if !link.as_bytes().starts_with(MEMFD) {
            return Err(Errno::BADF);
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = openat(&self.descriptors, &number, flags, Mode::empty())?;
        if is_it(File::behind(&opened)?) {
            return Ok(opened);
        }
        Err(Errno::STALE)
    }
}
