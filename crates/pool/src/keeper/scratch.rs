//! Directories that end with their processes.
//!
//! One directory per keeper, one in it per service. The keeper holds a lock on its own, and a later keeper removes
//! what it finds unlocked: the directory of one that was killed.
//!
//! A service's directory is its `TMPDIR`, and belongs to the lease that is out. The service itself empties it between
//! two leases, because it alone knows, without asking and without a race, that a lease's first call has come: it puts
//! a used one aside, into the keeper's, under a name that begins with `ended-`, which the keeper removes when there is
//! time. An unused one stays: its time of change is still the one that it was made with, the epoch, so that one look
//! is all that a lease costs which needs no directory.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, Timespec, Timestamps, flock, fstat, open, utimensat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::removal::Removal;

const PREFIX: &str = "forebay-keeper-";
/// How the names of directories begin whose lease has ended.
const ENDED: &[u8] = b"ended-";
/// The times of a directory in which nothing was ever made.
const UNUSED: Timestamps = Timestamps {
    last_access: EPOCH,
    last_modification: EPOCH,
};
const EPOCH: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// What is to be removed; the keeper has one thread.
pub type SharedRemoval = Rc<RefCell<Removal>>;

/// The keeper's own directory; removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    reserved: u64,
    removal: SharedRemoval,
    /// Held locked while the keeper lives.
    _lock: File,
}

impl Scratch {
    /// Make a private directory under `base`, and remove what dead keepers left there.
    pub fn create(base: &Path, removal: &SharedRemoval) -> io::Result<Self> {
        sweep(base, removal);
        let name = format!("{PREFIX}{}-{}", std::process::id(), crate::clock::now_ms());
        let path = base.join(&name);
        // Under another name until it is locked, so that no sweep takes it for a dead keeper's.
        let unlocked = base.join(format!(".{name}"));
        make(&unlocked)?;
        let lock = File::open(&unlocked)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unlocked, &path)?;
        Ok(Self {
            path,
            reserved: 0,
            removal: Rc::clone(removal),
            _lock: lock,
        })
    }

    /// Another directory for a service; it is not made yet.
    pub fn reserve(&mut self) -> Directory {
        self.reserved += 1;
        let path = self.path.join(self.reserved.to_string());
        let removal = Rc::clone(&self.removal);
        Directory { path, removal }
    }

    /// Have the directories of ended leases removed.
    pub fn collect_ended(&self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if entry.file_name().as_bytes().starts_with(ENDED) {
                self.removal.borrow_mut().push(entry.path(), None);
            }
        }
    }
}

/// The directory of one service; it goes when this is dropped, with all that is in it.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    removal: SharedRemoval,
}

impl Directory {
    /// Make it; only this user can enter it.
    pub fn make(&self) -> io::Result<()> {
        make(&self.path)?;
        utimensat(CWD, &self.path, &UNUSED, AtFlags::empty())?;
        Ok(())
    }

    /// Its path.
    pub fn path(&self) -> &OsStr {
        self.path.as_os_str()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.removal.borrow_mut().push(self.path.clone(), None);
    }
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path).map_err(|error| {
        let text = format!("{}: {error}", path.display());
        io::Error::new(error.kind(), text)
    })
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.removal.borrow_mut().push(self.path.clone(), None);
    }
}

fn sweep(base: &Path, removal: &SharedRemoval) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        remove_unfinished(&entry);
        if is_ours(&entry.file_name()) {
            let Ok(directory) = open_own(&entry.path()) else {
                continue;
            };
            if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
                // Locked until it is gone, so that no other keeper begins with it too.
                removal.borrow_mut().push(entry.path(), Some(directory));
            }
        }
    }
}

/// Remove the empty directory of a keeper that was killed before it had locked and named it.
fn remove_unfinished(entry: &fs::DirEntry) {
    let name = entry.file_name();
    let unfinished = name.to_str().and_then(|name| name.strip_prefix('.'));
    let pid = unfinished.and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
    if let Some(pid) = pid
        && pid.parse::<u32>().is_ok()
        && !Path::new("/proc").join(pid).exists()
    {
        let _ = fs::remove_dir(entry.path()); // empty, or not what it seems
    }
}

/// Open a directory that this user owns. Others may write to the base: what they left under our name, a FIFO or a
/// link, is neither waited for nor followed.
fn open_own(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let directory = open(path, OFlags::RDONLY | flags, Mode::empty())?;
    if fstat(&directory)?.st_uid == geteuid().as_raw() {
        Ok(directory)
    } else {
        Err(Errno::PERM.into())
    }
}

fn is_ours(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PREFIX))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FileType, mknodat};

    use super::*;

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let refused = make(Path::new("/proc/forebay")).expect_err("nobody can");
        assert!(
            refused.to_string().starts_with("/proc/forebay: "),
            "{refused}"
        );
    }

    #[test]
    fn a_sweep_takes_dead_keepers_directories_and_nothing_else() {
        let name = format!("forebay-sweep-{}", std::process::id());
        let base = std::env::temp_dir().join(name);
        make(&base).expect("a base of our own");
        let path = |name: &str| base.join(format!("{PREFIX}{name}"));
        let (fifo, link, dead) = (path("fifo"), path("link"), path("dead"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).expect("a FIFO");
        make(&base.join("elsewhere")).expect("a directory");
        std::os::unix::fs::symlink(base.join("elsewhere"), &link).expect("a link");
        make(&dead).expect("a directory");
        let unfinished = |pid: u32| base.join(format!(".{PREFIX}{pid}-1"));
        let (gone, coming) = (unfinished(u32::MAX), unfinished(std::process::id()));
        make(&gone).expect("a directory");
        make(&coming).expect("a directory");

        let removal = SharedRemoval::default();
        let living = Scratch::create(&base, &removal).expect("does not wait at the FIFO");
        sweep(&base, &removal);
        removal.borrow_mut().finish();

        assert!(fifo.exists() && link.exists() && living.path.exists());
        assert!(base.join("elsewhere").exists());
        assert!(!dead.exists(), "nobody holds its lock");
        assert!(!gone.exists() && coming.exists(), "no such keeper");
        fs::remove_dir(coming).expect("empty");
        drop(living);
        removal.borrow_mut().finish();
        assert_eq!(fs::read_dir(&base).expect("ours").count(), 3);
        fs::remove_dir_all(&base).expect("ours");
    }
}
