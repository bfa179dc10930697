//! How much memory this process may have, and which cgroups it is in.
//!
//! A limit may be set at every level above this process, and each holds for all that is below it, so the smallest one
//! decides. A file that is missing or cannot be read sets no limit. Sources: proc(5), cgroups(7), "Control Group v2" and
//! "Memory Resource Controller" of the kernel's documentation.

mod cgroup;

use std::fs;
use std::path::{Path, PathBuf};

pub use cgroup::{Cgroup, CgroupVersion};

/// The machine as this process sees it.
#[derive(Clone, Debug)]
pub struct Host {
    proc: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self::at("/proc")
    }
}

impl Host {
    /// The machine according to another `/proc`, for tests.
    pub fn at(proc: impl Into<PathBuf>) -> Self {
        Self { proc: proc.into() }
    }

    /// The directory that stands for `/proc`.
    pub fn proc(&self) -> &Path {
        &self.proc
    }

    /// The smallest limit on the memory of this process: that of a cgroup, or the machine's memory. `None` if neither
    /// is known. Cost: some twenty small reads.
    pub fn memory_limit_bytes(&self) -> Option<u64> {
        let cgroup = self.cgroup("memory");
        let confined = cgroup.and_then(|cgroup| cgroup.memory_limit_bytes());
        confined
            .into_iter()
            .chain(self.meminfo_bytes("MemTotal:"))
            .min()
    }

    /// A number of `/proc/meminfo`, whose name ends with a colon.
    pub fn meminfo_bytes(&self, name: &str) -> Option<u64> {
        field(&self.text("meminfo"), name)?.checked_mul(1024)
    }

    /// The cgroup of this process that `controller` acts on. A controller is in at most one hierarchy: in one of the
    /// first version if it is mounted there, else in that of the second, where it may be turned off.
    pub fn cgroup(&self, controller: &str) -> Option<Cgroup> {
        self.find(Some(controller))
            .or_else(|| self.unified_cgroup())
    }

    /// The cgroup of this process in the hierarchy of the second version, with or without controllers.
    pub fn unified_cgroup(&self) -> Option<Cgroup> {
        self.find(None)
    }

    fn find(&self, controller: Option<&str>) -> Option<Cgroup> {
        let (mounts, own) = (self.text("self/mountinfo"), self.text("self/cgroup"));
        Cgroup::find(&mounts, &own, controller)
    }

    /// The text of a file in `/proc`; empty if it cannot be read.
    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.proc.join(name)).unwrap_or_default()
    }
}

/// The number after a name at the beginning of a line, as `meminfo`, `memory.stat` and `memory.events` have them.
pub fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.strip_prefix([' ', '\t'])?;
        rest.split_ascii_whitespace().next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests;
