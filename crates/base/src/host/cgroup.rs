//! The cgroup of this process in one hierarchy, with those above it.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// From this value on there is no limit: the first version writes none as the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 60;

/// The version of a hierarchy, which decides its file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// A hierarchy for some controllers.
    One,
    /// The unified one.
    Two,
}

/// The cgroup of this process in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    version: CgroupVersion,
    levels: Vec<PathBuf>,
    is_visible: bool,
}

impl Cgroup {
    /// Find it by the text of `self/mountinfo` and of `self/cgroup`: in the hierarchy of the first version that has
    /// `controller`, without one in that of the second.
    ///
    /// A hierarchy may be mounted at several places, each of which may show a part of it: one that shows the process's
    /// own cgroup comes first.
    pub(super) fn find(mountinfo: &str, own: &str, controller: Option<&str>) -> Option<Self> {
        let path = path_of(own, controller)?;
        let mounts = mountinfo
            .lines()
            .filter_map(Mount::read)
            .filter(|mount| mount.has(controller));
        let mut shown: Vec<Self> = mounts.map(|mount| mount.cgroup(path)).collect();
        let best = shown.iter().position(|cgroup| cgroup.is_visible);
        (!shown.is_empty()).then(|| shown.swap_remove(best.unwrap_or(0)))
    }

    /// Whose file names its directories have.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// The directories from the process's own cgroup up to the mount, which is the last one.
    pub fn levels(&self) -> &[PathBuf] {
        &self.levels
    }

    /// Whether the first level is the process's own cgroup. A container may see another part of the hierarchy: then
    /// the mount stands for it.
    pub fn is_visible(&self) -> bool {
        self.is_visible
    }

    /// The smallest memory limit of its levels.
    pub fn memory_limit_bytes(&self) -> Option<u64> {
        let limits = self.levels.iter();
        limits
            .filter_map(|level| self.memory_limit_bytes_at(level))
            .min()
    }

    /// The memory limit that is set at one of its levels. `None` without one: `max`, no such file, or one that cannot
    /// be read.
    pub fn memory_limit_bytes_at(&self, level: &Path) -> Option<u64> {
        let name = match self.version {
            CgroupVersion::One => "memory.limit_in_bytes",
            CgroupVersion::Two => "memory.max",
        };
        let text = fs::read_to_string(level.join(name)).ok()?;
        text.trim().parse().ok().filter(|&limit| limit < NO_LIMIT)
    }
}

/// One mounted hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The cgroup at the mount point.
    root: String,
    point: PathBuf,
    version: CgroupVersion,
    controllers: Vec<String>,
}

impl Mount {
    /// Read a line of `mountinfo`; `None` for another file system.
    fn read(line: &str) -> Option<Self> {
        let (before, behind) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut behind = behind.split(' ');
        let version = match behind.next()? {
            "cgroup" => CgroupVersion::One,
            "cgroup2" => CgroupVersion::Two,
            _ => return None,
        };
        let controllers = match version {
            CgroupVersion::One => behind.nth(1)?.split(',').map(str::to_owned).collect(),
            CgroupVersion::Two => Vec::new(),
        };
        Some(Self {
            root: unescaped(root),
            point: PathBuf::from(unescaped(point)),
            version,
            controllers,
        })
    }

    fn has(&self, controller: Option<&str>) -> bool {
        match controller {
            Some(controller) => self.controllers.iter().any(|one| one == controller),
            None => self.version == CgroupVersion::Two,
        }
    }

    /// The levels from the cgroup `path` up to the mount.
    fn cgroup(&self, path: &str) -> Cgroup {
        let is_outside =
            |below: &&Path| below.components().any(|part| part == Component::ParentDir);
        let below = Path::new(path).strip_prefix(&self.root).ok();
        let below = below.filter(|below| !is_outside(below)); // seen from another namespace
        let own = self.point.join(below.unwrap_or(Path::new("")));
        let levels = own
            .ancestors()
            .take_while(|level| level.starts_with(&self.point));
        Cgroup {
            version: self.version,
            // Made again from its parts: without the slash at the end that joining an empty path leaves.
            levels: levels.map(|level| level.components().collect()).collect(),
            is_visible: below.is_some(),
        }
    }
}

