//! A reserve of disk space that submissions may not use.
//!
//! On a full disk accepted requests can still end, and a prune can make room. The reserve is a file with blocks and no
//! content. A batch without submissions that finds the disk full removes it and is written again; a batch with
//! submissions is written only while the file exists, or can be created again. On a file system that cannot allocate
//! blocks in advance there is no reserve: a full disk refuses everything until there is room again. The file is removed
//! with the store, so that an application that is not served takes no room.

use std::fs::remove_file;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatvfs, open};
use rustix::io::Errno;

/// Its name in the state directory.
const FILE: &str = "reserve";
/// Its size (`reserve_bytes_max`): what the WAL grows to before it is written back, 2,000 pages.
const BYTES_MAX: u64 = 8 << 20;
/// The part of a small file system that it takes instead.
const PART: u64 = 16;

#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    is_held: bool,
}

impl Reserve {
    /// The reserve of a state directory; nothing is allocated yet.
    pub fn of(directory: &Path) -> Self {
        Self {
            path: directory.join(FILE),
            is_held: false,
        }
    }

    /// Allocate it unless that is done.
    ///
    /// # Errors
    /// There is no room for it. Other errors of the disk are left to the store's own write.
    pub fn hold(&mut self) -> io::Result<()> {
        if self.is_held {
            return Ok(());
        }
        let made = self.make();
        if made.is_err() {
            let _ = remove_file(&self.path); // a partial reserve takes room from what still fits
        }
        match made {
            Err(error @ (Errno::NOSPC | Errno::DQUOT)) => return Err(error.into()),
            // Unsupported: not attempted again.
            Ok(()) | Err(Errno::OPNOTSUPP) => self.is_held = true,
            Err(_) => {}
        }
        Ok(())
    }

    fn make(&self) -> rustix::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(&self.path, flags, Mode::RUSR | Mode::WUSR)?;
        let system = fstatvfs(&file)?;
        let bytes = BYTES_MAX.min(system.f_blocks.saturating_mul(system.f_frsize) / PART);
        fallocate(&file, FallocateFlags::empty(), 0, bytes)
    }

    /// Release it for a write that must succeed; whether there was something to release.
    ///
    /// Also one that a killed server has left: where the disk is full by now, this server could hold none of its own.
    pub fn spend(&mut self) -> bool {
        self.is_held = false;
        remove_file(&self.path).is_ok()
    }
}
