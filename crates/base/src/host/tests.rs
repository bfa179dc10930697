//! The memory limit in made-up trees of both versions.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

const MACHINE_BYTES: u64 = 8_000_000 * 1024;
/// What the first version writes where there is no limit.
const NONE_IN_FIRST: &str = "9223372036854771712\n";

/// A `/proc` and cgroup trees of one test, removed at its end.
struct Tree(PathBuf);

impl Tree {
    /// With these mounts, point and kind of each, and this text of `self/cgroup`.
    fn new(mounts: &[(&str, &str)], own: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("base-host-{}-{number}", std::process::id());
        let tree = Self(std::env::temp_dir().join(name));
        let root = tree.0.display();
        let line = |(point, kind): &(&str, &str)| format!("9 8 0:1 / {root}/{point} rw - {kind}\n");
        let mounts = mounts.iter().map(line).collect::<String>();
        tree.put("proc/self/mountinfo", &mounts)
            .put("proc/self/cgroup", own)
            .put("proc/meminfo", "MemFree: 5 kB\nMemTotal:  8000000 kB\n")
    }

    fn put(self, path: &str, text: &str) -> Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(path, text).expect("written");
        self
    }

    fn limit(&self) -> Option<u64> {
        Host::at(self.0.join("proc")).memory_limit_bytes()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The second version alone.
fn unified(own: &str) -> Tree {
    Tree::new(&[("u", "cgroup2 cgroup2 rw")], own)
}

/// The memory controller in the first version, and a hierarchy of the second without it.
fn hybrid(own: &str) -> Tree {
    let mounts = [
        ("memory", "cgroup cgroup rw,memory"),
        ("u", "cgroup2 cgroup2 rw"),
    ];
    Tree::new(&mounts, own)
}

#[test]
fn without_cgroups_the_machine_is_the_limit() {
    assert_eq!(Tree::new(&[], "").limit(), Some(MACHINE_BYTES));
    assert_eq!(unified("0::/a\n").limit(), Some(MACHINE_BYTES));
}

#[test]
fn the_smallest_limit_above_counts_in_the_second_version() {
    let tree = unified("0::/pod/box\n")
        .put("u/pod/memory.max", "3000000000\n")
        .put("u/pod/box/memory.max", "4000000000\n");
    assert_eq!(tree.limit(), Some(3_000_000_000));
    let tree = tree.put("u/pod/box/memory.max", "2000000000\n");
    assert_eq!(tree.limit(), Some(2_000_000_000));
    let tree = tree.put("u/pod/box/memory.max", "max\n");
    assert_eq!(tree.limit(), Some(3_000_000_000));
    let tree = tree.put("u/pod/memory.max", "max\n");
    assert_eq!(tree.limit(), Some(MACHINE_BYTES));
}

#[test]
fn the_smallest_limit_above_counts_in_the_first_version() {
    let tree = hybrid("5:memory:/a/b\n0::/\n")
        .put("memory/memory.limit_in_bytes", NONE_IN_FIRST)
        .put("memory/a/memory.limit_in_bytes", "786432000\n")
        .put("memory/a/b/memory.limit_in_bytes", NONE_IN_FIRST);
    assert_eq!(tree.limit(), Some(786_432_000));
    let tree = tree.put("memory/a/b/memory.limit_in_bytes", "1000\n");
    assert_eq!(tree.limit(), Some(1_000));
}

#[test]
fn in_a_hybrid_the_second_version_counts_where_the_first_has_no_memory() {
    let mounts = [
        ("cpu", "cgroup cgroup rw,cpu,cpuacct"),
        ("u", "cgroup2 cgroup2 rw"),
    ];
    let tree = Tree::new(&mounts, "4:cpu,cpuacct:/a\n0::/b\n").put("u/b/memory.max", "5000\n");
    assert_eq!(tree.limit(), Some(5_000));
    // The controller of the first version is mounted, and turned off by the kernel's command line.
    let tree = hybrid("0::/b\n").put("u/b/memory.max", "6000\n");
    assert_eq!(tree.limit(), Some(6_000));
}

#[test]
fn a_limit_above_the_machines_memory_is_none() {
    let tree = unified("0::/\n").put("u/memory.max", "99000000000000\n");
    assert_eq!(tree.limit(), Some(MACHINE_BYTES));
}

#[test]
fn what_cannot_be_read_sets_no_limit_and_hides_none() {
    let tree = unified("0::/pod/box\n")
        .put("u/pod/memory.max", "3000000000\n")
        .put("u/pod/box/memory.max", "much\n");
    assert_eq!(tree.limit(), Some(3_000_000_000));
    let tree = tree.put("proc/meminfo", "MemTotal: many kB\n");
    assert_eq!(tree.limit(), Some(3_000_000_000));
    let tree = tree.put("proc/self/mountinfo", "nonsense\n- -\n");
    assert_eq!(tree.limit(), None);
    // A directory has the name of the file.
    let tree = unified("0::/\n").put("u/memory.max/file", "");
    assert_eq!(tree.limit(), Some(MACHINE_BYTES));
    assert_eq!(Host::at("/nowhere").memory_limit_bytes(), None);
}

#[test]
fn this_machine_has_memory() {
    let limit = Host::default().memory_limit_bytes().expect("procfs");
    let total = Host::default().meminfo_bytes("MemTotal:").expect("procfs");
    assert!(limit > 1 << 20 && limit <= total, "{limit} of {total}");
}

#[test]
fn a_field_is_found_by_its_whole_name() {
    assert_eq!(field("anon_thp 8\nanon 7\n", "anon"), Some(7));
    let meminfo = "MemTotal:       24684084 kB\n";
    assert_eq!(field(meminfo, "MemTotal:"), Some(24_684_084));
    assert_eq!(field("anon x\n", "anon"), None);
    let events = "low 0\noom 7\noom_kill 2\noom_group_kill 1\n";
    assert_eq!(field(events, "oom_kill"), Some(2));
    assert_eq!(field(events, "max"), None);
}
