//! Starting a program: the only place where code runs between fork and exec.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal};

use super::descriptors::restore_open_files;
use crate::confine::{Confinement, OpenConfinement};
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
    /// How it is limited, if it is.
    pub confinement: Option<Confinement>,
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
    let confinement = program
        .confinement
        .as_ref()
        .map(OpenConfinement::for_program);
    let confinement = confinement.transpose()?;
    let prepare = move || {
        before_exec(&descriptors, keeper)?;
        restore_open_files()?;
        confinement.as_ref().map_or(Ok(()), OpenConfinement::enter)
    };
    // SAFETY: the closure makes system calls only; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
    let child = command
        .spawn()
        .map_err(|error| not_entered(program).unwrap_or(error))?;
    Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)).ok_or_else(|| io::ErrorKind::Other.into())
}

/// The directory that a program starts in, where it is what cannot be entered: the error of a start has no path.
fn not_entered(program: &Program) -> Option<io::Error> {
    if program.directory.is_empty() {
        return None;
    }
    let error: io::Error = access(&program.directory, Access::EXEC_OK).err()?.into();
    let directory = program.directory.to_string_lossy();
    let text = format!(
        "its working directory {directory} cannot be entered: {error}; give another one by cwd="
    );
    Some(io::Error::new(error.kind(), text))
}

fn before_exec(descriptors: &[i32], keeper: Pid) -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() != Some(keeper) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    place(descriptors)
}

/// Put descriptors at 3, 4, ...: first out of the way of each other, above where they go, then in place without
/// close-on-exec.
fn place(descriptors: &[i32]) -> io::Result<()> {
    let mut aside = [-1; CONTROL_FDS_MAX];
    let above = INHERITED_FD + i32::try_from(descriptors.len()).unwrap_or(i32::MAX);
    for (copy, &descriptor) in aside.iter_mut().zip(descriptors) {
        // SAFETY: a plain system call on a descriptor of this process; the copy vanishes with exec.
        *copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, above) };
        if *copy < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    for ((target, &copy), _) in (INHERITED_FD..).zip(&aside).zip(descriptors) {
        // SAFETY: as above; dup2 leaves close-on-exec off, which is the point.
        if unsafe { libc::dup2(copy, target) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::pipe::pipe;

    use super::*;

    /// What a shell script writes, started with descriptors and a confinement.
    fn told(script: &str, inherited: &[BorrowedFd<'_>], confinement: Confinement) -> String {
        let (read, write) = pipe().expect("a pipe");
        let program = Program {
            arguments: ["/bin/sh", "-c", script].map(OsString::from).to_vec(),
            environment: vec![("PATH".into(), "/bin:/usr/bin".into())],
            directory: OsString::new(),
            confinement: Some(confinement),
        };
        let pid = spawn(&program, inherited, None, write).expect("a shell");
        let mut text = Vec::new();
        io::Read::read_to_end(&mut std::fs::File::from(read), &mut text).expect("its output");
        let ended = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
        assert!(ended.is_ok());
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn a_program_is_held_to_its_limits_and_lower_ones_stay() {
        let script = "ulimit -Hn; ulimit -Sd; ulimit -c";
        let confinement = Confinement {
            data_bytes: 1 << 30,
            open_files: 77,
            ..Confinement::default()
        };
        assert_eq!(told(script, &[], confinement), "77\n1048576\n0\n");
        let loose = Confinement {
            open_files: u32::MAX,
            ..Confinement::default()
        };
        let here = told("ulimit -Hn", &[], Confinement::default());
        assert_eq!(told("ulimit -Hn", &[], loose), here);
    }

    #[test]
    fn descriptors_are_placed_below_the_lowest_limit_that_holds_them() {
        let (first, second) = (pipe().expect("a pipe"), pipe().expect("a pipe"));
        let inherited = [first.1.as_fd(), second.1.as_fd()];
        let confinement = Confinement {
            open_files: 16,
            ..Confinement::default()
        };
        let text = told(
            "echo one >&3; echo two >&4; echo done",
            &inherited,
            confinement,
        );
        assert_eq!(text, "done\n");
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&first.0, &mut bytes), Ok(4));
        assert_eq!(&bytes[..4], b"one\n");
        assert_eq!(rustix::io::read(&second.0, &mut bytes), Ok(4));
    }
}
