//! Directories that end with their processes.
//!
//! One directory per keeper, one in it per service; it is the service's `TMPDIR`. The keeper holds a lock on its
//! own, and a later keeper removes what it finds unlocked: the directory of one that was killed.
//! One directory is always made ahead, because a service is forked faster than its directory is made.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

const PREFIX: &str = "forebay-keeper-";

/// The keeper's own directory; removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    spare: Option<PathBuf>,
    made: u64,
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
        DirBuilder::new().mode(0o700).create(&unlocked)?;
        let lock = File::open(&unlocked)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unlocked, &path)?;
        Ok(Self {
            path,
            spare: None,
            made: 0,
            _lock: lock,
        })
    }

    /// A new directory for a service.
    pub fn enter(&mut self) -> io::Result<PathBuf> {
        if self.spare.is_none() {
            self.prepare()?;
        }
        self.spare
            .take()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Make the next one, if there is none.
    pub fn prepare(&mut self) -> io::Result<()> {
        if self.spare.is_none() {
            self.made += 1;
            let path = self.path.join(self.made.to_string());
            DirBuilder::new().mode(0o700).create(&path)?;
            self.spare = Some(path);
        }
        Ok(())
    }
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
            let Ok(directory) = File::open(entry.path()) else {
                continue;
            };
            if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

fn is_ours(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PREFIX))
}
