//! How each limit of a service is enforced: by its cgroup where there is one, else by resource limits.
//!
//! | limit | cgroup | without one |
//! |---|---|---|
//! | memory | `memory.max`, no swap | `RLIMIT_DATA` of each process |
//! | cpu | `cpu.max` | not at all: `RLIMIT_CPU` counts seconds in all, not cores |
//! | open files | | `RLIMIT_NOFILE` |
//! | processes | `pids.max` | one alone: `RLIMIT_NPROC` counts all of the user's processes, so that 0 is the one useful value |

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::getuid;

use super::cgroup::{Controllers, Group, Groups};
use crate::confine::{Confinement, Limits};
use crate::error::{Error, Result};

/// Says where cgroups are made: a directory of a cgroup file system that is this user's; `off` for nowhere.
pub const CGROUP_VARIABLE: &str = "FOREBAY_POOL_CGROUP";

const NEXT: &str = "run the program in a cgroup of its own \
    (systemd-run --user --scope -p Delegate=yes PROGRAM), or give advisory=True to go without";

/// Enforces the limits of services; cgroups are looked for with the first limited one.
#[derive(Debug, Default)]
pub struct LimitEnforcer {
    looked: bool,
    groups: Option<Groups>,
}

impl LimitEnforcer {
    /// How a service is to confine itself, and the cgroup that was made for it.
    pub fn confine(&mut self, limits: &Limits) -> Result<(Confinement, Option<Group>)> {
        if !self.looked {
            self.groups = find()?;
            self.looked = true;
        }
        let groups = self.groups.as_mut();
        let offered = groups
            .as_ref()
            .map_or_else(Controllers::default, |groups| groups.controllers);
        let mut confinement = without_cgroup(limits, offered, getuid().is_root())?;
        let group = match groups {
            Some(groups) => Some(groups.make(limits).map_err(|source| Error::System {
                what: "cannot make a cgroup for the service".into(),
                source,
            })?),
            None => None,
        };
        if let Some(group) = &group {
            confinement.group = group.path().as_os_str().as_bytes().to_vec();
        }
        Ok((confinement, group))
    }

    /// Remove cgroups of services whose last processes have gone; false where some are left.
    pub fn tend(&self) -> bool {
        self.groups.iter().all(Groups::tend)
    }

    /// Whether there is something to tend.
    pub fn has_leftovers(&self) -> bool {
        self.groups.iter().any(Groups::has_leftovers)
    }
}

fn find() -> Result<Option<Groups>> {
    match std::env::var_os(CGROUP_VARIABLE) {
        None => Ok(Groups::find()),
        Some(value) if value == "off" => Ok(None),
        Some(base) => match Groups::create(Path::new(&base)) {
            Ok(groups) => Ok(Some(groups)),
            Err(source) => Err(Error::System {
                what: "no cgroup can be made in the directory that FOREBAY_POOL_CGROUP names"
                    .into(),
                source,
            }),
        },
    }
}

/// What is left to resource limits.
fn without_cgroup(limits: &Limits, offered: Controllers, root: bool) -> Result<Confinement> {
    let mut confinement = Confinement {
        open_files: limits.open_files,
        ..Confinement::default()
    };
    if !offered.memory {
        confinement.data_bytes = limits.memory_bytes;
    }
    let refuse = |limit, why| {
        if limits.advisory {
            return Ok(());
        }
        let next = NEXT;
        Err(Error::Unenforceable { limit, why, next })
    };
    if limits.cpu_millis > 0 && !offered.cpu {
        refuse("cpu", "no cgroup with a cpu controller can be written")?;
    }
    if limits.processes > 0 && !offered.pids {
        if limits.processes == 1 && !root {
            confinement.alone = true;
        } else {
            refuse(
                "processes",
                "no cgroup with a pids controller can be written, \
                 and RLIMIT_NPROC would count every process of the user",
            )?;
        }
    }
    Ok(confinement)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Controllers = Controllers {
        memory: true,
        cpu: true,
        pids: true,
    };
    const NONE: Controllers = Controllers {
        memory: false,
        cpu: false,
        pids: false,
    };
    const LIMITS: Limits = Limits {
        memory_bytes: 1 << 20,
        cpu_millis: 500,
        open_files: 64,
        processes: 8,
        advisory: false,
        stateful: false,
    };

    #[test]
    fn a_cgroup_takes_what_it_can() {
        let left = without_cgroup(&LIMITS, ALL, true).expect("all can be enforced");
        let expected = Confinement {
            open_files: 64,
            ..Confinement::default()
        };
        assert_eq!(left, expected);
    }

    #[test]
    fn without_one_memory_is_a_resource_limit_and_the_rest_is_refused() {
        let refused =
            |limits: Limits| without_cgroup(&limits, NONE, false).map_err(|e| e.to_string());
        let error = refused(LIMITS).expect_err("no cpu");
        assert!(
            error.starts_with("limit cpu cannot be enforced here"),
            "{error}"
        );
        let error = refused(Limits {
            cpu_millis: 0,
            ..LIMITS
        })
        .expect_err("no pids");
        assert!(error.starts_with("limit processes cannot"), "{error}");

        let advisory = Limits {
            advisory: true,
            ..LIMITS
        };
        let left = without_cgroup(&advisory, NONE, false).expect("as far as it goes");
        assert_eq!(
            (left.data_bytes, left.open_files, left.alone),
            (1 << 20, 64, false)
        );
    }

    #[test]
    fn one_process_alone_can_be_enforced_except_for_root() {
        let alone = Limits {
            cpu_millis: 0,
            processes: 1,
            ..LIMITS
        };
        assert!(without_cgroup(&alone, NONE, false).expect("no other").alone);
        assert!(
            without_cgroup(&alone, NONE, true).is_err(),
            "root is not held to it"
        );
    }
}
