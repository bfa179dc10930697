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
            },
            write,
        ))
    }

    /// Take what is there. False once every writer is gone.
    pub fn drain(&mut self) -> bool {
        self.drain_past(|_| ())
    }

    /// The same, past somebody who looks at each piece.
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

    fn keep(&mut self, bytes: &[u8]) {
        self.newest.extend(bytes);
        let excess = self.newest.len().saturating_sub(OUTPUT_BYTES_MAX);
        self.newest.drain(..excess);
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
        assert!(!output.drain(), "end of file");
        let text = output.text();
        assert_eq!(text.len(), OUTPUT_BYTES_MAX);
        assert!(text.ends_with(b"aend"));
    }
}
