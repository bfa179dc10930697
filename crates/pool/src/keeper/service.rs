//! What the keeper knows of a service.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use forebay_base::readiness;
use rustix::event::PollFlags;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use rustix::process::Signal;

use crate::death::{Cause, Death};
use crate::keeper::cgroup::Group;
use crate::keeper::output::Output;
use crate::keeper::process::{Ended, Process};
use crate::keeper::scratch::Directory;
use crate::keeper::watch::Watch;
use crate::readiness::report;
use crate::wire::{Deadlines, Handle};
use crate::word::Stamp;

/// A service, from the request to start it until its death is reported.
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
    /// The lease whose holder follows that.
    pub followed_by: Handle,
    /// Its own directory, removed with it.
    pub directory: Option<Directory>,
    /// A duplicate of the client's end of its socket: readable once it has answered its start or
    /// its reset, whether or not the client has looked.
    pub answers: Option<OwnedFd>,
    /// Orders to it, and what it reports of copies of itself; none for a program.
    pub orders: Option<OwnedFd>,
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
    /// Its cgroup, where it is limited and there is one; ended and removed with it.
    pub group: Option<Group>,
    /// Its word when its memory was last measured, and the private bytes that it had.
    pub measured: Option<Stamp>,
    pub private_bytes: u64,
    /// Why it is being ended, where that is our doing.
    pub ending: Option<Cause>,
    /// Whether it has exit hooks: it has reported so.
    pub has_exit_hooks: bool,
    /// Until when it may run them, once its end has begun; in monotonic milliseconds.
    pub exit_by: Option<u64>,
}

impl Service {
    /// Whether it has answered; asked only while its answer to a start or a reset is due.
    ///
    /// Where its caller checks readiness itself, what lies on the socket is no answer while that caller waits, only
    /// where to look; once it was `left`, the next caller looks there.
    pub fn has_answered(&self, left: bool) -> bool {
        if self.caller_looks && !left {
            return false;
        }
        let Some(answers) = &self.answers else {
            return false;
        };
        !readiness(answers, PollFlags::IN).is_empty()
    }

    /// Take what it wrote, and report to its caller where that says that it is ready. False once every writer is gone.
    ///
    /// The output is attributed to the `lease` that is out now: it comes within moments of being written.
    pub fn take_output(&mut self, lease: u64) -> bool {
        self.output.begin(lease);
        let mut ready = None;
        let goes_on = self.output.drain_past(|bytes| {
            ready = ready.take().or(self.watch.feed(bytes));
        });
        if let Some(line) = ready {
            self.report_ready(&line);
        }
        goes_on
    }

    /// Report to its caller that it is ready, or, where the caller checks that itself, where to look.
    pub fn report_ready(&self, text: &[u8]) {
        let (Some(reports), Some(process)) = (&self.reports, &self.process) else {
            return;
        };
        let path = self.directory.as_ref().map(Directory::path);
        let directory = path.map_or(&[][..], std::ffi::OsStr::as_encoded_bytes);
        let report = report(process.pid.as_raw_nonzero().get(), directory, text);
        // The first message of that socket, and small: it fits. A caller that has left is noticed elsewhere.
        let _ = send(reports, &report, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// End it; the first cause given is the one that is reported.
    pub fn end(&mut self, cause: Cause) {
        self.ending.get_or_insert(cause);
        if let Some(process) = &self.process {
            process.kill();
        }
        if let Some(group) = &self.group {
            group.kill();
        }
    }

    /// Have it end by itself: its connection ends, and it has until `until` to run its exit hooks.
    pub fn begin_exit(&mut self, cause: Cause, until: u64) {
        self.ending.get_or_insert(cause);
        self.exit_by = Some(until);
        if let Some(answers) = &self.answers {
            let _ = shutdown(answers, Shutdown::Both);
        }
    }

    /// Its death, given how its process ended in which lease.
    pub fn death(&mut self, ended: Ended, lease: u64) -> Death {
        self.output.begin(lease);
        self.output.drain();
        let pid = self
            .process
            .as_ref()
            .map_or(0, |process| process.pid.as_raw_nonzero().get());
        let (peak_bytes, limit_bytes) = self.memory(ended);
        Death {
            cause: self
                .ending
                .unwrap_or_else(|| self.cause_of(ended.how, ended.code)),
            pid,
            code: ended.code,
            peak_bytes,
            limit_bytes,
            text: self.output.text_of_lease(),
        }
    }

    /// The most memory that it used, and what it was allowed.
    ///
    /// Without a cgroup the peak is given where the kernel's OOM killer may have ended it, whose counter lies elsewhere.
    fn memory(&self, ended: Ended) -> (u64, u64) {
        if self.ending == Some(Cause::Memory) {
            return (self.private_bytes, self.deadlines.private_bytes_max);
        }
        let killed = self.ending.is_none() && ended.how == Cause::Signal;
        let peak = match &self.group {
            Some(group) => group.peak_bytes(),
            None if killed && ended.code == Signal::KILL.as_raw() => ended.peak_bytes,
            None => 0,
        };
        (peak, self.deadlines.limits.memory_bytes)
    }

    /// Which limit a signal of the kernel's stands for.
    fn cause_of(&self, how: Cause, code: i32) -> Cause {
        let starved = || self.group.as_ref().is_some_and(Group::ran_out_of_memory);
        match how {
            Cause::Signal if code == Signal::KILL.as_raw() && starved() => Cause::OutOfMemory,
            Cause::Signal if code == Signal::XCPU.as_raw() => Cause::Cpu,
            how => how,
        }
    }
}

impl Drop for Service {
    /// End its connection, so that a waiting caller learns that no answer will come, even where a process that the keeper
    /// does not know still holds the other end.
    fn drop(&mut self) {
        if let Some(answers) = &self.answers {
            let _ = shutdown(answers, Shutdown::Both);
        }
    }
}
