//! One cgroup per limited service, below one per keeper.
//!
//! Only version 2: a controller of version 1 lies in a tree of its own that another program manages, and kills nothing.
//! The keeper makes its own cgroup in the first of these where it may, and where controllers can be had:
//!
//! 1. in its own cgroup. Controllers can be turned on for children only where no process is inside, which is the
//!    keeper itself: this works in the root alone, or where they are on already;
//! 2. beside its own, in the parent, which has them on for its own sake: what root and the units of a user's
//!    service manager have;
//! 3. in its own, after every process in it was moved one down: how systemd wants a delegated unit to be used
//!    (`systemd-run --user --scope -p Delegate=yes`). Only where it is this user's and no other user's
//!    processes are in it.
//!
//! Where there is no controller a cgroup still ends everything in it at once. The keeper holds a lock on its own, and
//! a later keeper ends and removes what it finds unlocked: what a killed one left.
//! Sources: cgroups(7), "Control Group v2" of the kernel's documentation, "Control Group APIs" of systemd's.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use forebay_base::host::{Host, field};
use rustix::fs::{Access, FlockOperation, access, flock};
use rustix::process::geteuid;

use crate::confine::Limits;

const PREFIX: &str = "forebay-keeper-";
/// Where the processes of a delegated cgroup are moved, so that it may have children with limits.
const PROGRAM: &str = "forebay-program";
/// Tries to make a cgroup that is not swept before it is locked, and to move processes that fork meanwhile.
const TRIES: usize = 8;
/// The period of `cpu.max`, the kernel's default; and its smallest quota.
const CPU_PERIOD_US: u64 = 100_000;
const CPU_QUOTA_US_MIN: u64 = 1_000;

/// What can be limited in a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controllers {
    pub memory: bool,
    pub cpu: bool,
    pub pids: bool,
}

impl Controllers {
    fn parse(listed: &str) -> Self {
        let has = |name| listed.split_ascii_whitespace().any(|word| word == name);
        Self {
            memory: has("memory"),
            cpu: has("cpu"),
            pids: has("pids"),
        }
    }

    fn any(self) -> bool {
        self.memory || self.cpu || self.pids
    }
}

/// The keeper's own cgroup; ended and removed when dropped.
#[derive(Debug)]
pub struct Groups {
    directory: PathBuf,
    /// Of its children.
    pub controllers: Controllers,
    made: u64,
    leftovers: Leftovers,
    /// Held locked while the keeper lives.
    _lock: File,
}

/// Cgroups that still had processes when they were to go.
type Leftovers = Rc<RefCell<Vec<PathBuf>>>;

impl Groups {
    /// Make a cgroup of the keeper's own where that can be done, best where there are controllers.
    pub fn find() -> Option<Self> {
        let (mount, own) = own_cgroup()?;
        let parent = (own != mount).then(|| own.parent()).flatten();
        let mut bare = None;
        for base in [Some(own.as_path()), parent].into_iter().flatten() {
            match Self::create(base) {
                Ok(groups) if groups.controllers.any() => return Some(groups),
                Ok(groups) => bare = bare.or(Some(groups)),
                Err(_) => {}
            }
        }
        if step_aside(&own).is_ok()
            && let Ok(groups) = Self::create(&own)
        {
            return Some(groups);
        }
        bare
    }

