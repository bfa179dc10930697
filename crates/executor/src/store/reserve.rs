//! Room on the disk that no submission may have: on a full disk, what was accepted still ends, and a prune makes room.
//!
//! It is a file with blocks and no content. A batch without submissions that finds the disk full removes it and is
//! written again; a batch with submissions is taken only while the file is there, or can be made again. Where the file
//! system cannot set blocks aside, there is none: a full disk refuses everything until there is room again. It goes
//! with the store, so that an application that is not served takes no room.

use std::fs::remove_file;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstatvfs, open};
use rustix::io::Errno;

/// Its name in the state directory.
const FILE: &str = "reserve";
/// Its size (`reserve_bytes_max`): what the log grows to before it is written back, 2,000 pages.
const BYTES_MAX: u64 = 8 << 20;
/// Of a small file system it takes this part.
const PART: u64 = 16;

#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    is_held: bool,
}

impl Reserve {
    /// Of a state directory; nothing is set aside yet.
    pub fn of(directory: &Path) -> Self {
        Self {
            path: directory.join(FILE),
            is_held: false,
        }
    }

    /// Set it aside, where it is not.
    ///
    /// # Errors
    /// There is no room for it. What else may be wrong with the disk, the store's own write tells.
    pub fn hold(&mut self) -> io::Result<()> {
        if self.is_held {
            return Ok(());
        }
        let made = self.make();
        if made.is_err() {
            let _ = remove_file(&self.path); // half of it is in the way of what still fits
        }
        match made {
            Err(error @ (Errno::NOSPC | Errno::DQUOT)) => return Err(error.into()),
            // Nor another time.
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

    /// Give it up for what has to be written; whether there was something to give.
    pub fn spend(&mut self) -> bool {
        std::mem::take(&mut self.is_held) && remove_file(&self.path).is_ok()
    }
}
