//! What the keeper knows of a service.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendFlags, Shutdown, send, shutdown};

use crate::clock::wait_of;
use crate::death::{Cause, Death};
use crate::keeper::output::Output;
use crate::keeper::process::Process;
use crate::keeper::scratch::Directory;
use crate::keeper::watch::Watch;
use crate::readiness::report;
use crate::wire::{Deadlines, Handle};

/// A service, from the request to start it until its death is told.
#[derive(Debug)]
pub struct Service {
    /// Its slot, and the generation that it was started with.
    pub handle: Handle,
    /// Told apart from an earlier service of the same slot in events that are still queued.
    pub serial: u32,
    /// None while its template has not reported it yet.
    pub process: Option<Process>,
    /// What it writes.
    pub output: Output,
    /// Its own directory, removed with it.
    pub directory: Option<Directory>,
    /// A duplicate of the client's end of its socket: readable once it has answered its start or
    /// its reset, whether or not the client has looked.
    pub answers: Option<OwnedFd>,
    /// Orders to it, and what it reports of copies of itself; none for a program.
    pub nursery: Option<OwnedFd>,
    /// Copies of it that were asked for and that it has not reported.
    pub branching: BTreeSet<Handle>,
    /// The service's own end of that socket, where the keeper speaks for the program.
    pub reports: Option<OwnedFd>,
    /// What says that it is ready.
    pub watch: Watch,
    /// Whether only its caller can see that it is ready.
    pub caller_looks: bool,
    /// Its time limits.
    pub deadlines: Deadlines,
    /// Why it is being ended, where that is our doing.
    pub ending: Option<Cause>,
}

impl Service {
    /// Whether it has answered; only looked at while it owes an answer.
    ///
    /// Where its caller looks for its readiness, what lies on the socket is no answer while that caller waits, only
    /// where to look; once it was `left`, whoever comes next looks there.
    pub fn has_answered(&self, left: bool) -> bool {
        if self.caller_looks && !left {
            return false;
        }
        let Some(answers) = &self.answers else {
            return false;
        };
        let mut set = [PollFd::new(answers, PollFlags::IN)];
        matches!(poll(&mut set, Some(&wait_of(0))), Ok(1))
    }

    /// Take what it wrote, and tell its caller where that says that it is ready. False once every writer is gone.
    pub fn take_output(&mut self) -> bool {
        let mut told = None;
        let goes_on = self.output.drain_past(|bytes| {
            told = told.take().or(self.watch.feed(bytes));
        });
        if let Some(line) = told {
            self.tell_ready(&line);
        }
        goes_on
    }

    /// Tell its caller that it is ready, or, where the caller looks for that itself, where to look.
    pub fn tell_ready(&self, text: &[u8]) {
        let (Some(reports), Some(process)) = (&self.reports, &self.process) else {
            return;
        };
        let path = self.directory.as_ref().map(Directory::path);
        let directory = path.map_or(&[][..], std::ffi::OsStr::as_encoded_bytes);
        let report = report(process.pid.as_raw_nonzero().get(), directory, text);
        // The first that is ever sent there, and small: it fits. Where nobody is left to read it, that is found elsewhere.
        let _ = send(reports, &report, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// End it; the first reason given is the one that is told.
    pub fn end(&mut self, cause: Cause) {
        self.ending.get_or_insert(cause);
        if let Some(process) = &self.process {
            process.kill();
        }
    }

    /// Its death, given how its process ended.
    pub fn death(&mut self, (how, code): (Cause, i32)) -> Death {
        self.output.drain();
        let pid = self
            .process
            .as_ref()
            .map_or(0, |process| process.pid.as_raw_nonzero().get());
        Death {
            cause: self.ending.unwrap_or(how),
            pid,
            code,
            text: self.output.text(),
        }
    }
}

impl Drop for Service {
    /// Whoever waits for an answer learns that none will come, even where a process that the keeper
    /// does not know still holds the other end.
    fn drop(&mut self) {
        if let Some(answers) = &self.answers {
            let _ = shutdown(answers, Shutdown::Both);
        }
    }
}
