//! A configuration that follows its files.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

/// What shows that a file changed: inode, size, and the nanosecond of the change.
type Stamp = Option<(u64, u64, i64, i64)>;

/// How the files are read.
pub type Load<T> = Box<dyn Fn() -> Result<Arc<T>> + Send + Sync>;

struct Loaded<T> {
    current: Arc<T>,
    stamps: Vec<Stamp>,
    failure: Option<Error>,
}

/// A value loaded from files, and reloaded when they have changed.
///
/// Connections keep what they were made with. Where the new files cannot be used, for example in
/// the moment between two of them, the old configuration stays; it is tried again at the next change.
pub struct Files<T> {
    paths: Vec<PathBuf>,
    load: Load<T>,
    loaded: Mutex<Loaded<T>>,
}

impl<T> Files<T> {
    /// Load them.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn new(paths: Vec<PathBuf>, load: Load<T>) -> Result<Self> {
        let stamps = stamps(&paths);
        let loaded = Mutex::new(Loaded {
            current: load()?,
            stamps,
            failure: None,
        });
        Ok(Self {
            paths,
            load,
            loaded,
        })
    }

    /// The newest usable configuration. Costs one `stat` for each file.
    pub fn current(&self) -> Arc<T> {
        let mut loaded = self.lock();
        let stamps = stamps(&self.paths);
        if stamps != loaded.stamps {
            self.renew(&mut loaded, stamps);
        }
        loaded.current.clone()
    }

    /// Load them now, changed or not.
    ///
    /// # Errors
    /// Those of `load`; what was loaded before then stays in use.
    pub fn reload(&self) -> Result<()> {
        let mut loaded = self.lock();
        let stamps = stamps(&self.paths);
        self.renew(&mut loaded, stamps);
        loaded.failure.clone().map_or(Ok(()), Err)
    }

    /// Why the newest files are not in use, if so.
    pub fn failure(&self) -> Option<Error> {
        self.lock().failure.clone()
    }

    fn renew(&self, loaded: &mut Loaded<T>, stamps: Vec<Stamp>) {
        loaded.stamps = stamps;
        match (self.load)() {
            Ok(fresh) => {
                loaded.current = fresh;
                loaded.failure = None;
            }
            Err(error) => loaded.failure = Some(error),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Loaded<T>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.ino(), found.size(), found.mtime(), found.mtime_nsec()))
    };
    paths.iter().map(stamp).collect()
}
