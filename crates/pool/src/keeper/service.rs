//! One service of the keeper, from the request to start it until its death is reported.
//!
//! ```text
//!   new -> confined, assigned or prepared -> started -> ready -> (begin_exit ->) end -> death
//! ```
//! Each arrow leads to a method. Invariants: the first cause of an end that is given is the one that is reported, and
//! a service whose end was asked for before it had a process is ended when it gets one.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use forebay_base::readiness;
use rustix::event::PollFlags;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use rustix::process::{Pid, Signal};

use super::cgroup::Group;
use super::copies::Copies;
use super::memory::private_bytes;
use super::output::Output;
use super::process::{Ended, Process};
use super::scratch::Directory;
use super::source::{Poller, Source, token, watch};
use super::watch::Watch;
use crate::control::Receiver;
use crate::death::{Cause, Death};
use crate::error::Result;
use crate::readiness::report;
use crate::wire::{Deadlines, Event, Handle, Order, Report};
use crate::word::{Stamp, State};

/// A service.
#[derive(Debug)]
pub struct Service {
    /// Its slot, and the generation that it was started with.
    handle: Handle,
    /// Told apart from an earlier service of the same slot in events that are still queued.
    serial: u32,
    deadlines: Deadlines,
    /// None while its template has not reported it yet.
    process: Option<Process>,
    output: Output,
    /// The lease whose holder follows that.
    followed_by: Handle,
    /// Its own directory, removed with it.
    directory: Option<Directory>,
    /// A duplicate of the client's end of its socket: readable once it has answered its start or
    /// its reset, whether or not the client has looked.
    answers: Option<OwnedFd>,
    readiness: ReadinessWatch,
    copies: Copies,
    /// Its cgroup, where it is limited and there is one; ended and removed with it.
    group: Option<Group>,
    /// Its word when its memory was last measured, and the private bytes that it had.
    measured: Option<(Stamp, u64)>,
    exit: Exit,
}

/// How the keeper sees that a program is ready, and reports it for the program.
#[derive(Debug, Default)]
struct ReadinessWatch {
    /// The service's own end of its socket, where the keeper speaks for the program.
    reports: Option<OwnedFd>,
    /// What says that it is ready.
    watch: Watch,
    /// Whether only its caller can see that it is ready.
    caller_looks: bool,
}

/// The end of a service, as far as it is our doing.
#[derive(Debug, Default)]
struct Exit {
    /// Why it is being ended.
    cause: Option<Cause>,
    /// Whether it has exit hooks: it has reported so.
    has_hooks: bool,
    /// Until when it may run them, once its end has begun; in monotonic milliseconds.
    by_ms: Option<u64>,
}

/// A service's private memory, compared with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Within its limit, or not measured: nothing has run since, or it is not known.
    Within,
    /// Above it.
    Above,
    /// Above it, as it was when it was measured earlier in the same lease.
    StillAbove,
}

impl Service {
    /// A service that is about to start.
    pub fn new(handle: Handle, serial: u32, deadlines: Deadlines, output: Output) -> Self {
        Self {
            handle,
            serial,
            deadlines,
            process: None,
            output,
            followed_by: handle,
            directory: None,
            answers: None,
            readiness: ReadinessWatch::default(),
            copies: Copies::default(),
            group: None,
            measured: None,
            exit: Exit::default(),
        }
    }

    /// Its slot, and the generation that it was started with.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Tells it apart from an earlier service of its slot.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// Its time limits and other limits.
    pub fn deadlines(&self) -> &Deadlines {
        &self.deadlines
    }

    /// Its process, once there is one.
    pub fn pid(&self) -> Option<Pid> {
        self.process.as_ref().map(|process| process.pid)
    }

    /// The path of its own directory; empty while it has none.
    pub fn directory(&self) -> &[u8] {
        let path = self.directory.as_ref().map(Directory::path);
        path.map_or(&[][..], OsStr::as_encoded_bytes)
    }

    /// Its answers come to the other end of this socket.
    pub fn keep_answers(&mut self, answers: OwnedFd) {
        self.answers = Some(answers);
    }

    /// It runs in this cgroup, if in any.
    pub fn confined(&mut self, group: Option<Group>) {
        self.group = group;
    }

    /// A process was asked to become this service: with this directory, taking orders on this link.
    pub fn assigned(&mut self, directory: Directory, orders: OwnedFd) {
        self.directory = Some(directory);
        self.copies.connect(orders);
    }

