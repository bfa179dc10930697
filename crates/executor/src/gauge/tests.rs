//! The gauge against made-up trees of both versions, against real cgroups, and against real processes.

use super::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU32;

use forebay_base::host::{CgroupVersion, Host};

use crate::limit::READINGS_MAX;

/// A `/proc` and cgroup trees of this test's own.
struct Tree(PathBuf);

impl Tree {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-gauge-{}-{number}", std::process::id());
        let tree = Self(std::env::temp_dir().join(name));
        tree.put(
            "proc/meminfo",
            "MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\n",
        );
        tree
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
        fs::write(path, text).expect("write");
    }

    fn mounts(&self, lines: &[(&str, &str)], own: &str) {
        let root = self.0.display();
        let lines = lines
            .iter()
            .map(|(point, kind)| format!("9 8 0:1 / {root}/{point} rw - {kind}\n"));
        self.put("proc/self/mountinfo", &lines.collect::<String>());
        self.put("proc/self/cgroup", own);
    }

    fn host(&self) -> Host {
        Host::at(self.0.join("proc"))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn without_cgroups_the_machine_is_the_limit() {
    let tree = Tree::new();
    let memory = Memory::find(&tree.host());
    assert_eq!(memory.limit_bytes(), 8_000_000 * 1024);
    assert_eq!(memory.measure(0).resident_bytes, 2_000_000 * 1024);
    let limits = Limits::find_at(&tree.host());
    assert!(!limits.is_confined && !limits.ends_as_group);
}

#[test]
fn a_limit_of_the_workers_own_counts_what_they_have() {
    let tree = Tree::new();
    let own = Memory::find(&tree.host()).limited(1_000_000_000);
    assert_eq!(own.limit_bytes(), 1_000_000_000);
    assert_eq!(
        own.measure(0).resident_bytes,
        0,
        "what others have is not theirs"
    );
    assert_eq!(own.measure(300_000_000).resident_bytes, 300_000_000);
    tree.put(
        "proc/meminfo",
        "MemTotal: 8000000 kB\nMemAvailable: 100000 kB\n",
    );
    assert_eq!(
        own.measure(0).resident_bytes,
        1_000_000_000 - 102_400_000,
        "but the machine has less left"
    );
    let above = Memory::find(&tree.host()).limited(99_000_000_000);
    assert_eq!(
        above.measure(5).resident_bytes,
        99_000_000_000 - 102_400_000
    );
}

#[test]
fn the_first_version_is_read_with_its_nested_limits() {
    let tree = Tree::new();
    let none = "9223372036854771712\n";
    tree.mounts(
        &[
            ("memory", "cgroup cgroup rw,memory"),
            ("cpu", "cgroup cgroup rw,cpu,cpuacct"),
            ("u", "cgroup2 cgroup2 rw"),
        ],
        "5:memory:/a/b\n4:cpu,cpuacct:/a\n0::/\n",
    );
    tree.put("memory/memory.limit_in_bytes", none);
    tree.put("memory/a/memory.limit_in_bytes", "786432000\n");
    tree.put(
        "memory/a/memory.stat",
        "total_cache 700000000\ntotal_rss 500000000\ntotal_shmem 1\n",
    );
    tree.put("memory/a/b/memory.limit_in_bytes", none);
    tree.put("cpu/a/cpu.cfs_quota_us", "50000\n");
    tree.put("cpu/a/cpu.cfs_period_us", "100000\n");
    tree.put("cpu/cpu.cfs_quota_us", "-1\n");
    let limits = Limits::find_at(&tree.host());
    let expected = Limits {
        cores_milli: 500,
        memory_bytes: 786_432_000,
        is_confined: true,
        ends_as_group: false,
        low_resource: true,
    };
    assert_eq!(limits, expected);
    assert_eq!(
        Memory::find(&tree.host()).measure(0).resident_bytes,
        500_000_001
    );
}

#[test]
fn the_second_version_is_read_and_the_tightest_level_decides() {
    let tree = Tree::new();
    tree.mounts(&[("u", "cgroup2 cgroup2 rw")], "0::/pod/box\n");
    tree.put("u/pod/memory.max", "4000000000\n");
    tree.put("u/pod/memory.stat", "anon 3900000000\nfile 100\n");
    tree.put("u/pod/memory.oom.group", "1\n");
    tree.put("u/pod/cpu.max", "max 100000\n");
    tree.put("u/pod/box/memory.max", "3000000000\n");
    tree.put(
        "u/pod/box/memory.stat",
        "anon 1000000000\nfile 1500000000\n",
    );
    tree.put("u/pod/box/cpu.max", "10000 100000\n");
    tree.put(
        "u/pod/box/memory.pressure",
        "some avg10=40.00 avg60=1 avg300=1 total=5\n",
    );
    let limits = Limits::find_at(&tree.host());
    assert_eq!(
        (limits.memory_bytes, limits.cores_milli),
        (3_000_000_000, 100)
    );
    assert!(limits.ends_as_group && limits.low_resource);
    // 100 MB are left to the pod, though its box has 2 GB: told as of the box's limit.
    let measured = Memory::find(&tree.host()).measure(0);
    assert_eq!(measured.resident_bytes, 2_900_000_000);
    assert!((measured.pressure - 0.4).abs() < 1e-6);
}

#[test]
fn a_limit_above_what_the_machine_has_is_none() {
    let tree = Tree::new();
    tree.mounts(&[("u", "cgroup2 cgroup2 rw")], "0::/\n");
    tree.put("u/memory.max", "99000000000000\n");
    tree.put("u/memory.stat", "anon 5\n");
    let memory = Memory::find(&tree.host());
    assert_eq!(memory.limit_bytes(), 8_000_000 * 1024);
    assert!(!memory.is_confined());
    assert_eq!(memory.measure(0).resident_bytes, 2_000_000 * 1024);
}

/// A process that touches memory when told to, and holds it.
struct Eater(Child);

impl Eater {
    /// In a cgroup, if one is given.
    fn start(group: Option<&Path>) -> Self {
        let enter = group.map_or(String::new(), |group| {
            format!("echo 0 > {}/cgroup.procs; ", group.display())
        });
        // The shell holds 40 MB in a variable: its own, private, and touched.
        let script = format!(
            "{enter}read go; x=$(head -c 40000000 /dev/zero | tr '\\0' x); echo ${{#x}}; read end"
        );
        let mut command = Command::new("bash");
        let command = command
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Self(command.spawn().expect("bash starts"))
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a pid")
    }

    fn eat(&mut self) {
        use std::io::{BufRead, BufReader, Write};
        self.0
            .stdin
            .as_mut()
            .expect("piped")
            .write_all(b"go\n")
            .expect("written");
        let mut answer = String::new();
        BufReader::new(self.0.stdout.as_mut().expect("piped"))
            .read_line(&mut answer)
            .expect("read");
        assert_eq!(answer.trim(), "40000000");
    }
}

impl Drop for Eater {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cgroup with a limit, where we may make one.
struct Group(PathBuf);

impl Group {
    /// With `limit` in `files`, which are those of the first and the second version.
    fn make(controller: &str, files: [&str; 2], limits: [&str; 2]) -> Self {
        let cgroup = Host::default().cgroup(controller).expect("a controller");
        let name = format!("forebay-gauge-{controller}-{}", std::process::id());
        let group = Self(cgroup.levels().last().expect("a level").join(name));
        fs::create_dir(&group.0).expect("a control group can be made");
        let version = usize::from(cgroup.version() == CgroupVersion::Two);
        fs::write(group.0.join(files[version]), limits[version]).expect("a limit can be set");
        group
    }

    /// Seen as if this process were in it: `self` in `/proc` tells so.
    fn seen_from_within(&self, controller: &str) -> Tree {
        let tree = Tree::new();
        for name in ["self/mountinfo", "meminfo"] {
            let text = fs::read_to_string(Path::new("/proc").join(name)).expect("read");
            tree.put(&format!("proc/{name}"), &text);
        }
        let name = self
            .0
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        tree.put(
            "proc/self/cgroup",
            &format!("4:{controller}:/{name}\n0::/{name}\n"),
        );
        tree
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

mod in_cgroup {
    use super::*;

    #[test]
    #[ignore = "makes a control group, which needs root: sudo make test"]
    fn a_real_cgroup_is_found_and_what_is_touched_in_it_is_seen() {
        let files = ["memory.limit_in_bytes", "memory.max"];
        let group = Group::make("memory", files, ["200000000"; 2]);
        let mut eater = Eater::start(Some(&group.0));
        let tree = group.seen_from_within("memory");
        let memory = Memory::find(&tree.host());
        assert!(
            (199_000_000..=200_000_000).contains(&memory.limit_bytes()),
            "{}",
            memory.limit_bytes()
        );
        assert!(memory.is_confined());
        let before = memory.measure(0).resident_bytes;
        eater.eat();
        let after = memory.measure(0).resident_bytes;
        assert!(
            after > before + 30_000_000,
            "{before} before, {after} after"
        );
        drop(eater);
    }

    #[test]
    #[ignore = "makes a control group, which needs root: sudo make test"]
    fn a_real_cpu_quota_is_found() {
        let files = ["cpu.cfs_quota_us", "cpu.max"];
        let group = Group::make("cpu", files, ["50000", "50000 100000"]);
        let limits = Limits::find_at(&group.seen_from_within("cpu").host());
        assert_eq!(limits.cores_milli, 500);
        assert!(limits.low_resource);
    }
}

/// The first reading that `wanted` takes, within a minute.
fn reading<T>(readings: &Queue<Reading>, mut wanted: impl FnMut(Reading) -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    let mut batch = Vec::new();
    while Instant::now() < until {
        let mut polled = [rustix::event::PollFd::new(
            readings,
            rustix::event::PollFlags::IN,
        )];
        let second = rustix::event::Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut polled, Some(&second)).expect("poll");
        readings.drain(&mut batch).expect("drain");
        if let Some(found) = batch.drain(..).find_map(&mut wanted) {
            return found;
        }
    }
    panic!("no such reading within a minute");
}

#[test]
fn a_watched_worker_is_seen_growing_and_a_dead_one_is_not_seen() {
    let readings = Arc::new(Queue::new(READINGS_MAX).expect("a queue"));
    let memory = Memory::find(&Host::default());
    let gauge = Gauge::start(memory, Arc::clone(&readings)).expect("a thread");
    let mut eater = Eater::start(None);
    let pid = eater.pid();
    let above = |least| {
        move |reading| match reading {
            Reading::Worker {
                slot: 3,
                pid: seen,
                private_bytes,
            } if private_bytes > least => {
                assert_eq!(seen, pid);
                Some(private_bytes)
            }
            _ => None,
        }
    };
    gauge.watch(3, pid);
    let before = reading(&readings, above(0));
    gauge.pace(true);
    eater.eat();
    let after = reading(&readings, above(before + 30_000_000));
    assert!(after < before + 300_000_000);
    drop(eater);
    gauge.measure(3);
    gauge.unwatch(3);
    gauge.watch(4, i32::try_from(std::process::id()).expect("a pid"));
    reading(&readings, |reading| {
        matches!(reading, Reading::Worker { slot: 4, .. }).then_some(())
    });
}

#[test]
fn a_reading_from_before_a_worker_was_gone_is_not_current() {
    let readings = Arc::new(Queue::new(READINGS_MAX).expect("a queue"));
    let gauge = Gauge::start(Memory::find(&Host::default()), Arc::clone(&readings));
    let gauge = gauge.expect("a thread");
    let of_machine = |found| match found {
        Reading::Machine { gone, .. } => Some(gone),
        Reading::Worker { .. } => None,
    };
    gauge.pace(true);
    let before = reading(&readings, of_machine);
    assert!(gauge.is_current(before));
    gauge.unwatch(3);
    assert!(!gauge.is_current(before));
    let newer = |found| of_machine(found).filter(|&gone| gauge.is_current(gone));
    reading(&readings, newer);
}

#[test]
fn the_pace_follows_what_runs_and_what_measuring_costs() {
    let shared = Shared {
        orders: Mutex::default(),
        woken: Condvar::new(),
        busy: AtomicBool::new(true),
        was_busy: AtomicBool::new(false),
        fast: AtomicBool::new(false),
        gone: AtomicU64::new(0),
    };
    let idle = Duration::from_millis(GAUGE_IDLE_MS);
    let long_ago = || {
        Instant::now()
            .checked_sub(2 * idle)
            .expect("the clock runs")
    };
    let cheap = Duration::from_micros(100);
    assert_eq!(
        shared.pause(cheap, &mut long_ago()).as_millis(),
        u128::from(GAUGE_BUSY_MS)
    );
    shared.busy.store(false, Ordering::Relaxed);
    assert_eq!(shared.pause(cheap, &mut long_ago()), idle);
    shared.was_busy.store(true, Ordering::Relaxed);
    assert_eq!(
        shared.pause(cheap, &mut long_ago()).as_millis(),
        u128::from(GAUGE_BUSY_MS)
    );
    let dear = Duration::from_millis(200);
    assert_eq!(
        shared.pause(dear, &mut long_ago()),
        dear * (GAUGE_SHARE - 1)
    );
}

#[test]
fn memory_of_this_machine_is_measured() {
    let machine = Memory::find(&Host::default());
    let measured = machine.measure(0);
    assert!(measured.resident_bytes > 0 && measured.resident_bytes < machine.limit_bytes());
    assert!((0.0..=1.0).contains(&measured.pressure));
    assert!(Limits::find().cores_milli >= 1);
}
