//! Signalling a process group through a pidfd.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};

/// `PIDFD_SIGNAL_PROCESS_GROUP` of `pidfd_send_signal(2)`, Linux 6.9.
const WHOLE_GROUP: u32 = 1 << 2;

/// Kill the group that a process leads, even where the process itself is gone.
///
/// From Linux 6.9 on the kernel resolves the group by the pidfd, so that a reused number cannot be hit. Before, it is
/// killed by number, which stays taken while the group has a member. Where the leader was reaped and the number stands
/// for another process, the group of ours is gone, and nothing is killed. What remains below 6.9: the number is taken by
/// a stranger between that look and the kill, or was taken by one that led a group and has ended before its members.
pub fn kill_group(pidfd: impl AsFd, pid: Pid) {
    let pidfd = pidfd.as_fd();
    let signal = Signal::KILL.as_raw();
    let info: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: a system call on an open descriptor; a null siginfo means the same as kill(2).
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            info,
            WHOLE_GROUP,
        )
    };
    let refused = std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
    if sent < 0 && refused && !is_reused(pidfd, pid) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// Whether the leader was reaped and its number is another process's by now.
fn is_reused(pidfd: impl AsFd, pid: Pid) -> bool {
    let info: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: a system call on an open descriptor; signal 0 only asks whether there is a process.
    let there = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_fd().as_raw_fd(),
            0,
            info,
            0,
        )
    };
    let reaped = there < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    reaped && !matches!(test_kill_process(pid), Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;

    #[test]
    fn a_number_is_reused_once_its_process_was_reaped_and_another_has_it() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("starts");
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("it lives");
        assert!(!is_reused(&pidfd, pid));
        child.kill().expect("ours");
        assert!(!is_reused(&pidfd, pid)); // it has ended and keeps its number
        child.wait().expect("ours");
        assert!(is_reused(&pidfd, getpid())); // as if its number had become ours
    }
}
