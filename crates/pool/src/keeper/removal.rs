//! Removing directories bit by bit, without leaving them.
//!
//! What a service leaves may be large, deep, or made to mislead: links that point elsewhere, directories that cannot
//! be entered, a name that becomes a link between two looks. So nothing is reached by path: each level is opened in
//! its parent, never through a link, and never on another file system. Levels below `DEPTH_MAX` are moved up to the
//! top first, so that neither descriptors nor the stack grow with the depth. And the keeper has one thread, so that
//! it removes a bounded number of entries between two looks at what is more urgent.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, chmod, fstat, open, openat, renameat, unlinkat};
use rustix::io::Errno;

/// Levels that are open at once.
const DEPTH_MAX: usize = 32;
/// Passes over a directory that is not empty although everything in it was removed: a process still writes to it.
const PASSES_MAX: u32 = 4;

/// Directories that are to go.
#[derive(Debug, Default)]
pub struct Removal {
    waiting: VecDeque<(PathBuf, Option<OwnedFd>)>,
    current: Option<Tree>,
}

impl Removal {
    /// Have a directory removed; `lock` is kept open until then.
    pub fn push(&mut self, path: PathBuf, lock: Option<OwnedFd>) {
        self.waiting.push_back((path, lock));
    }

    /// Whether there is nothing to do.
    pub fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.current.is_none()
    }

    /// Remove at most so many entries.
    pub fn step(&mut self, mut entries: usize) {
        while entries > 0 {
            let Some(tree) = &mut self.current else {
                let Some((path, lock)) = self.waiting.pop_front() else {
                    return;
                };
                // Gone already, or not ours to enter: nothing to do.
                self.current = Tree::open(&path, lock).ok();
                entries -= 1;
                continue;
            };
            if !tree.step() {
                self.current = None;
            }
            entries -= 1;
        }
    }

    /// Remove everything now.
    pub fn finish(&mut self) {
        while !self.is_done() {
            self.step(usize::MAX);
        }
    }
}

/// One directory that is being removed.
#[derive(Debug)]
struct Tree {
    parent: OwnedFd,
    device: u64,
    levels: Vec<Level>,
    moved: u64,
    _lock: Option<OwnedFd>,
}

#[derive(Debug)]
struct Level {
    name: CString,
    directory: OwnedFd,
    entries: Dir,
    passes: u32,
}

impl Tree {
    fn open(path: &Path, lock: Option<OwnedFd>) -> io::Result<Self> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = open(above, flags, Mode::empty())?;
        let name = CString::new(name.as_bytes())?;
        let directory = enter(&parent, &name)?;
        let device = fstat(&directory)?.st_dev;
        let levels = vec![Level::new(name, directory)?];
        Ok(Self {
            parent,
            device,
            levels,
            moved: 0,
            _lock: lock,
        })
    }

    /// Remove one entry, or go one level down or up. False once the tree is gone, or cannot go.
    fn step(&mut self) -> bool {
        let Some(level) = self.levels.last_mut() else {
            return false;
        };
        match level.entries.read() {
            Some(Ok(entry)) => {
                let name = entry.file_name();
                if name != c"." && name != c".." {
                    let name = name.to_owned();
                    self.remove(name);
                }
                true
            }
            Some(Err(_)) | None => self.leave(),
        }
    }

    /// Remove an entry of the last level, or enter it.
    fn remove(&mut self, name: CString) {
        let Some(level) = self.levels.last() else {
            return;
        };
        match unlinkat(&level.directory, &name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            _ => return, // gone, or not ours: then its directory stays too
        }
        if unlinkat(&level.directory, &name, AtFlags::REMOVEDIR).is_ok() {
            return;
        }
        if self.levels.len() >= DEPTH_MAX {
            self.moved += 1;
            let up = format!("forebay-deep-{}", self.moved);
            // The top is looked through once more, because it is not empty then.
            let _ = renameat(&level.directory, &name, &self.levels[0].directory, up);
            return;
        }
        if let Ok(directory) = enter(&level.directory, &name)
            && fstat(&directory).is_ok_and(|found| found.st_dev == self.device)
            && let Ok(below) = Level::new(name, directory)
        {
            self.levels.push(below);
        }
    }

    /// Everything of the last level was tried: remove it, look again, or give it up.
    fn leave(&mut self) -> bool {
        let Some(mut level) = self.levels.pop() else {
            return false;
        };
        let above = self
            .levels
            .last()
            .map_or(&self.parent, |above| &above.directory);
        match unlinkat(above, &level.name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if level.passes < PASSES_MAX || self.moved > 0 => {
                // What was moved up counts as progress; each look at the top takes all of it.
                if self.levels.is_empty() && self.moved > 0 {
                    self.moved = 0;
                    level.passes = 0;
                }
                level.passes += 1;
                level.entries.rewind();
                self.levels.push(level);
                true
            }
            _ => !self.levels.is_empty(),
        }
    }
}

