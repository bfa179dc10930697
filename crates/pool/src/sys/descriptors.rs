//! What a new keeper inherits and does not want.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::{FdFlags, fcntl_setfd};

use crate::error::{Error, Result};

/// Close every descriptor above stderr but `wanted`, and let no program that is started inherit those.
///
/// To be called before anything else is opened.
pub fn close_inherited(wanted: &[&OwnedFd]) -> Result<()> {
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
        fcntl_setfd(descriptor, FdFlags::CLOEXEC).map_err(Error::system("fcntl(F_SETFD)"))?;
    }
    Ok(())
}

/// Fails only where the range is empty.
fn close_range(first: i32, last: i32) {
    // SAFETY: the descriptors between those that are wanted are owned by nobody in this process:
    // it has only begun, and inherited them by mistake.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}
