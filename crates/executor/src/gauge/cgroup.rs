//! The cgroups of this process, in both versions.
//!
//! Sources: cgroups(7), proc(5) on `mountinfo`, "Control Group v2" of the kernel's documentation.

use std::fs;
use std::path::{Path, PathBuf};

/// The path of `/proc`, which only tests change.
#[derive(Clone, Debug)]
pub struct Host {
    pub proc: PathBuf,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            proc: PathBuf::from("/proc"),
        }
    }
}

/// The version of a hierarchy, which decides its file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// The directories of one hierarchy from this process's cgroup up to the mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestry {
    pub version: Version,
    /// The process's own cgroup first.
    pub levels: Vec<PathBuf>,
}

/// One mounted hierarchy.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    /// The cgroup at the mount point.
    root: String,
    point: PathBuf,
    version: Version,
    controllers: Vec<String>,
}

impl Host {
    /// The text of a file in `/proc`; empty if it is missing.
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.proc.join(name)).unwrap_or_default()
    }

    /// The cgroup of this process in the hierarchy with `controller`. A controller is in at most one: in one of the
    /// first version if it is mounted there, else in that of the second.
    pub fn ancestry(&self, controller: &str) -> Option<Ancestry> {
        let mounts = mounts(&self.text("self/mountinfo"));
        let own = self.text("self/cgroup");
        let first = mounts
            .iter()
            .find(|mount| mount.controllers.iter().any(|one| one == controller));
        if let Some(mount) = first {
            return Some(levels(mount, path_of(&own, Some(controller))?));
        }
        let ancestry = self.unified()?;
        let listed = ancestry
            .levels
            .last()
            .map(|root| root.join("cgroup.controllers"));
        let listed = listed.and_then(|file| fs::read_to_string(file).ok())?;
        listed
            .split_ascii_whitespace()
            .any(|one| one == controller)
            .then_some(ancestry)
    }

    /// The cgroup of this process in the hierarchy of the second version, with or without controllers.
    pub fn unified(&self) -> Option<Ancestry> {
        let mounts = mounts(&self.text("self/mountinfo"));
        let mount = mounts.iter().find(|mount| mount.version == Version::Two)?;
        let own = self.text("self/cgroup");
        Some(levels(mount, path_of(&own, None)?))
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

/// The levels from the cgroup `path` up to the mount. In a container the mount may show a part of the hierarchy: a path
/// that is not below it stands for the mount point itself.
fn levels(mount: &Mount, path: &str) -> Ancestry {
    let below = Path::new(path)
        .strip_prefix(&mount.root)
        .unwrap_or(Path::new(""));
    let below = if below
        .components()
        .any(|part| part == std::path::Component::ParentDir)
    {
        Path::new("") // seen from another namespace
    } else {
        below
    };
    let own = mount.point.join(below);
    let levels = own
        .ancestors()
        .take_while(|level| level.starts_with(&mount.point));
    Ancestry {
        version: mount.version,
        levels: levels.map(Path::to_owned).collect(),
    }
}

fn mounts(mountinfo: &str) -> Vec<Mount> {
    mountinfo.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<Mount> {
    let (before, behind) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, point) = (before.next()?, before.next()?);
    let mut behind = behind.split(' ');
    let version = match behind.next()? {
        "cgroup" => Version::One,
        "cgroup2" => Version::Two,
        _ => return None,
    };
    let controllers = match version {
        Version::One => behind.nth(1)?.split(',').map(str::to_owned).collect(),
        Version::Two => Vec::new(),
    };
    Some(Mount {
        root: unescaped(root),
        point: PathBuf::from(unescaped(point)),
        version,
        controllers,
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

    const FIRST: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n\
        22 1 0:3 / /proc rw - proc proc rw\n";

    #[test]
    fn mounts_of_both_versions_are_found() {
        let mounts = mounts(FIRST);
        assert_eq!(mounts.len(), 3);
        assert!(mounts[1].controllers.contains(&"cpu".to_owned()));
        assert_eq!(mounts[2].version, Version::Two);
    }

    #[test]
    fn a_process_is_found_by_controller_and_by_version() {
        let own = "5:memory:/a/b\n4:cpu,cpuacct:/c\n1:name=systemd:/x\n0::/u:v\n";
        assert_eq!(path_of(own, Some("memory")), Some("/a/b"));
        assert_eq!(path_of(own, Some("cpu")), Some("/c"));
        assert_eq!(path_of(own, None), Some("/u:v"));
        assert_eq!(path_of(own, Some("pids")), None);
    }

    #[test]
    fn the_levels_go_up_to_the_mount_and_no_further() {
        let mounts = mounts(FIRST);
        let ancestry = levels(&mounts[0], "/a/b");
        let expected = [
            "/sys/fs/cgroup/memory/a/b",
            "/sys/fs/cgroup/memory/a",
            "/sys/fs/cgroup/memory",
        ];
        assert_eq!(ancestry.levels, expected.map(PathBuf::from));
    }

    #[test]
    fn a_container_sees_its_own_cgroup_at_the_mount() {
        let line = "9 8 0:1 /docker/12 /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        let mount = mount(line).expect("a mount");
        for path in ["/docker/12", "/elsewhere", "/../../other"] {
            assert_eq!(
                levels(&mount, path).levels,
                [PathBuf::from("/sys/fs/cgroup")],
                "{path}"
            );
        }
        let below = levels(&mount, "/docker/12/server").levels;
        assert_eq!(below[0], PathBuf::from("/sys/fs/cgroup/server"));
    }

    #[test]
    fn spaces_in_a_path_are_read() {
        assert_eq!(unescaped(r"/a\040b\134c"), r"/a b\c");
        assert_eq!(unescaped(r"/a\x"), r"/a\x");
    }
}
