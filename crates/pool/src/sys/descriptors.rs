//! The descriptors of a keeper: what it inherits and does not want, and how many it may have.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use rustix::io::{self, FdFlags, fcntl_setfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Close every descriptor above stderr but `wanted`, and let no program that is started inherit those.
///
/// To be called before anything else is opened.
pub fn close_inherited(wanted: &[&OwnedFd]) -> io::Result<()> {
    let mut numbers: Vec<i32> = wanted
        .iter()
        .map(|descriptor| descriptor.as_raw_fd())
        .collect();
    numbers.sort_unstable();
    let mut first = 3;
    for &number in &numbers {
        close_range(first, number - 1);
        first = number + 1;
    }
    close_range(first, i32::MAX);
    for descriptor in wanted {
        fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
    }
    Ok(())
}

/// Fails only where the range is empty.
fn close_range(first: i32, last: i32) {
    // SAFETY: the descriptors between those that are wanted are owned by nobody in this process:
    // it has only begun, and inherited them by mistake.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

static INHERITED: OnceLock<Rlimit> = OnceLock::new();

/// Let this process have as many descriptors as it may: four for each service. What it starts gets back what the
/// client had, because programs that use `select` break above 1,024.
pub fn raise_open_files() {
    let inherited = *INHERITED.get_or_init(|| getrlimit(Resource::Nofile));
    let current = inherited.maximum;
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current,
            ..inherited
        },
    ); // never above its maximum
}

/// Between fork and exec: as it was before `raise_open_files`.
pub fn restore_open_files() -> std::io::Result<()> {
    match INHERITED.get() {
        Some(&inherited) => Ok(setrlimit(Resource::Nofile, inherited)?),
        None => Ok(()),
    }
}

/// Which process this is, for messages, and how many descriptors it may have.
pub fn descriptors_max() -> (&'static str, u64) {
    let whose = if INHERITED.get().is_some() {
        "the keeper"
    } else {
        "this process"
    };
    let limit = getrlimit(Resource::Nofile).current;
    (whose, limit.unwrap_or(u64::MAX))
}
