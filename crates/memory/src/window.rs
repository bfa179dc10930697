//! A window: another process's chunk, mapped for reading.
//!
//! A *private* window may be written too: the kernel copies a page when it is written for the first time, and only this
//! process sees that copy. It hides what the owner writes there later, so the user of a range
//! [restores](Window::restore) it before the owner may use it again.
//!
//! Reading a mapping that another process has shrunk raises SIGBUS, so a window is opened only on a
//! memfd whose size is sealed, and only on one of the same user. What its owner writes can be seen
//! through it at any time: a reader needs an agreement with the writer about when to look, such as
//! an answer that is sent after the last write.
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};
use rustix::io::pread;
use rustix::mm::{Advice, ProtFlags};

use crate::config::PAGE_BYTES;
use crate::error::Error;
use crate::sys::Mapping;

/// What a chunk must be sealed against: then its size is fixed and only its owner can write it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Source: statfs(2).
const HUGETLBFS_MAGIC: rustix::fs::FsWord = 0x9584_58f6;

/// Entries of the page map that are read at once, one for each page.
const ENTRIES: usize = 512;
/// Of an entry: the page is in memory, or in swap; and it is one of a file, as shared memory is.
const IN_USE: u64 = 0b11 << 62;
const OF_FILE: u64 = 1 << 61;

/// Memory of another process, mapped for as long as this lives, whatever becomes of its owner.
#[derive(Debug)]
pub struct Window {
    mapping: Mapping,
    bytes: usize,
    private: bool,
    /// Of a private window: what the kernel says about this process's pages, where it is to be had.
    page_map: Option<OwnedFd>,
}

impl Window {
    /// Map the chunk behind `descriptor`, which is not needed any more afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Unsafe`] where it is no memfd of a sealed size, can still be written through new
    /// mappings, or belongs to another user; [`Error::System`] if the kernel refuses.
    pub fn open(descriptor: &OwnedFd) -> Result<Self, Error> {
        let bytes = check(descriptor)?;
        let mapping =
            Mapping::new(descriptor.as_fd(), bytes, ProtFlags::READ).map_err(system("mmap"))?;
        Ok(Self {
            mapping,
            bytes,
            private: false,
            page_map: None,
        })
    }

    /// Map it so that it may be written, too; what is written is seen here alone.
    ///
    /// Cost: a fault and a copy for each page that is written.
    ///
    /// # Errors
    ///
    /// As [`Self::open`]; also [`Error::System`] where `RLIMIT_DATA` leaves no room, in which such a window counts,
    /// and for huge pages of the pool: copies of them would take from it, and end the process when it is empty.
    pub fn private(descriptor: &OwnedFd) -> Result<Self, Error> {
        let bytes = check(descriptor)?;
        if is_huge(descriptor) {
            return Err(system("mmap")(io::ErrorKind::Unsupported.into()));
        }
        let mapping = Mapping::private(descriptor.as_fd(), bytes).map_err(system("mmap"))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self {
            mapping,
            bytes,
            private: true,
            page_map: open("/proc/self/pagemap", flags, Mode::empty()).ok(),
        })
    }

    /// Give up what was written in whole pages of a private window, so that they show what their owner writes.
    ///
    /// Returns how many pages had been written. The bytes must not be in use meanwhile.
    /// Cost: 25 ns for each page, and a system call where there is something to give up; where the kernel has no page
    /// map, all of them are taken for written.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: what was written may still be there.
    pub fn restore(&self, offset: usize, bytes: usize) -> Result<usize, Error> {
        if !self.private {
            return Ok(0);
        }
        let bytes = bytes.next_multiple_of(page_bytes());
        let written = self.written(offset, bytes);
        if written > 0 {
            self.mapping
                .advise(offset, bytes, Advice::LinuxDontNeed)
                .map_err(system("madvise(MADV_DONTNEED)"))?;
        }
        Ok(written)
    }

    /// Make whole pages of a private window this process's own, as if each had been written: what their owner
    /// writes is not seen in them, and a forked child has them too.
    ///
    /// # Errors
    ///
    /// [`Error::System`], for example without memory: some pages may not be copied.
    pub fn keep(&self, offset: usize, bytes: usize) -> Result<(), Error> {
        let bytes = bytes.next_multiple_of(page_bytes());
        self.mapping
            .advise(offset, bytes, Advice::LinuxPopulateWrite)
            .map_err(system("madvise(MADV_POPULATE_WRITE)"))
    }

    /// How many pages of a range are copies of this process.
    fn written(&self, offset: usize, bytes: usize) -> usize {
        let pages = bytes / page_bytes();
        let first = self.mapping.at(offset, bytes).as_ptr() as usize / page_bytes();
        let mut entries = [0_u8; ENTRIES * size_of::<u64>()];
        let mut written = 0;
        for done in (0..pages).step_by(ENTRIES) {
            let wanted = (pages - done).min(ENTRIES) * size_of::<u64>();
            let at = ((first + done) * size_of::<u64>()) as u64;
            let got = self
                .page_map
                .as_ref()
                .and_then(|map| pread(map, &mut entries[..wanted], at).ok());
            if got != Some(wanted) {
                return pages;
            }
            let (entries, _) = entries[..wanted].as_chunks();
            written += entries
                .iter()
                .map(|&entry| u64::from_ne_bytes(entry))
                .filter(|entry| entry & IN_USE != 0 && entry & OF_FILE == 0)
                .count();
        }
        written
    }

    /// Whether it may be written, which is seen here alone.
    pub fn is_private(&self) -> bool {
        self.private
    }

    /// Where it begins. The bytes may change at any time, and may only be read.
    pub fn as_ptr(&self) -> *const u8 {
        self.mapping.at(0, self.bytes).as_ptr()
    }

    /// Its size, which never changes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it holds nothing; a chunk never is.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

