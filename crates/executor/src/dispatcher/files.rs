//! Watching the application's source files.
//!
//! Directories are watched, not files: an editor may write a file in its place or put another one there. The kernel
//! queues an event before the change returns to the editor, so who looks before taking a submission that came after
//! an edit has seen it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::dispatcher::command::Order;
use crate::dispatcher::driver::Driver;
use crate::dispatcher::poll::{Poll, Ready, Source};
use crate::error::{Error, Result};

const EVENTS_BYTES: usize = 16 << 10;

/// The files that are watched.
#[derive(Debug, Default)]
pub struct Files {
    inotify: Option<OwnedFd>,
    directories: HashMap<i32, PathBuf>,
    watched: HashSet<PathBuf>,
}

impl Files {
    /// Watch these files instead of those before. What cannot be watched, since it is gone, counts as unchanged.
    ///
    /// # Errors
    /// `System` where the kernel gives no inotify (`fs.inotify.max_user_instances`).
    pub fn watch(&mut self, poll: &Poll, paths: Vec<PathBuf>) -> Result<()> {
        if let Some(old) = self.inotify.take() {
            poll.forget(&old, Source::Files, Ready::READ);
        }
        self.directories.clear();
        self.watched = paths.into_iter().collect();
        if self.watched.is_empty() {
            return Ok(());
        }
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(Error::system("watch source files: inotify_init"))?;
        let parents: BTreeSet<&Path> = self
            .watched
            .iter()
            .filter_map(|path| path.parent())
            .collect();
        let flags = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        for parent in parents {
            if let Ok(watch) = inotify::add_watch(&inotify, parent, flags) {
                self.directories.insert(watch, parent.to_owned());
            }
        }
        poll.watch(&inotify, Source::Files, Ready::default(), Ready::READ)
            .map_err(Error::system("epoll_ctl"))?;
        self.inotify = Some(inotify);
        Ok(())
    }

    /// The watched files that have changed since the last look.
    pub fn changed(&mut self) -> Vec<PathBuf> {
        let Some(inotify) = &self.inotify else {
            return Vec::new();
        };
        let mut changed = BTreeSet::new();
        let mut buffer = [const { MaybeUninit::uninit() }; EVENTS_BYTES];
        let mut reader = Reader::new(inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => break, // nothing more
            };
            let name = event.file_name().map(|name| name.to_bytes().to_vec());
            let directory = self.directories.get(&event.wd());
            if let (Some(directory), Some(name)) = (directory, name) {
                let path = directory.join(OsString::from_vec(name));
                if self.watched.contains(&path) {
                    changed.insert(path);
                }
            } else if directory.is_none() {
                changed.extend(self.watched.iter().cloned()); // events were lost: anything may have changed
            }
        }
        changed.into_iter().collect()
    }
}

impl Driver {
    /// Look whether source files have changed. Where that is so and `reload` is set, nothing is dispatched or taken
    /// from here on until the new code is installed.
    pub fn look_at_files(&mut self) {
        let changed = self.files.changed();
        let Some(first) = changed.first() else {
            return;
        };
        if self.reloads {
            let name = first.file_name().unwrap_or(first.as_os_str());
            let reason = format!("reloading: {} changed", name.display());
            self.load(reason.into());
        }
        let paths = changed.into_iter().map(|path| path.display().to_string());
        self.shared.order(Order::Sources(paths.collect()));
    }
}
