//! A process that the keeper owns, known by its pidfd and its process group.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};

use crate::death::Cause;
use crate::error::{Error, Result};
use crate::sys::reap;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// `Exit` or `Signal`.
    pub how: Cause,
    /// Exit code or number of the signal.
    pub code: i32,
    /// The most memory that it had in use, with what it shared.
    pub peak_bytes: u64,
}

/// A child of the keeper, leader of its own session and group.
#[derive(Debug)]
pub struct Process {
    /// Its id; valid until it is reaped, and only the keeper reaps.
    pub pid: Pid,
    pidfd: OwnedFd,
}

impl Process {
    /// Take charge of a child that has not been reaped. A child that cannot be owned is killed.
    pub fn adopt(pid: Pid) -> Result<Self> {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self { pid, pidfd }),
            Err(errno) => {
                if is_child(pid) {
                    kill(pid);
                }
                Err(Error::system("pidfd_open")(errno))
            }
        }
    }

    /// End it and its group.
    ///
    /// The leader first: it may not have made its group yet, and once dead it cannot. Then the group, whose id
    /// stays taken while the leader is not reaped, so that the signal cannot reach a stranger.
    pub fn kill(&self) {
        // Both fail where nothing is left to kill, which is what is wanted.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let _ = kill_process_group(self.pid, Signal::KILL);
    }

    /// Reap it if it has ended.
    pub fn reap(&self) -> Option<Ended> {
        // What the leader left in its group goes with it, while the leader's id is still taken.
        if self.has_ended() {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        let reaped = reap(&self.pidfd)?;
        let how = if reaped.exited {
            Cause::Exit
        } else {
            Cause::Signal
        };
        Some(Ended {
            how,
            code: reaped.code,
            peak_bytes: reaped.peak_bytes,
        })
    }

    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(
            waitid(WaitId::PidFd(self.pidfd.as_fd()), options),
            Ok(Some(_))
        )
    }
}

/// Whether a number is a child of ours that has not been reaped: then it cannot be a stranger's.
fn is_child(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), options).is_ok()
}

fn kill(pid: Pid) {
    let _ = kill_process(pid, Signal::KILL);
    let _ = kill_process_group(pid, Signal::KILL);
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_children_that_are_not_reaped_count_as_ours() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("starts");
        let pid = Pid::from_child(&child);
        assert!(is_child(pid));
        kill(pid);
        assert!(!child.wait().expect("killed").success());
        assert!(!is_child(pid) && !is_child(Pid::INIT));
    }
}
