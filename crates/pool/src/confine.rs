//! What one service may use at most, and how its process is held to it.
//!
//! Three parties take part. The client says the limits. The keeper decides how each is enforced (`keeper::limits`) and
//! makes the cgroup. The process confines itself, after it was forked and before it runs anything of the user: it
//! enters its cgroup by writing `0` to it, so that no other process has to name it and nothing can run before it is
//! in there; then it sets its resource limits. `CLONE_INTO_CGROUP` would do the same for a fork alone, not for the
//! programs that the standard library starts.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::{Resource, Rlimit, setrlimit};

/// What a service may use at most; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Memory, without what it shares with its template.
    pub memory_bytes: u64,
    /// Thousandths of a core.
    pub cpu_millis: u32,
    /// Descriptors of one process.
    pub open_files: u32,
    /// Processes and threads, its own included.
    pub processes: u32,
    /// Go without what cannot be enforced here, rather than refuse to start.
    pub advisory: bool,
    /// It holds state for later leases: neither idleness nor age, nor use, memory or want of room is a reason to end it.
    pub stateful: bool,
}

impl Limits {
    /// Whether there is nothing to enforce.
    pub const fn is_none(&self) -> bool {
        self.memory_bytes == 0
            && self.cpu_millis == 0
            && self.open_files == 0
            && self.processes == 0
    }
}

/// How a process confines itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// The cgroup to enter, a directory; empty: none.
    pub group: Vec<u8>,
    /// Bytes of data that it may map, on top of what a forked one has already; 0: no limit of its own.
    pub data_bytes: u64,
    /// Descriptors; 0: as inherited.
    pub open_files: u32,
    /// It may not make another process or thread.
    pub alone: bool,
}

/// A confinement whose files are open: what is left can be done between fork and exec.
#[derive(Debug)]
pub struct OpenConfinement {
    entrance: Option<OwnedFd>,
    data_bytes: u64,
    open_files: u32,
    alone: bool,
}

impl OpenConfinement {
    /// For a program, opened by the keeper before it forks.
    pub fn for_program(confinement: &Confinement) -> io::Result<Self> {
        Self::open(confinement, 0)
    }

    /// For a forked service, opened by itself: what its template had mapped does not count.
    pub fn for_fork(confinement: &Confinement) -> io::Result<Self> {
        let inherited = if confinement.data_bytes > 0 {
            mapped_data()?
        } else {
            0
        };
        Self::open(confinement, inherited)
    }

    fn open(confinement: &Confinement, inherited: u64) -> io::Result<Self> {
        let group = Path::new(OsStr::from_bytes(&confinement.group));
        let entrance = if confinement.group.is_empty() {
            None
        } else {
            let file = OpenOptions::new()
                .write(true)
                .open(group.join("cgroup.procs"))?;
            Some(OwnedFd::from(file))
        };
        let data_bytes = match confinement.data_bytes {
            0 => 0,
            bytes => bytes.saturating_add(inherited),
        };
        Ok(Self {
            entrance,
            data_bytes,
            open_files: confinement.open_files,
            alone: confinement.alone,
        })
    }

    /// Confine this process, which has one thread. Makes system calls only.
    pub fn enter(&self) -> io::Result<()> {
        if let Some(entrance) = &self.entrance {
            rustix::io::write(entrance, b"0")?;
        }
        limit(Resource::Core, 0)?;
        if self.data_bytes > 0 {
            limit(Resource::Data, self.data_bytes)?;
            raise_oom_score()?;
        }
        if self.open_files > 0 {
            limit(Resource::Nofile, u64::from(self.open_files))?;
        }
        if self.alone {
            limit(Resource::Nproc, 0)?;
        }
        Ok(())
    }
}

/// Set a resource limit for good; where it is lower already it stays.
fn limit(resource: Resource, value: u64) -> io::Result<()> {
    let allowed = rustix::process::getrlimit(resource).maximum;
    let value = Some(allowed.map_or(value, |allowed| allowed.min(value)));
    let (current, maximum) = (value, value);
    Ok(setrlimit(resource, Rlimit { current, maximum })?)
}

/// Be the first to go where the whole machine is out of memory, before the client and the keeper.
fn raise_oom_score() -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = open(c"/proc/self/oom_score_adj", flags, Mode::empty())?;
    let _ = rustix::io::write(file, b"500"); // refused where it is higher already
    Ok(())
}

/// Bytes of private writable memory that this process has mapped: what `RLIMIT_DATA` counts, and its stack.
fn mapped_data() -> io::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = pages
        .split_ascii_whitespace()
        .nth(5)
        .and_then(|pages| pages.parse().ok())
        .ok_or(io::ErrorKind::InvalidData)?;
    Ok(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_data_grows_by_what_is_mapped() {
        let before = mapped_data().expect("statm");
        let block = std::hint::black_box(vec![1u8; 256 << 20]);
        let after = mapped_data().expect("statm");
        // Other tests map and unmap a few MB meanwhile.
        assert!(after + (64 << 20) >= before + block.len() as u64);
    }
}
