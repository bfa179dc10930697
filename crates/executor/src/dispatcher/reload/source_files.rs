//! Watches the application's source files.
//!
//! Directories are watched, not files, because an editor may write a file in place or put another one there. The kernel
//! queues an event before the change returns to the editor, so a check before each submission sees every edit that
//! preceded it. Source: inotify(7).
//!
//! Where a path leads over symbolic links, the directory of each link is watched too, as is the link's target: a
//! release is switched by a link, and a source may be edited under its other name.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::dispatcher::poll::{Poll, Source, watch_only};
use crate::error::{Error, Result};

const EVENTS_BYTES: usize = 16 << 10;
/// Links that one path may lead over, as the kernel has it (`MAXSYMLINKS`).
const LINKS_MAX: usize = 40;

/// The watched files.
#[derive(Debug, Default)]
pub struct SourceFiles {
    inotify: Option<OwnedFd>,
    /// Directories by the kernel's watch number; one directory may have several paths.
    directories: HashMap<i32, Vec<PathBuf>>,
    watched: HashSet<PathBuf>,
    /// The sources that change with a file of this name.
    names: HashMap<PathBuf, Vec<PathBuf>>,
}

impl SourceFiles {
    /// Watch these files instead of the previous ones. A file that cannot be watched because it is gone counts as
    /// unchanged.
    ///
    /// # Errors
    /// `System` if the kernel refuses an inotify descriptor (`fs.inotify.max_user_instances`).
    pub fn watch(&mut self, poll: &Poll, paths: Vec<PathBuf>) -> Result<()> {
        if let Some(old) = self.inotify.take() {
            poll.remove(&old);
        }
        self.directories.clear();
        self.names.clear();
        self.watched = paths.into_iter().collect();
        if self.watched.is_empty() {
            return Ok(());
        }
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(
            Error::system("watch source files: inotify_init1 (fs.inotify.max_user_instances)"),
        )?;
        for path in &self.watched {
            for name in names_of(path) {
                self.names.entry(name).or_default().push(path.clone());
            }
        }
        let parents: BTreeSet<&Path> = self.names.keys().filter_map(|name| name.parent()).collect();
        let flags = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        for parent in parents {
            if let Ok(watch) = inotify::add_watch(&inotify, parent, flags) {
                let paths = self.directories.entry(watch).or_default();
                paths.push(parent.to_owned());
            }
        }
        watch_only(poll, &inotify, Source::Inotify)?;
        self.inotify = Some(inotify);
        Ok(())
    }

    /// The watched files that have changed since the last check.
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
            let directories = self.directories.get(&event.wd());
            if let (Some(directories), Some(name)) = (directories, name) {
                let name = OsString::from_vec(name);
                let paths = directories.iter().map(|directory| directory.join(&name));
                let sources = paths.filter_map(|path| self.names.get(&path)).flatten();
                changed.extend(sources.cloned());
            } else {
                // The kernel dropped events, or a directory was replaced: any file may have changed.
                changed.extend(self.watched.iter().cloned());
            }
        }
        changed.into_iter().collect()
    }
}

/// The names that a path resolves through: its own, each link on the way, and the final target.
fn names_of(path: &Path) -> BTreeSet<PathBuf> {
    let mut names = BTreeSet::from([path.to_owned()]);
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let parts: Vec<&Path> = path.ancestors().collect();
        let link = parts.into_iter().rev().find_map(|part| {
            let to = std::fs::read_link(part).ok()?;
            Some((part.to_owned(), part.parent()?.join(to)))
        });
        let Some((part, mut to)) = link else {
            break;
        };
        // The rest of the path behind the link; empty if the link was its last part.
        to.extend(path.strip_prefix(&part).unwrap_or(Path::new("")).iter());
        names.insert(part);
        path = to;
    }
    names.insert(path);
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory of a test's own, removed at its end.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let name = format!("forebay-files-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn watching(path: &Path) -> (Poll, SourceFiles) {
        let poll = Poll::new().unwrap();
        let mut files = SourceFiles::default();
        files.watch(&poll, vec![path.to_owned()]).unwrap();
        assert!(files.changed().is_empty());
        (poll, files)
    }

    #[test]
    fn a_source_behind_links_is_watched_where_it_is_and_where_it_is_switched() {
        let directory = Directory::new("links");
        let (one, two) = (directory.0.join("one"), directory.0.join("two"));
        for release in [&one, &two] {
            std::fs::create_dir(release).unwrap();
            std::fs::write(release.join("tune.py"), "a = 1").unwrap();
        }
        let current = directory.0.join("current");
        symlink("one", &current).unwrap();
        let path = current.join("tune.py");
        let (_poll, mut files) = watching(&path);
        assert_eq!(files.directories.len(), 2, "{:?}", files.directories);
        std::fs::write(one.join("other.py"), "").unwrap();
        assert!(files.changed().is_empty());
        std::fs::write(one.join("tune.py"), "a = 2").unwrap();
        assert_eq!(files.changed(), std::slice::from_ref(&path));
        symlink("two", directory.0.join("next")).unwrap();
        assert!(files.changed().is_empty());
        std::fs::rename(directory.0.join("next"), &current).unwrap();
        assert_eq!(files.changed(), [path]);
    }

    #[test]
    fn a_directory_that_is_another_one_has_other_sources() {
        let directory = Directory::new("moved");
        let project = directory.0.join("project");
        std::fs::create_dir(&project).unwrap();
        let path = project.join("tune.py");
        std::fs::write(&path, "a = 1").unwrap();
        let (_poll, mut files) = watching(&path);
        std::fs::rename(&project, directory.0.join("before")).unwrap();
        assert_eq!(files.changed(), [path]);
    }

    #[test]
    fn links_that_lead_in_a_circle_end() {
        let directory = Directory::new("circle");
        let (one, two) = (directory.0.join("one"), directory.0.join("two"));
        symlink(&two, &one).unwrap();
        symlink(&one, &two).unwrap();
        let names = names_of(&one.join("tune.py"));
        assert!(names.contains(&one) && names.contains(&two));
    }
}