    /// A program is about to be started with this directory. The keeper sees by `ready_by` that it is ready, and says so
    /// on `reports`.
    pub fn prepared(
        &mut self,
        poller: &Poller,
        directory: Directory,
        ready_by: Watch,
        reports: Option<OwnedFd>,
        caller_looks: bool,
    ) -> Result<()> {
        if let Watch::File(file) = &ready_by {
            let changed = token(Source::File, self.handle.slot, self.serial);
            watch(poller, file, changed)?;
        }
        self.directory = Some(directory);
        self.readiness = ReadinessWatch {
            reports,
            watch: ready_by,
            caller_looks,
        };
        Ok(())
    }

    /// It has a process.
    pub fn started(&mut self, process: Process) {
        self.process = Some(process);
        if let Some(cause) = self.exit.cause {
            self.end(cause); // asked for while it was being forked
        }
    }

    /// Whether it has answered; asked only while its answer to a start or a reset is due.
    ///
    /// Where its caller checks readiness itself, what lies on the socket is no answer while that caller waits, only
    /// where to look; once it was `left`, the next caller looks there.
    pub fn has_answered(&self, left: bool) -> bool {
        if self.readiness.caller_looks && !left {
            return false;
        }
        let Some(answers) = &self.answers else {
            return false;
        };
        !readiness(answers, PollFlags::IN).is_empty()
    }

