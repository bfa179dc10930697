//! Starting a program: the only place where code runs between fork and exec.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};

use crate::limit::{CONTROL_FDS_MAX, INHERITED_FD};

/// A program as the keeper starts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments; never empty.
    pub arguments: Vec<OsString>,
    /// Its whole environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub directory: OsString,
}

/// Start a program in a session of its own, ended by the kernel when the keeper's thread ends.
///
/// `inherited` becomes descriptors 3, 4, ...; `output` becomes stdout and stderr; stdin is empty.
/// Where `stdio` is given it becomes stdin and stdout instead: one socket for both, as libuv does it.
pub fn spawn(
    program: &Program,
    inherited: &[BorrowedFd<'_>],
    stdio: Option<OwnedFd>,
    output: OwnedFd,
) -> io::Result<Pid> {
    let (name, arguments) = program
        .arguments
        .split_first()
        .ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(name);
    command
        .args(arguments)
        .env_clear()
        .envs(program.environment.iter().cloned());
    if !program.directory.is_empty() {
        command.current_dir(&program.directory);
    }
    let (input, stdout) = match stdio {
        Some(socket) => (Stdio::from(socket.try_clone()?), socket),
        None => (Stdio::null(), output.try_clone()?),
    };
    command.stdin(input).stdout(stdout).stderr(output);
    let descriptors: Vec<i32> = inherited.iter().map(AsRawFd::as_raw_fd).collect();
    let keeper = rustix::process::getpid();
    // SAFETY: the closure makes system calls only; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || before_exec(&descriptors, keeper)) };
    let child = command.spawn()?;
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)).ok_or_else(|| io::ErrorKind::Other.into())
}

fn before_exec(descriptors: &[i32], keeper: Pid) -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(keeper) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    place(descriptors)
}

/// Put descriptors at 3, 4, ...: first out of the way of each other, then in place without close-on-exec.
fn place(descriptors: &[i32]) -> io::Result<()> {
    const ASIDE: i32 = 64;
    let mut aside = [-1; CONTROL_FDS_MAX];
    for (copy, &descriptor) in aside.iter_mut().zip(descriptors) {
        // SAFETY: a plain system call on a descriptor of this process; the copy vanishes with exec.
        *copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, ASIDE) };
    }
    for ((target, &copy), _) in (INHERITED_FD..).zip(&aside).zip(descriptors) {
        // SAFETY: as above; dup2 leaves close-on-exec off, which is the point. A failed copy fails here.
        if unsafe { libc::dup2(copy, target) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
