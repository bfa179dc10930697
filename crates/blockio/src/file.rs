//! A file for block I/O: its own descriptor, and what direct I/O asks of operations on it.
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use forebay_base::process;
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags, statx};
use rustix::io::Errno;

use crate::error::Error;

/// What direct I/O needs where the kernel does not say: no disk has larger sectors.
const ALIGN_UNKNOWN: u32 = 4096;

/// The last number given to a file.
static FILES: AtomicU64 = AtomicU64::new(0);

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// For reading: `"r"`.
    Read,
    /// For reading and writing, as it is: `"r+"`.
    ReadWrite,
    /// For reading and writing; made if need be, emptied: `"w"`.
    Truncate,
    /// For reading and writing; made here, refused where it exists: `"x"`.
    Create,
}

/// What addresses, and what offsets and lengths, have to be multiples of; 1 where anything goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Of addresses, in bytes.
    pub memory: u32,
    /// Of file offsets and lengths, in bytes.
    pub offset: u32,
}

/// Keeps files open by slots of its own, until it is notified that one was closed.
pub(crate) trait FileHolder: fmt::Debug + Send + Sync {
    /// A file that it holds was closed. Called by any thread, which must not be made to wait.
    fn file_closed(&self);
}

/// Each with the process that it belongs to.
type Holders = Vec<(u64, Weak<dyn FileHolder>)>;

#[derive(Debug)]
struct Opened {
    /// Notified of the end.
    holders: Mutex<Holders>,
    epoch: u64,
    descriptor: OwnedFd,
    path: PathBuf,
    /// No other file of this process has it, ever.
    id: u64,
    alignment: Alignment,
    direct: bool,
    writable: bool,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let here = process::epoch();
        let holders = self
            .holders
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for (_, holder) in holders.iter().filter(|(epoch, _)| *epoch == here) {
            if let Some(holder) = holder.upgrade() {
                holder.file_closed();
            }
        }
    }
}

/// An open file. Clones are the same file; its descriptor is closed with the last of them, and no batch loses it before.
///
/// Thread-safe. The descriptor is not shared, so its number cannot come to mean another file.
#[derive(Clone, Debug)]
pub struct BlockFile(Arc<Opened>);

impl BlockFile {
    /// Open `path`; `direct` is `O_DIRECT`, which goes around the page cache.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] with the system's error; where the file system has no direct I/O, it says so.
    pub fn open(path: impl AsRef<Path>, mode: Mode, direct: bool) -> Result<Self, Error> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.read(true).write(mode != Mode::Read);
        match mode {
            Mode::Read | Mode::ReadWrite => {}
            Mode::Truncate => _ = options.create(true).truncate(true),
            Mode::Create => _ = options.create_new(true),
        }
        if direct {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        let refused = |source: io::Error| {
            let no_direct = direct && source.raw_os_error() == Some(Errno::INVAL.raw_os_error());
            Error::Open {
                path: path.to_owned(),
                how: if direct {
                    "with direct=True"
                } else {
                    "for block I/O"
                },
                source,
                advice: if no_direct {
                    "; its file system has no direct I/O: use direct=False"
                } else {
                    ""
                },
            }
        };
        let descriptor: OwnedFd = options.open(path).map_err(refused)?.into();
        let alignment = alignment(descriptor.as_fd(), direct);
        Ok(Self(Arc::new(Opened {
            holders: Mutex::default(),
            epoch: process::epoch(),
            descriptor,
            path: path.to_owned(),
            id: FILES.fetch_add(1, Ordering::Relaxed) + 1,
            alignment,
            direct,
            writable: mode != Mode::Read,
        })))
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What operations on it have to be aligned to.
    pub fn alignment(&self) -> Alignment {
        self.0.alignment
    }

    /// Whether it goes around the page cache.
    pub fn is_direct(&self) -> bool {
        self.0.direct
    }

    /// Whether it was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.0.writable
    }

    /// Its size in bytes at this moment.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the file cannot be asked.
    pub fn size_bytes(&self) -> Result<u64, Error> {
        let stat =
            rustix::fs::fstat(&self.0.descriptor).map_err(|errno| Error::system("fstat", errno))?;
        Ok(stat.st_size.cast_unsigned())
    }

    /// Whether what is written at an offset is there afterwards, as in a regular file or on a disk.
    pub(crate) fn keeps_bytes(&self) -> bool {
        let stat = rustix::fs::fstat(&self.0.descriptor);
        stat.is_ok_and(|stat| {
            let kind = FileType::from_raw_mode(stat.st_mode);
            matches!(kind, FileType::RegularFile | FileType::BlockDevice)
        })
    }

    /// The number of its descriptor, for a look; closing it is not the caller's.
    pub fn fileno(&self) -> RawFd {
        self.0.descriptor.as_raw_fd()
    }

    /// A mark that tells whether the file is gone, without keeping it open; the holder is notified at that moment.
    pub(crate) fn mark(&self, holder: &Arc<dyn FileHolder>) -> FileMark {
        if let Some(mut holders) = self.holders() {
            holders.retain(|(_, known)| known.strong_count() > 0);
            holders.push((process::epoch(), Arc::downgrade(holder)));
        }
        FileMark {
            id: self.0.id,
            opened: Arc::downgrade(&self.0),
        }
    }

    /// Its holders; `None` where they were locked while this process was forked, by a thread that it does not have.
    fn holders(&self) -> Option<MutexGuard<'_, Holders>> {
        let holders = &self.0.holders;
        if self.0.epoch == process::epoch() {
            return Some(holders.lock().unwrap_or_else(PoisonError::into_inner));
        }
        holders.try_lock().ok()
    }
}

/// Tells whether a file is still open.
pub(crate) struct FileMark {
    id: u64,
    opened: Weak<Opened>,
}

impl FileMark {
    pub(crate) fn is_of(&self, file: &BlockFile) -> bool {
        self.id == file.0.id
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.opened.strong_count() == 0
    }
}

impl AsFd for BlockFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }
}

/// Ask the kernel what direct I/O needs. Source: statx(2) on `STATX_DIOALIGN`, since Linux 6.1.
fn alignment(descriptor: BorrowedFd<'_>, direct: bool) -> Alignment {
    if !direct {
        return Alignment {
            memory: 1,
            offset: 1,
        };
    }
    let known = statx(descriptor, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .ok()
        .filter(|stat| stat.stx_dio_mem_align > 0 && stat.stx_dio_offset_align > 0);
    known.map_or(
        Alignment {
            memory: ALIGN_UNKNOWN,
            offset: ALIGN_UNKNOWN,
        },
        |stat| Alignment {
            memory: stat.stx_dio_mem_align,
            offset: stat.stx_dio_offset_align,
        },
    )
}
