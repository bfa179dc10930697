//! The limits of this server: cores, memory, how the kernel ends what exceeds them.

use std::fs;
use std::path::Path;

use forebay_base::host::{CgroupVersion, Host};
use rustix::thread::sched_getaffinity;

use super::memory::Memory;
use crate::limit::{LOW_RESOURCE_BYTES, LOW_RESOURCE_CORES_MILLI};

/// The limits, read once at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Thousandths of a core: those of the affinity, or the smallest CPU quota above this process.
    pub cores_milli: u32,
    /// The smallest limit above this process, the machine's memory included.
    pub memory_bytes: u64,
    /// A cgroup sets the limit, not the machine's memory.
    pub is_confined: bool,
    /// The kernel ends all processes of a cgroup at once (`memory.oom.group`): keep more free.
    pub ends_as_group: bool,
    /// Less than 2 GB, or at most one core: nothing unneeded stays resident.
    pub low_resource: bool,
}

impl Limits {
    /// The limits of this process.
    pub fn find() -> Self {
        Self::find_at(&Host::default())
    }

    /// The limits of this process according to another `/proc`.
    pub fn find_at(host: &Host) -> Self {
        let memory = Memory::find(host);
        let cores_milli =
            quota_milli(host).map_or(affinity_milli(), |quota| quota.min(affinity_milli()));
        Self {
            cores_milli,
            memory_bytes: memory.limit_bytes(),
            is_confined: memory.is_confined(),
            ends_as_group: memory.ends_as_group(),
            low_resource: memory.limit_bytes() < LOW_RESOURCE_BYTES
                || cores_milli <= LOW_RESOURCE_CORES_MILLI,
        }
    }
}

/// Cores that this process may run on; the affinity includes the cpusets of cgroups.
fn affinity_milli() -> u32 {
    sched_getaffinity(None)
        .map_or(1, |cores| cores.count().max(1))
        .saturating_mul(1_000)
}

/// The smallest CPU quota above this process.
fn quota_milli(host: &Host) -> Option<u32> {
    let cgroup = host.cgroup("cpu")?;
    let quota = |level: &std::path::PathBuf| match cgroup.version() {
        CgroupVersion::One => first_quota(level),
        CgroupVersion::Two => second_quota(&fs::read_to_string(level.join("cpu.max")).ok()?),
    };
    cgroup.levels().iter().filter_map(quota).min()
}

fn first_quota(level: &Path) -> Option<u32> {
    let read = |name| {
        fs::read_to_string(level.join(name))
            .ok()?
            .trim()
            .parse::<i64>()
            .ok()
    };
    milli(
        u64::try_from(read("cpu.cfs_quota_us")?).ok()?,
        u64::try_from(read("cpu.cfs_period_us")?).ok()?,
    )
}

fn second_quota(text: &str) -> Option<u32> {
    let mut words = text.split_ascii_whitespace();
    let quota = words.next()?.parse().ok()?; // "max": no quota
    milli(quota, words.next()?.parse().ok()?)
}

fn milli(quota_us: u64, period_us: u64) -> Option<u32> {
    let milli = quota_us.checked_mul(1_000)?.checked_div(period_us)?;
    u32::try_from(milli.max(1)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_thousandths_of_a_core() {
        assert_eq!(second_quota("50000 100000\n"), Some(500));
        assert_eq!(second_quota("250000 100000\n"), Some(2_500));
        for none in ["max 100000\n", "", "50000", "1 0"] {
            assert_eq!(second_quota(none), None, "{none}");
        }
    }
}
