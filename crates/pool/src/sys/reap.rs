//! Reaping a child with the most memory that it had.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// Whether it exited by itself; else a signal ended it.
    pub exited: bool,
    /// Its exit code, or the number of the signal.
    pub code: i32,
    /// The most memory that it had in use at once, pages that it shared among it.
    pub peak_bytes: u64,
}

/// Reap a child by its pidfd, if it has ended. Source: waitid(2), whose system call has a fifth argument.
pub fn reap(pidfd: impl AsFd) -> Option<Reaped> {
    let mut status = MaybeUninit::<libc::siginfo_t>::zeroed();
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both are memory of this function that the kernel fills, and zeroes are values of both.
    let (failed, status, usage) = unsafe {
        let failed = libc::syscall(
            libc::SYS_waitid,
            libc::P_PIDFD,
            pidfd.as_fd().as_raw_fd(),
            status.as_mut_ptr(),
            libc::WEXITED | libc::WNOHANG,
            usage.as_mut_ptr(),
        );
        (failed, status.assume_init(), usage.assume_init())
    };
    // SAFETY: after waitid these fields are valid; they are zero where no child had ended.
    let (pid, code) = unsafe { (status.si_pid(), status.si_status()) };
    if failed != 0 || pid == 0 {
        return None;
    }
    Some(Reaped {
        exited: status.si_code == libc::CLD_EXITED,
        code,
        peak_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn a_child_is_reaped_once_with_its_code_and_its_peak() {
        let script = "read line; exit 3";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("starts");
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("opens");
        assert_eq!(reap(&pidfd), None, "it runs");
        drop(child.stdin.take());
        let reaped = loop {
            if let Some(reaped) = reap(&pidfd) {
                break reaped;
            }
            std::thread::yield_now();
        };
        assert!(reaped.exited && reaped.code == 3, "{reaped:?}");
        assert!(reaped.peak_bytes > 100_000, "{reaped:?}");
        assert_eq!(reap(&pidfd), None, "once");
        child.wait().expect_err("it is reaped");
    }
}
