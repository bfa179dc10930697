//! The memory of the machine or its cgroups: how much there is, how much is in use.
//!
//! In use is what cannot be reclaimed: anonymous and shared memory, and what the kernel holds for the processes. The
//! page cache can, so a cgroup's total usage is no measure. A limit may be set at every level above this process, and
//! what other processes use below the same level counts, so the level with the least room decides.

use std::fs;
use std::path::Path;

use forebay_base::host::{Cgroup, CgroupVersion, Host, field};

use super::pressure::Pressure;

/// The memory to measure.
#[derive(Clone, Debug)]
pub struct Memory {
    host: Host,
    /// The cgroup of this process, whose levels may have limits.
    cgroup: Option<Cgroup>,
    pressure: Pressure,
    /// The limit that readings refer to: the smallest when this was created, or the one that was given.
    limit_bytes: u64,
    /// A limit for the workers alone, below what the system sets.
    workers_max: Option<u64>,
    /// The workers are on other machines, so this one's memory is not theirs.
    elsewhere: bool,
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
        Self {
            host: host.clone(),
            cgroup: host.cgroup("memory"),
            pressure: Pressure::find(host),
            limit_bytes: host.memory_limit_bytes().unwrap_or(u64::MAX),
            workers_max: None,
            elsewhere: false,
        }
    }

    /// Memory of other machines, of which only what each worker has is known.
    #[must_use]
    pub fn elsewhere(mut self) -> Self {
        self.elsewhere = true;
        self
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
        self.host
            .meminfo_bytes("MemTotal:")
            .is_none_or(|total| self.limit_bytes < total)
    }

    /// Whether the kernel ends all processes of a cgroup at once when it is out of memory (`memory.oom.group`).
    pub fn ends_as_group(&self) -> bool {
        let mut levels = self.cgroup.iter().flat_map(Cgroup::levels);
        levels.any(|level| {
            let text = fs::read_to_string(level.join("memory.oom.group"));
            text.is_ok_and(|text| text.trim() == "1")
        })
    }

    /// Measure now, given what the workers have. Cost: two small reads for each level with a limit.
    pub fn measure(&self, workers_bytes: u64) -> MemoryUse {
        if self.elsewhere {
            return MemoryUse {
                resident_bytes: workers_bytes,
                pressure: 0.0,
            };
        }
        let confined = self.cgroup.iter().flat_map(|cgroup| {
            let levels = cgroup.levels().iter();
            levels.filter_map(|level| free(cgroup, level))
        });
        let whole = self.host.meminfo_bytes("MemAvailable:");
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
}

/// What is left below the limit of a level; `None` without a limit.
fn free(cgroup: &Cgroup, level: &Path) -> Option<u64> {
    let limit = cgroup.memory_limit_bytes_at(level)?;
    let stat = fs::read_to_string(level.join("memory.stat")).ok()?;
    Some(limit.saturating_sub(resident(&stat, cgroup.version())))
}

/// What cannot be reclaimed, from `memory.stat` of a cgroup and those below it.
///
/// The first version does not show apart what the kernel holds, most of which it can reclaim.
fn resident(stat: &str, version: CgroupVersion) -> u64 {
    let names: &[&str] = match version {
        CgroupVersion::One => &["total_rss", "total_shmem"],
        CgroupVersion::Two => &[
            "anon",
            "shmem",
            "kernel_stack",
            "pagetables",
            "slab_unreclaimable",
        ],
    };
    names.iter().filter_map(|name| field(stat, name)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_this_machine_does_not_bound_workers_elsewhere() {
        let memory = Memory::find(&Host::default()).limited(1 << 60).elsewhere();
        assert_eq!(memory.limit_bytes(), 1 << 60);
        assert_eq!(
            memory.measure(7),
            MemoryUse {
                resident_bytes: 7,
                pressure: 0.0
            }
        );
    }

    #[test]
    fn cache_does_not_count_as_in_use() {
        let first =
            "cache 900\nrss 5\ntotal_cache 900\ntotal_rss 100\ntotal_rss_huge 7\ntotal_shmem 20\n";
        assert_eq!(resident(first, CgroupVersion::One), 120);
        let second = "anon 100\nfile 900\nkernel 50\nkernel_stack 1\npagetables 2\nshmem 20\nanon_thp 8\n\
            slab_reclaimable 9\nslab_unreclaimable 4\n";
        assert_eq!(resident(second, CgroupVersion::Two), 127);
    }
}
