//! Directories that end with their processes.
//!
//! One directory per keeper, one in it per service; it is the service's `TMPDIR`. The keeper holds a lock on its
//! own, and a later keeper removes what it finds unlocked: the directory of one that was killed.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use rustix::process::geteuid;

const PREFIX: &str = "forebay-keeper-";

/// The keeper's own directory; removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    reserved: u64,
    /// Held locked while the keeper lives.
    _lock: File,
}

impl Scratch {
    /// Make a private directory under `base`, and remove what dead keepers left there.
    pub fn create(base: &Path) -> io::Result<Self> {
        sweep(base);
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
            _lock: lock,
        })
    }

    /// Another directory for a service; it is not made yet.
    pub fn reserve(&mut self) -> Directory {
        self.reserved += 1;
        Directory(self.path.join(self.reserved.to_string()))
    }
}

/// The directory of one service; removed when dropped, with all that is in it.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// Make it; only this user can enter it.
    pub fn make(&self) -> io::Result<()> {
        make(&self.0)
    }

    /// Its path.
    pub fn path(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // It may be gone already; what cannot be removed now goes with the keeper's own directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        if is_ours(&entry.file_name()) {
            let Ok(directory) = open_own(&entry.path()) else {
                continue;
            };
            if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
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
    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

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

        let living = Scratch::create(&base).expect("does not wait at the FIFO");
        sweep(&base);

        assert!(fifo.exists() && link.exists() && living.path.exists());
        assert!(base.join("elsewhere").exists());
        assert!(!dead.exists(), "nobody holds its lock");
        drop(living);
        fs::remove_dir_all(&base).expect("ours");
    }
}