    /// Report to its caller that it is ready, or, where the caller checks that itself, where to look.
    pub fn report_ready(&self, text: &[u8]) {
        let (Some(reports), Some(process)) = (&self.readiness.reports, &self.process) else {
            return;
        };
        let report = report(process.pid.as_raw_nonzero().get(), self.directory(), text);
        // The first message of that socket, and small: it fits. A caller that has left is noticed elsewhere.
        let _ = send(reports, &report, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Something changed in the directory of a program that is to say by a file that it is ready.
    pub fn look_at_file(&mut self, poller: &Poller) {
        if let Some(text) = self.readiness.watch.look(|file| poller.remove(file)) {
            self.report_ready(&text);
        }
    }

    /// Take what it wrote, and report to its caller where that says that it is ready. Once every writer is gone, the
    /// output is watched no more.
    ///
    /// The output is attributed to the `lease` that is out now: it comes within moments of being written.
    pub fn take_output(&mut self, poller: &Poller, lease: u64) {
        if !self.read_output(lease) {
            poller.remove(&self.output);
        }
    }

    /// Take what it wrote, and return a copy of the newest, for a caller that asked.
    pub fn output(&mut self, lease: u64) -> Vec<u8> {
        self.read_output(lease);
        self.output.text()
    }

    /// False once every writer is gone.
    fn read_output(&mut self, lease: u64) -> bool {
        self.output.begin(lease);
        let watch = &mut self.readiness.watch;
        let mut ready = None;
        let goes_on = self.output.drain_past(|bytes| {
            ready = ready.take().or(watch.feed(bytes));
        });
        if let Some(line) = ready {
            self.report_ready(&line);
        }
        goes_on
    }

    /// The holder of a lease wants to know what it writes beyond so many bytes.
    pub fn follow(&mut self, lease: Handle, beyond: u64) {
        self.followed_by = lease;
        self.output.drain();
        self.output.follow(beyond);
    }

    /// What its followers have not been sent, if there is more than they have.
    pub fn take_written(&mut self) -> Option<Event> {
        let update = self.output.take_update();
        update.map(|(total, text)| self.written(total, text))
    }

    /// What it wrote last, if it was ever followed.
    pub fn last_written(&self) -> Option<Event> {
        let update = self.output.final_update();
        update.map(|(total, text)| self.written(total, text))
    }

    fn written(&self, total: u64, text: Vec<u8>) -> Event {
        Event::Written {
            handle: self.followed_by,
            total,
            text,
        }
    }

    /// Whether it was asked for a copy of itself that it has not reported.
    pub fn is_branching(&self) -> bool {
        self.copies.any_due()
    }

    /// It is about to be asked for a copy.
    pub fn expect_copy(&mut self, poller: &Poller, copy: Handle) -> Result<()> {
        let reported = token(Source::Branched, self.handle.slot, self.serial);
        self.copies.expect(poller, reported, copy)
    }

    /// A copy is due no more.
    pub fn copied(&mut self, poller: &Poller, copy: Handle) {
        self.copies.settle(poller, copy);
    }

    /// Ask it for a copy.
    pub fn order_copy(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        self.copies.order(order, descriptors)
    }

    /// Order it not to wait for a copy. Its holder has called it to expect an order, and it would wait for ever; so it
    /// is ended where its link is too full for this order.
    pub fn skip_copy(&mut self, copy: Handle) {
        if !self.copies.skip(copy) {
            self.end(Cause::Discarded);
        }
    }

    /// What it reports next of its copies and of itself.
    pub fn next_report(&self, poller: &Poller, receiver: &mut Receiver) -> Option<Report> {
        self.copies.receive(poller, receiver)
    }

    /// It has ended: the copies that it has not reported will not come.
    pub fn give_up_copies(&mut self, poller: &Poller) -> BTreeSet<Handle> {
        self.copies.give_up(poller)
    }

    /// Measure its private memory, where its word is `seen`: while it is idle or lent, and may have changed since.
    pub fn measure(&mut self, seen: Stamp) -> Memory {
        let earlier = self.measured.filter(|(stamp, _)| *stamp == seen);
        let may_have_changed = match seen.state {
            State::Idle => earlier.is_none(),
            State::Leased => true,
            _ => false,
        };
        if !may_have_changed {
            return Memory::Within;
        }
        let Some(bytes) = self.pid().and_then(private_bytes) else {
            return Memory::Within;
        };
        self.measured = Some((seen, bytes));
        let allowed = self.deadlines.private_bytes_max;
        if bytes <= allowed {
            Memory::Within
        } else if earlier.is_some_and(|(_, before)| before > allowed) {
            Memory::StillAbove
        } else {
            Memory::Above
        }
    }

    /// It has reported that it has exit hooks.
    pub fn note_exit_hooks(&mut self) {
        self.exit.has_hooks = true;
    }

    /// Whether it was given time to end by itself.
    pub fn is_exiting(&self) -> bool {
        self.exit.by_ms.is_some()
    }

    /// Whether it has a process with exit hooks.
    pub fn has_exit_hooks(&self) -> bool {
        self.exit.has_hooks && self.process.is_some()
    }

    /// Until when it may run its exit hooks, where that is later than `now`.
    pub fn exits_until(&self, now: u64) -> Option<u64> {
        self.exit.by_ms.filter(|&until| now < until)
    }

    /// Have it end by itself: its connection ends, and it has until `until` to run its exit hooks.
    pub fn begin_exit(&mut self, cause: Cause, until: u64) {
        self.exit.cause.get_or_insert(cause);
        self.exit.by_ms = Some(until);
        if let Some(answers) = &self.answers {
            let _ = shutdown(answers, Shutdown::Both);
        }
    }

    /// Its time for exit hooks is over.
    pub fn finish_exit(&mut self) {
        if let Some(cause) = self.exit.cause {
            self.end(cause);
        }
    }

    /// End it now, without any time for exit hooks that it was given.
    pub fn end_at_once(&mut self, cause: Cause) {
        self.exit.by_ms = None;
        self.end(cause);
    }

    /// End it; the first cause given is the one that is reported.
    pub fn end(&mut self, cause: Cause) {
        self.exit.cause.get_or_insert(cause);
        if let Some(process) = &self.process {
            process.kill();
        }
        if let Some(group) = &self.group {
            group.kill();
        }
    }

    /// Why it is being ended, where that is our doing.
    pub fn ending(&self) -> Option<Cause> {
        self.exit.cause
    }

    /// Reap its process, if it has ended.
    pub fn reap(&self) -> Option<Ended> {
        self.process.as_ref().and_then(Process::reap)
    }

    /// Its death, given how its process ended in which lease.
    pub fn death(&mut self, ended: Ended, lease: u64) -> Death {
        self.output.begin(lease);
        self.output.drain();
        let pid = self.pid().map_or(0, |pid| pid.as_raw_nonzero().get());
        let (peak_bytes, limit_bytes) = self.memory(ended);
        Death {
            cause: self
                .exit
                .cause
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
        if self.exit.cause == Some(Cause::Memory) {
            let bytes = self.measured.map_or(0, |(_, bytes)| bytes);
            return (bytes, self.deadlines.private_bytes_max);
        }
        let killed = self.exit.cause.is_none() && ended.how == Cause::Signal;
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

    /// Watch for the exit of its process no more.
    pub fn unwatch_exit(&self, poller: &Poller) {
        if let Some(process) = &self.process {
            poller.remove(process);
        }
    }

    /// Watch its output and its exit no more.
    pub fn unwatch(&self, poller: &Poller) {
        poller.remove(&self.output);
        self.unwatch_exit(poller);
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
