//! The last of what a process wrote to stdout and stderr.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::error::{Error, Result};
use crate::limit::OUTPUT_BYTES_MAX;

/// The reading end of a pipe and the newest bytes that came through it.
#[derive(Debug)]
pub struct Output {
    pipe: OwnedFd,
    newest: VecDeque<u8>,
    total: u64,
    /// The lease whose output comes now, by the generation of its word, and the bytes there were before it.
    lease: u64,
    before: u64,
    /// Followers are sent an update once there is more than so many bytes in all.
    followed: Option<u64>,
    was_followed: bool,
}

impl Output {
    /// A new pipe; the second value is the end for the process.
    pub fn new() -> Result<(Self, OwnedFd)> {
        let (read, write) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(Error::system("pipe2"))?;
        // Only our end must not block: a program that finds EAGAIN on its stdout takes it for an error.
        let flags = rustix::fs::fcntl_getfl(&write).map_err(Error::system("fcntl(F_GETFL)"))?;
        rustix::fs::fcntl_setfl(&write, flags - rustix::fs::OFlags::NONBLOCK)
            .map_err(Error::system("fcntl(F_SETFL)"))?;
        Ok((
            Self {
                pipe: read,
                newest: VecDeque::new(),
                total: 0,
                lease: 0,
                before: 0,
                followed: None,
                was_followed: false,
            },
            write,
        ))
    }

    /// Take what is there. False once every writer is gone.
    pub fn drain(&mut self) -> bool {
        self.drain_past(|_| ())
    }

    /// The same, showing each piece to `look`.
    pub fn drain_past(&mut self, mut look: impl FnMut(&[u8])) -> bool {
        let mut buffer = [0; 4096];
        // Bounded, so that a process that writes without end cannot hold the keeper; epoll comes back.
        for _ in 0..16 {
            match rustix::io::read(&self.pipe, &mut buffer) {
                Ok(0) => return false,
                Ok(count) => {
                    look(&buffer[..count]);
                    self.keep(&buffer[..count]);
                }
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
        true
    }

    /// What comes from now on is of this lease.
    pub fn begin(&mut self, lease: u64) {
        if self.lease != lease {
            self.lease = lease;
            self.before = self.total;
        }
    }

    /// The newest bytes of the lease that was begun last.
    pub fn text_of_lease(&self) -> Vec<u8> {
        let older = self.total - self.newest.len() as u64;
        let skip = usize::try_from(self.before.saturating_sub(older)).unwrap_or(usize::MAX);
        self.newest.iter().skip(skip).copied().collect()
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.newest.extend(bytes);
        self.total += bytes.len() as u64;
        let excess = self.newest.len().saturating_sub(OUTPUT_BYTES_MAX);
        self.newest.drain(..excess);
    }

    /// Report once there are more than `beyond` bytes. Of several followers the one that has least decides when, and all
    /// get the same update: each finds what is new by the total.
    pub fn follow(&mut self, beyond: u64) {
        self.was_followed = true;
        self.followed = Some(self.followed.map_or(beyond, |other| other.min(beyond)));
    }

    /// The update for followers, if it is due: how many bytes there were in all, and the newest.
    pub fn take_update(&mut self) -> Option<(u64, Vec<u8>)> {
        self.followed.take_if(|beyond| self.total > *beyond)?;
        Some((self.total, self.text()))
    }

    /// The update at the end, if the output was ever followed.
    pub fn final_update(&self) -> Option<(u64, Vec<u8>)> {
        self.was_followed.then(|| (self.total, self.text()))
    }

    /// A copy of the newest bytes.
    pub fn text(&self) -> Vec<u8> {
        self.newest.iter().copied().collect()
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn the_newest_bytes_are_kept() {
        let (mut output, write) = Output::new().expect("a pipe");
        for _ in 0..3 {
            rustix::io::write(&write, &[b'a'; OUTPUT_BYTES_MAX / 2]).expect("room in the pipe");
            assert!(output.drain());
        }
        rustix::io::write(&write, b"end").expect("room in the pipe");
        drop(write);
        let patience = Timespec {
            tv_sec: 10,
            tv_nsec: 0,
        };
        while output.drain() {
            // A child that a neighbour forks has the pipe until it runs its program.
            let rang = poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&patience));
            assert_eq!(rang, Ok(1), "end of file");
        }
        let text = output.text();
        assert_eq!(text.len(), OUTPUT_BYTES_MAX);
        assert!(text.ends_with(b"aend"));
    }

    #[test]
    fn what_earlier_leases_wrote_is_told_apart() {
        let (mut output, write) = Output::new().expect("a pipe");
        output.begin(1);
        rustix::io::write(&write, b"mine").expect("room in the pipe");
        output.drain();
        output.begin(1);
        assert_eq!(output.text_of_lease(), b"mine");
        output.begin(2);
        assert_eq!(output.text_of_lease(), b"");
        for _ in 0..2 {
            rustix::io::write(&write, &[b'a'; OUTPUT_BYTES_MAX]).expect("room in the pipe");
            output.drain();
        }
        assert_eq!(output.text_of_lease(), vec![b'a'; OUTPUT_BYTES_MAX]);
        output.begin(3);
        rustix::io::write(&write, b"yours").expect("room in the pipe");
        output.drain();
        assert_eq!(
            (output.text_of_lease(), output.text().len()),
            (b"yours".to_vec(), OUTPUT_BYTES_MAX)
        );
    }

    #[test]
    fn followers_are_told_once_there_is_more() {
        let (mut output, write) = Output::new().expect("a pipe");
        rustix::io::write(&write, b"one").expect("room in the pipe");
        output.drain();
        output.follow(3);
        assert_eq!(output.take_update(), None);
        output.follow(0);
        assert_eq!(output.take_update(), Some((3, b"one".to_vec())));
        rustix::io::write(&write, b"two").expect("room in the pipe");
        output.drain();
        assert_eq!(output.take_update(), None, "who wants more asks again");
        output.follow(3);
        assert_eq!(output.take_update(), Some((6, b"onetwo".to_vec())));
    }
}
