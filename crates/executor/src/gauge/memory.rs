//! The memory of the machine or its cgroups: how much there is, how much is in use.
//!
//! In use is what cannot be reclaimed: anonymous and shared memory, and what the kernel holds for the processes. The
//! page cache can, so a cgroup's total usage is no measure. A limit may be set at every level above this process, and
//! what other processes use below the same level counts, so the level with the least room decides.

use std::fs;
use std::path::{Path, PathBuf};

use super::cgroup::{Host, Version};
use super::pressure::Pressure;

/// A cgroup that may have a limit.
#[derive(Clone, Debug)]
struct Level {
    version: Version,
    directory: PathBuf,
}

/// The levels to measure.
#[derive(Clone, Debug)]
pub struct Memory {
    host: Host,
    levels: Vec<Level>,
    pressure: Pressure,
    /// The limit that readings refer to: the smallest when this was created, or the one that was given.
    limit_bytes: u64,
    /// A limit for the workers alone, below what the system sets.
    workers_max: Option<u64>,
}

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryUse {
    /// The limit less what is free at the tightest level.
    pub resident_bytes: u64,
    /// See [`super::Reading::Machine`].
    pub pressure: f32,
}

impl Memory {
    /// The memory of this process: its cgroup's, those above it, and the machine's.
    pub fn find(host: &Host) -> Self {
        let ancestry = host.ancestry("memory");
        let levels = ancestry.into_iter().flat_map(|ancestry| {
            let level = move |directory| Level {
                version: ancestry.version,
                directory,
            };
            ancestry.levels.into_iter().map(level)
        });
        let mut memory = Self {
            host: host.clone(),
            levels: levels.collect(),
            pressure: Pressure::find(host),
            limit_bytes: 0,
            workers_max: None,
        };
        let limits = memory.levels.iter().filter_map(Level::limit);
        memory.limit_bytes = limits
            .chain(memory.machine().map(|(total, _)| total))
            .min()
            .unwrap_or(u64::MAX);
        memory
    }

    /// Refer to this limit instead. One below the system's applies to the workers alone: their memory counts against
    /// it, and that of other programs does not, unless the system has even less left. One above it promises nothing
    /// more.
    #[must_use]
    pub fn limited(mut self, limit_bytes: u64) -> Self {
        self.workers_max = (limit_bytes < self.limit_bytes).then_some(limit_bytes);
        self.limit_bytes = limit_bytes;
        self
    }

    /// The limit that readings refer to: the smallest one, the machine's memory included, or the one that was given.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Whether a cgroup, not the machine, is the limit.
    pub fn is_confined(&self) -> bool {
        self.machine()
            .is_none_or(|(total, _)| self.limit_bytes < total)
    }

    /// Whether the kernel ends all processes of a cgroup at once when it is out of memory (`memory.oom.group`).
    pub fn ends_as_group(&self) -> bool {
        let mut levels = self.levels.iter();
        levels.any(|level| number(&level.directory.join("memory.oom.group")) == Some(1))
    }

    /// Measure now, given what the workers have. Cost: two small reads for each level with a limit.
    pub fn measure(&self, workers_bytes: u64) -> MemoryUse {
        let confined = self.levels.iter().filter_map(Level::free);
        let whole = self.machine().map(|(_, available)| available);
        let own = self
            .workers_max
            .map(|most| most.saturating_sub(workers_bytes));
        let free = confined
            .chain(whole)
            .chain(own)
            .min()
            .unwrap_or(self.limit_bytes);
        MemoryUse {
            resident_bytes: self.limit_bytes.saturating_sub(free),
            pressure: self.pressure.read(),
        }
    }

    /// The machine's memory, and what of it is available.
    fn machine(&self) -> Option<(u64, u64)> {
        let text = self.host.text("meminfo");
        let of = |name| field(&text, name).map(|kib| kib * 1024);
        Some((of("MemTotal:")?, of("MemAvailable:")?))
    }
}

impl Level {
    fn limit(&self) -> Option<u64> {
        let name = match self.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        number(&self.directory.join(name)).filter(|&limit| limit < NO_LIMIT)
    }

    /// What is left below its limit.
    fn free(&self) -> Option<u64> {
        let limit = self.limit()?;
        let stat = fs::read_to_string(self.directory.join("memory.stat")).ok()?;
        Some(limit.saturating_sub(resident(&stat, self.version)))
    }
}

/// From this value on there is no limit: the first version writes none as the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 60;

/// What cannot be reclaimed, from `memory.stat` of a cgroup and those below it.
///
/// The first version does not show apart what the kernel holds, most of which it can reclaim.
fn resident(stat: &str, version: Version) -> u64 {
    let names: &[&str] = match version {
        Version::One => &["total_rss", "total_shmem"],
        Version::Two => &[
            "anon",
            "shmem",
            "kernel_stack",
            "pagetables",
            "slab_unreclaimable",
        ],
    };
    names.iter().filter_map(|name| field(stat, name)).sum()
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.strip_prefix([' ', '\t'])?;
        rest.split_ascii_whitespace().next()?.parse().ok()
    })
}

/// The number in a file; `None` for `max` and for what cannot be read.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_does_not_count_as_in_use() {
        let first =
            "cache 900\nrss 5\ntotal_cache 900\ntotal_rss 100\ntotal_rss_huge 7\ntotal_shmem 20\n";
        assert_eq!(resident(first, Version::One), 120);
        let second = "anon 100\nfile 900\nkernel 50\nkernel_stack 1\npagetables 2\nshmem 20\nanon_thp 8\n\
            slab_reclaimable 9\nslab_unreclaimable 4\n";
        assert_eq!(resident(second, Version::Two), 127);
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        assert_eq!(field("anon_thp 8\nanon 7\n", "anon"), Some(7));
        assert_eq!(
            field("MemTotal:       24684084 kB\n", "MemTotal:"),
            Some(24_684_084)
        );
        assert_eq!(field("anon x\n", "anon"), None);
    }
}
