//! The directories of services and templates, and their removal bit by bit.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::keeper::scratch::{Directory, Scratch, SharedRemoval};
use crate::limit::{DIRECTORY_SCAN_MS, REMOVE_BATCH};

/// The keeper's own directory, made with the first that is wanted in it, and what is to be removed.
#[derive(Debug)]
pub struct Directories {
    base: PathBuf,
    scratch: Option<Scratch>,
    removal: SharedRemoval,
    /// When directories of ended leases were last looked for.
    scanned_ms: u64,
}

impl Directories {
    /// No directory yet; all are made below `base`.
    pub fn new(base: PathBuf) -> Self {
        Self {
            base,
            scratch: None,
            removal: SharedRemoval::default(),
            scanned_ms: 0,
        }
    }

    /// Reserve another directory, which is not made yet.
    pub fn reserve(&mut self) -> Result<Directory> {
        let scratch = match self.scratch.take() {
            Some(scratch) => scratch,
            None => Scratch::create(&self.base, &self.removal).map_err(not_made)?,
        };
        Ok(self.scratch.insert(scratch).reserve())
    }

    /// Make another directory.
    pub fn make(&mut self) -> Result<Directory> {
        let directory = self.reserve()?;
        directory.make().map_err(not_made)?;
        Ok(directory)
    }

    /// Whether nothing is to be removed.
    pub fn is_done(&self) -> bool {
        self.removal.borrow().is_done()
    }

    /// Remove a bounded part of what is to be removed; from time to time that includes the directories of leases that
    /// have ended, which services have moved aside.
    pub fn step(&mut self, now: u64) {
        if now >= self.scanned_ms + DIRECTORY_SCAN_MS {
            self.scanned_ms = now;
            if let Some(scratch) = &self.scratch {
                scratch.collect_ended();
            }
        }
        self.removal.borrow_mut().step(REMOVE_BATCH);
    }

    /// Remove all directories, the keeper's own too.
    pub fn finish(&mut self) {
        self.scratch = None;
        self.removal.borrow_mut().finish();
    }
}

fn not_made(source: std::io::Error) -> Error {
    Error::System {
        what: "cannot make a directory for the service".into(),
        source,
    }
}
