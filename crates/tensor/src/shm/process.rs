//! Descriptors of another process of the same user.
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

/// What the link of a memfd begins with.
const MEMFD: &[u8] = b"/memfd:";

/// A process, by its folder: it finds nothing any more once the process has ended.
#[derive(Debug)]
pub(super) struct Process {
    descriptors: OwnedFd,
}

impl Process {
    /// The process of this number, whoever it is.
    ///
    /// # Errors
    ///
    /// There is none here, or `/proc` is not to be had.
    pub(super) fn open(number: u32) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = openat(CWD, format!("/proc/{number}/fd"), flags, Mode::empty())?;
        Ok(Self { descriptors })
    }

    /// Its descriptor of this number, if that is a memfd and of this inode.
    ///
    /// # Errors
    ///
    /// Why not: it has ended, belongs to another user, or has something else there.
    pub(super) fn memory(&self, descriptor: u32, inode: u64) -> Result<OwnedFd, Errno> {
        let number = descriptor.to_string();
        // Looked at first: to open other things may wait, or do something.
        let link = readlinkat(&self.descriptors, &number, Vec::new())?;
        if !link.as_bytes().starts_with(MEMFD) {
            return Err(Errno::BADF);
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = openat(&self.descriptors, &number, flags, Mode::empty())?;
        if fstat(&opened)?.st_ino == inode {
            return Ok(opened);
        }
        Err(Errno::STALE)
    }
}