impl Level {
    fn new(name: CString, directory: OwnedFd) -> io::Result<Self> {
        let entries = Dir::read_from(&directory)?;
        Ok(Self {
            name,
            directory,
            entries,
            passes: 0,
        })
    }
}

/// Open a directory in another one, through no link; one that forbids it is allowed first.
fn enter(parent: &OwnedFd, name: &CString) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(parent, name, OFlags::RDONLY | flags, Mode::empty()) {
        Err(Errno::ACCESS) => {}
        done => return Ok(done?),
    }
    let path_only = openat(parent, name, OFlags::PATH | flags, Mode::empty())?;
    allow(&path_only)?;
    Ok(openat(parent, name, OFlags::RDONLY | flags, Mode::empty())?)
}

/// Make a directory that was opened without entering it ours to enter. `chmod` of a name could follow a link.
fn allow(path_only: &OwnedFd) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", path_only.as_raw_fd());
    chmod(link, Mode::RWXU)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn base(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a base of our own");
        path
    }

    #[test]
    fn a_tree_goes_and_what_its_links_point_to_stays() {
        let base = base("links");
        let (tree, outside) = (base.join("tree"), base.join("outside"));
        fs::create_dir_all(tree.join("a/b")).expect("ours");
        fs::create_dir(&outside).expect("ours");
        fs::write(outside.join("kept"), "kept").expect("ours");
        symlink(&outside, tree.join("a/link")).expect("ours");
        symlink("..", tree.join("up")).expect("ours");
        fs::write(tree.join("a/b/file"), "x").expect("ours");
        fs::create_dir(tree.join("closed")).expect("ours");
        fs::write(tree.join("closed/file"), "x").expect("ours");
        fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o000)).expect("ours");

        let mut removal = Removal::default();
        removal.push(tree.clone(), None);
        removal.push(base.join("never there"), None);
        removal.finish();

        assert!(!tree.exists());
        assert_eq!(fs::read(outside.join("kept")).expect("it stayed"), b"kept");
        fs::remove_dir_all(base).expect("ours");
    }

    #[test]
    fn a_link_in_place_of_a_tree_is_not_followed() {
        let base = base("swapped");
        let outside = base.join("outside");
        fs::create_dir_all(outside.join("kept")).expect("ours");
        symlink(&outside, base.join("tree")).expect("ours");
        let mut removal = Removal::default();
        removal.push(base.join("tree"), None);
        removal.finish();
        assert!(outside.join("kept").exists());
        fs::remove_dir_all(base).expect("ours");
    }

    #[test]
    fn depth_costs_no_descriptors_and_each_step_is_bounded() {
        let base = base("deep");
        let mut path = base.join("tree");
        for level in 0..5 * DEPTH_MAX {
            fs::create_dir(&path).expect("ours");
            fs::write(path.join("file"), "x").expect("ours");
            path = path.join(format!("{level}"));
        }
        let mut removal = Removal::default();
        removal.push(base.join("tree"), None);
        let mut steps = 0;
        while !removal.is_done() {
            removal.step(10);
            steps += 1;
            let open = removal.current.as_ref().map_or(0, |tree| tree.levels.len());
            assert!(open <= DEPTH_MAX && steps < 1_000);
        }
        assert!(steps > 10 && !base.join("tree").exists());
        fs::remove_dir_all(base).expect("ours");
    }
}