    /// Make it in a directory of a cgroup file system.
    pub fn create(base: &Path) -> io::Result<Self> {
        // Moving a process writes to the common ancestor too.
        access(base.join("cgroup.procs"), Access::WRITE_OK)?;
        let leftovers = sweep(base);
        // Where processes are inside, the memory controller cannot be turned on, and turning on the others would keep
        // every process out of the children ("domain invalid"). The root, which has no type, is exempt.
        if !base.join("cgroup.type").exists() || members(base).is_empty() {
            enable(base);
        }
        for attempt in 0..TRIES {
            let (pid, now) = (std::process::id(), crate::clock::now_ms());
            let directory = base.join(format!("{PREFIX}{pid}-{now}-{attempt}"));
            fs::create_dir(&directory)?;
            // Another keeper's sweep may be faster: then there is no such file, or its lock is there.
            let Ok(lock) = File::open(&directory) else {
                continue;
            };
            if !is_domain(&directory) {
                remove(&directory);
                return Err(io::ErrorKind::Unsupported.into());
            }
            let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
            if locked && directory.join("cgroup.procs").exists() {
                let controllers = enable(&directory);
                return Ok(Self {
                    directory,
                    controllers,
                    made: 0,
                    leftovers: Rc::new(RefCell::new(leftovers)),
                    _lock: lock,
                });
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// A cgroup for a service, with those limits that there are controllers for.
    pub fn make(&mut self, limits: &Limits) -> io::Result<Group> {
        self.made += 1;
        let directory = self.directory.join(self.made.to_string());
        fs::create_dir(&directory)?;
        let group = Group {
            directory,
            counts_memory: self.controllers.memory,
            leftovers: Rc::clone(&self.leftovers),
        };
        if self.controllers.memory && limits.memory_bytes > 0 {
            group.write("memory.max", &limits.memory_bytes.to_string())?;
            let _ = group.write("memory.swap.max", "0"); // not there without swap
            let _ = group.write("memory.oom.group", "1"); // Linux 4.19
        }
        if self.controllers.cpu && limits.cpu_millis > 0 {
            let quota = u64::from(limits.cpu_millis) * CPU_PERIOD_US / 1_000;
            let quota = quota.max(CPU_QUOTA_US_MIN);
            group.write("cpu.max", &format!("{quota} {CPU_PERIOD_US}"))?;
        }
        if self.controllers.pids && limits.processes > 0 {
            group.write("pids.max", &limits.processes.to_string())?;
        }
        Ok(group)
    }

    /// Remove cgroups whose last processes have gone meanwhile. False where some are left.
    pub fn tend(&self) -> bool {
        let mut leftovers = self.leftovers.borrow_mut();
        leftovers.retain(|directory| !remove(directory));
        leftovers.is_empty()
    }

    /// Whether some are left.
    pub fn has_leftovers(&self) -> bool {
        !self.leftovers.borrow().is_empty()
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        end(&self.directory); // what is still there goes with the next keeper
    }
}

/// The cgroup of one service; everything in it is ended when it is dropped.
#[derive(Debug)]
pub struct Group {
    directory: PathBuf,
    counts_memory: bool,
    leftovers: Leftovers,
}

impl Group {
    /// Where a process enters it.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// End every process in it, whatever group or session it is in.
    pub fn kill(&self) {
        kill(&self.directory);
    }

    /// Whether the kernel ended a process in it for want of memory.
    pub fn ran_out_of_memory(&self) -> bool {
        self.counts_memory
            && field(&self.read("memory.events"), "oom_kill").is_some_and(|kills| kills > 0)
    }

    /// The most memory that it used; 0 where the kernel does not report it (before Linux 5.19).
    pub fn peak_bytes(&self) -> u64 {
        self.read("memory.peak").trim().parse().unwrap_or(0)
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.directory.join(file), value)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.directory.join(file)).unwrap_or_default()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Most have no process left.
        if !remove(&self.directory) {
            self.kill();
            if !remove(&self.directory) {
                self.leftovers.borrow_mut().push(self.directory.clone());
            }
        }
    }
}

/// Remove a cgroup and those below it. Whether it is gone, by this or by another process.
fn remove(directory: &Path) -> bool {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path()); // at most two levels, unless services make cgroups of their own
        }
    }
    match fs::remove_dir(directory) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// By the kernel at once where it can (Linux 5.14), else one by one: what forks meanwhile is found in the next round.
fn kill(directory: &Path) {
    let switch = fs::OpenOptions::new()
        .write(true)
        .open(directory.join("cgroup.kill"));
    if switch.is_ok_and(|mut switch| switch.write_all(b"1").is_ok()) {
        return;
    }
    for _ in 0..TRIES {
        let members = members(directory);
        if members.is_empty() {
            return;
        }
        for pid in members {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

fn members(directory: &Path) -> Vec<rustix::process::Pid> {
    let listed = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    listed
        .lines()
        .filter_map(|line| rustix::process::Pid::from_raw(line.parse().ok()?))
        .collect()
}

/// End whatever is in a keeper's cgroup, and remove it. Whether it is gone; processes need a moment to go.
fn end(directory: &Path) -> bool {
    kill(directory);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            kill(&entry.path()); // with the one above it where the kernel kills
        }
    }
    remove(directory)
}

/// End what dead keepers left, and remove it; returns what could not be removed yet.
fn sweep(base: &Path) -> Vec<PathBuf> {
    let mut left = Vec::new();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours
            && entry
                .metadata()
                .is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw())
            && let Ok(directory) = File::open(entry.path())
            && flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
            && !end(&entry.path())
        {
            left.push(entry.path());
        }
    }
    left
}