/// The cgroup in the line of `controller`, or in that of the second version.
fn path_of<'a>(own: &'a str, controller: Option<&str>) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, listed, path) = (fields.next()?, fields.next()?, fields.next()?);
        let here = match controller {
            Some(controller) => listed.split(',').any(|one| one == controller),
            None => number == "0" && listed.is_empty(),
        };
        here.then_some(path)
    })
}

/// Decodes the octal escapes of spaces and the like: `\040`.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..3)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        if let Some(code) = code {
            plain.push(char::from(code));
            plain.push_str(&part[3..]);
        } else {
            plain.push('\\');
            plain.push_str(part);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with both versions, the memory controller in the first.
    const HYBRID: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
        22 1 0:3 / /proc rw - proc proc rw\n";
    const IN_HYBRID: &str = "5:memory:/a/b\n4:cpu,cpuacct:/c\n1:name=systemd:/x\n0::/u:v\n";
    /// A container that sees its own part alone.
    const BOUND: &str = "24 1 0:22 /docker/12 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";

    fn levels(mountinfo: &str, own: &str, controller: Option<&str>) -> Vec<String> {
        let found = Cgroup::find(mountinfo, own, controller);
        let levels = found.map_or(Vec::new(), |cgroup| cgroup.levels);
        let texts = levels.iter().map(|level| level.display().to_string());
        texts.collect()
    }

    #[test]
    fn each_controller_has_its_hierarchy_and_the_levels_go_up_to_its_mount() {
        let memory = levels(HYBRID, IN_HYBRID, Some("memory"));
        let top = "/sys/fs/cgroup/memory";
        let expected = [format!("{top}/a/b"), format!("{top}/a"), top.to_owned()];
        assert_eq!(memory, expected);
        let cpu = levels(HYBRID, IN_HYBRID, Some("cpu"));
        assert_eq!(cpu[0], "/sys/fs/cgroup/cpu,cpuacct/c");
        let unified = levels(HYBRID, IN_HYBRID, None);
        let expected = ["/sys/fs/cgroup/unified/u:v", "/sys/fs/cgroup/unified"];
        assert_eq!(unified, expected);
        assert_eq!(Cgroup::find(HYBRID, IN_HYBRID, Some("pids")), None);
        assert_eq!(Cgroup::find(HYBRID, "4:memory:/x\n", None), None);
        assert_eq!(Cgroup::find("", IN_HYBRID, Some("memory")), None);
    }

    #[test]
    fn in_the_root_the_mount_is_the_only_level() {
        let found = Cgroup::find(HYBRID, "0::/\n", None).expect("mounted");
        assert_eq!(found.levels(), [Path::new("/sys/fs/cgroup/unified")]);
        assert_eq!(found.levels()[0].as_os_str(), "/sys/fs/cgroup/unified");
        assert!(found.is_visible());
    }

    #[test]
    fn a_container_sees_its_own_cgroup_at_the_mount() {
        let find = |path: &str| Cgroup::find(BOUND, &format!("0::{path}\n"), None);
        for (path, is_visible) in [
            ("/docker/12", true),
            ("/elsewhere", false),
            ("/docker/123", false),
            ("/docker/12/../other", false),
            ("/../../other", false),
        ] {
            let found = find(path).expect("mounted");
            assert_eq!(found.levels(), [Path::new("/sys/fs/cgroup")], "{path}");
            assert_eq!(found.is_visible(), is_visible, "{path}");
        }
        let below = find("/docker/12/server").expect("mounted");
        assert_eq!(below.levels()[0], Path::new("/sys/fs/cgroup/server"));
    }

    #[test]
    fn of_several_mounts_that_with_the_own_cgroup_counts() {
        let mounts = format!("{BOUND}25 1 0:22 / /host/cgroup ro - cgroup2 cgroup rw\n");
        let find = |own| levels(&mounts, own, None)[0].clone();
        assert_eq!(find("0::/other\n"), "/host/cgroup/other");
        assert_eq!(find("0::/docker/12/x\n"), "/sys/fs/cgroup/x");
    }

    #[test]
    fn spaces_in_a_path_are_read() {
        assert_eq!(unescaped(r"/a\040b\134c"), r"/a b\c");
        assert_eq!(unescaped(r"/a\x"), r"/a\x");
    }
}
