//! Signalling a process group through a pidfd.

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Pid, Signal, kill_process_group};

/// `PIDFD_SIGNAL_PROCESS_GROUP` of `pidfd_send_signal(2)`, Linux 6.9.
const WHOLE_GROUP: u32 = 1 << 2;

/// Kill the group that a process leads, even where the process itself is gone.
///
/// The kernel resolves the group by the pidfd, so that a reused number cannot be hit; before Linux 6.9 by number,
/// which stays taken while the group has a member.
pub fn kill_group(pidfd: impl AsFd, pid: Pid) {
    let signal = Signal::KILL.as_raw();
    let info: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: a system call on an open descriptor; a null siginfo means the same as kill(2).
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_fd().as_raw_fd(),
            signal,
            info,
            WHOLE_GROUP,
        )
    };
    let refused = std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
    if sent < 0 && refused {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}