/// Whether processes can be in a cgroup: not below one whose children share its controllers by thread.
fn is_domain(directory: &Path) -> bool {
    fs::read_to_string(directory.join("cgroup.type")).is_ok_and(|kind| kind.trim() == "domain")
}

/// Turn on for the children of a cgroup what can be turned on. Returns what they have then.
fn enable(directory: &Path) -> Controllers {
    let switch = directory.join("cgroup.subtree_control");
    for name in ["memory", "cpu", "pids"] {
        let _ = fs::write(&switch, format!("+{name}")); // one by one: what is missing does not spoil the others
    }
    Controllers::parse(&fs::read_to_string(switch).unwrap_or_default())
}

/// Move every process of a cgroup that was delegated to this user into a child, so that others may have limits.
fn step_aside(own: &Path) -> io::Result<()> {
    let mine = geteuid().as_raw();
    if fs::metadata(own)?.uid() != mine {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if mine == 0 && !is_delegated(own) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let aside = own.join(PROGRAM);
    match fs::create_dir(&aside) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for _ in 0..TRIES {
        let members = members(own);
        if members.is_empty() {
            return Ok(());
        }
        for pid in members {
            // One that ended meanwhile need not be moved.
            let _ = fs::write(aside.join("cgroup.procs"), pid.as_raw_nonzero().to_string());
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// Root owns every cgroup: only what its service manager marked is its own to arrange.
fn is_delegated(own: &Path) -> bool {
    let mut value = [0u8; 8];
    let is_set = |name: &str, value: &mut [u8]| rustix::fs::getxattr(own, name, value).is_ok();
    is_set("trusted.delegate", &mut value) || is_set("user.delegate", &mut value)
}

/// Where the tree of version 2 is mounted, and the directory of this process in it. None where a container does not
/// show it: a cgroup made elsewhere would not have the limits of this process.
fn own_cgroup() -> Option<(PathBuf, PathBuf)> {
    let cgroup = Host::default().unified_cgroup()?;
    let (own, mount) = (cgroup.levels().first()?, cgroup.levels().last()?);
    (cgroup.is_visible() && own.is_dir()).then(|| (mount.clone(), own.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_where_there_are_controllers() {
        let base = std::env::temp_dir().join(format!("forebay-cgroup-{}", std::process::id()));
        fs::create_dir(&base).expect("a directory that stands for a cgroup");
        let lock = File::open(&base).expect("made above");
        let mut groups = Groups {
            directory: base.clone(),
            controllers: Controllers::parse("cpuset cpu memory"),
            made: 0,
            leftovers: Leftovers::default(),
            _lock: lock,
        };
        let limits = Limits {
            memory_bytes: 1 << 30,
            cpu_millis: 1_500,
            processes: 64,
            ..Limits::default()
        };
        let group = groups.make(&limits).expect("a directory");
        assert_eq!(group.read("memory.max"), "1073741824");
        assert_eq!(group.read("memory.swap.max"), "0");
        assert_eq!(group.read("cpu.max"), "150000 100000");
        assert_eq!(group.read("pids.max"), "", "there is no such controller");
        fs::write(group.path().join("memory.events"), "oom_kill 1\n").expect("a file");
        fs::write(group.path().join("memory.peak"), "4096\n").expect("a file");
        assert!(group.ran_out_of_memory());
        assert_eq!(group.peak_bytes(), 4096);

        drop(group);
        assert!(groups.has_leftovers(), "a directory with files in it stays");
        fs::remove_dir_all(base.join("1")).expect("ours");
        assert!(groups.tend());
        drop(groups);
        assert!(!base.exists());
    }
}