/// Whether memory of another process may be mapped, and its size.
fn check(descriptor: &OwnedFd) -> Result<usize, Error> {
    let seals = fcntl_get_seals(descriptor).map_err(|_| Error::Unsafe {
        reason: "it is no memfd that can be sealed",
    })?;
    if !seals.contains(SEALS) {
        return Err(Error::Unsafe {
            reason: "its size is not sealed, so that reading it could end this process",
        });
    }
    if !seals.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE) {
        return Err(Error::Unsafe {
            reason: "it is not sealed against being written by others than its owner",
        });
    }
    let status = fstat(descriptor).map_err(|errno| system("fstat")(errno.into()))?;
    if status.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Error::Unsafe {
            reason: "it belongs to another user",
        });
    }
    usize::try_from(status.st_size).map_err(|_| Error::Unsafe {
        reason: "it has no size that can be mapped",
    })
}

/// Whether memory is of huge pages from the machine's pool.
fn is_huge(descriptor: &OwnedFd) -> bool {
    fstatfs(descriptor).is_ok_and(|status| status.f_type == HUGETLBFS_MAGIC)
}

fn system(call: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::System {
        arena: "of another process".into(),
        call,
        bytes: 0,
        source,
    }
}

/// Fits: a page does.
#[allow(clippy::cast_possible_truncation)]
const fn page_bytes() -> usize {
    PAGE_BYTES as usize
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::Window;
    use crate::config::Config;
    use crate::error::Error;
    use crate::region::Region;

    fn memfd(seals: SealFlags) -> OwnedFd {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = memfd_create("test", flags).expect("memory");
        ftruncate(&descriptor, 4096).expect("room");
        fcntl_add_seals(&descriptor, seals).expect("seals");
        descriptor
    }

    fn refused(descriptor: &OwnedFd) -> &'static str {
        match Window::open(descriptor) {
            Err(Error::Unsafe { reason }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn memory_whose_size_may_change_is_refused() {
        assert!(refused(&memfd(SealFlags::FUTURE_WRITE)).contains("size"));
        assert!(refused(&memfd(SealFlags::FUTURE_WRITE | SealFlags::GROW)).contains("size"));
    }

    #[test]
    fn memory_that_others_may_write_is_refused() {
        assert!(refused(&memfd(SealFlags::SHRINK | SealFlags::GROW)).contains("written"));
    }

    #[test]
    fn what_is_written_in_a_private_window_is_seen_there_alone_until_it_is_restored() {
        let region = Region::new(Config::new("test", 1 << 20)).expect("a region");
        let mut block = region.allocate(3 * 4096).expect("room");
        block.bytes_mut().expect("sole").fill(1);
        let window = Window::private(&block.share_chunk().expect("a descriptor")).expect("mapped");
        assert_eq!(window.restore(0, 3 * 4096).expect("no fault"), 0);

        window.mapping.poke(4096, 9);
        assert_eq!((window.mapping.peek(4096), window.mapping.peek(0)), (9, 1));
        block.bytes_mut().expect("sole").fill(2);
        assert_eq!((window.mapping.peek(4096), window.mapping.peek(0)), (9, 2));

        assert_eq!(window.restore(0, 3 * 4096 - 5).expect("restored"), 1);
        assert_eq!(window.mapping.peek(4096), 2);
    }

    #[test]
    fn kept_pages_do_not_change_with_their_owners() {
        let region = Region::new(Config::new("test", 1 << 20)).expect("a region");
        let mut block = region.allocate(2 * 4096).expect("room");
        block.bytes_mut().expect("sole").fill(1);
        let window = Window::private(&block.share_chunk().expect("a descriptor")).expect("mapped");
        window.keep(0, 4096).expect("memory");
        block.bytes_mut().expect("sole").fill(2);
        assert_eq!((window.mapping.peek(0), window.mapping.peek(4096)), (1, 2));
        assert_eq!(window.restore(0, 2 * 4096).expect("restored"), 1);
    }

    #[test]
    fn a_file_is_refused() {
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        assert!(refused(&file.into()).contains("memfd"));
    }

    #[test]
    fn a_sealed_memfd_is_mapped() {
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
        let window = Window::open(&memfd(seals)).expect("mapped");
        assert_eq!((window.len(), window.is_empty()), (4096, false));
    }
}
