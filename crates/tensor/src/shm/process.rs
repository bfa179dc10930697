//! Descriptors of another process of the same user.
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::directory::File;

/// What the link of a memfd begins with.
const MEMFD: &[u8] = b"/memfd:";

/// A process, by its folder in `/proc`, which is empty once the process has ended.
#[derive(Debug)]
pub(super) struct Process {
    end: OwnedFd,
    descriptors: OwnedFd,
}

impl Process {
    /// The process with this number.
    ///
    /// # Errors
    ///
    /// There is no such process, or no `/proc`.
    pub(super) fn open(number: u32) -> Result<Self, Errno> {
        let id = i32::try_from(number).ok().and_then(Pid::from_raw);
        // Before its folder: while the pidfd's process lives, the number cannot be reused.
        let end = pidfd_open(id.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = openat(CWD, format!("/proc/{number}/fd"), flags, Mode::empty())?;
        Ok(Self { end, descriptors })
    }

    /// A descriptor that is readable once the process has ended.
    pub(super) fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    /// Its descriptor of this number, if that is a memfd and `is_it`.
    ///
    /// # Errors
    ///
    /// Why not: the process has ended, belongs to another user, or has another file there.
    pub(super) fn memory(
        &self,
        descriptor: u32,
        is_it: impl Fn(File) -> bool,
    ) -> Result<OwnedFd, Errno> {
        let number = descriptor.to_string();
        // Checked first: opening another kind of file may block or have side effects.
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
