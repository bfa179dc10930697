//! The side sockets of workers: output, progress, warnings, returned calls.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use forebay_base::accept::{ACCEPTS_PER_TURN, Accepting};
use forebay_base::slots::{Key, Slots};
use rustix::io::Errno;

use crate::dispatcher::clients::Clients;
use crate::dispatcher::context::Context;
use crate::dispatcher::limit::{
    OUTPUT_BYTES_A_TURN, OUTPUT_READ_BYTES, RECORD_TURNS_AT_END, RECORDS_A_TURN, SIDES_MAX,
};
use crate::dispatcher::poll::{Poll, Ready, Source, Token};
use crate::dispatcher::rebinding::RebindReports;
use crate::dispatcher::workers::RunId;
use crate::dispatcher::workers::processes::Processes;
use crate::error::{Error, Result};
use crate::feed::Happening;
use crate::message;
use crate::request::Slot;
use crate::side::{Received, Record, RecordBuffer, Side, SideListener};

/// The side socket of one worker, with the pipe of its output.
struct SideChannel {
    side: Side,
    key: Key,
    /// The worker's slot, once it has identified itself.
    slot: Option<Slot>,
    output: Option<OwnedFd>,
}

/// All side sockets, with their listener.
pub struct SideChannels {
    listener: Option<SideListener>,
    rebind_reports: RebindReports,
    accepting: Accepting,
    slots: Slots<SideChannel>,
    /// Side sockets whose worker has not identified itself.
    unidentified: Vec<Key>,
    /// `None` while it is in use: a default one would be 64 KiB to allocate and clear.
    record_buffer: Option<RecordBuffer>,
    buffer: Box<[u8]>,
}

impl Default for SideChannels {
    fn default() -> Self {
        Self {
            listener: None,
            rebind_reports: RebindReports::default(),
            accepting: Accepting::default(),
            slots: Slots::default(),
            unidentified: Vec::new(),
            record_buffer: Some(RecordBuffer::default()),
            buffer: vec![0; OUTPUT_READ_BYTES].into_boxed_slice(),
        }
    }
}

impl SideChannels {
    /// Accept workers at `path`.
    ///
    /// # Errors
    /// Those of [`SideListener::bind`].
    pub fn listen(&mut self, poll: &Poll, path: &Path) -> Result<()> {
        self.listener = Some(SideListener::bind(path)?);
        self.accepting = Accepting::default();
        self.accepting
            .start(poll, Source::SideListener, &self.listener)
            .map_err(Error::system("epoll_ctl"))
    }

    /// Bind the socket again if its file was removed; the outcome, if there is one to report.
    pub fn rebind_if_removed(&mut self, poll: &Poll) -> Option<std::result::Result<(), String>> {
        let listener = self
            .listener
            .as_mut()
            .filter(|listener| listener.is_gone())?;
        self.accepting.stop(poll, [&*listener]);
        let attempt = listener.bind_again();
        self.accepting
            .resume(poll, Source::SideListener, [&*listener]);
        self.rebind_reports.report(listener.path(), attempt)
    }

    /// The side socket of this key.
    pub fn side(&self, key: Key) -> Option<&Side> {
        Some(&self.slots.get(key)?.side)
    }

    /// The side socket of this key and the pipe of its output, unless its worker has closed that.
    pub fn descriptors(&self, key: Key) -> Option<(&Side, Option<&OwnedFd>)> {
        let channel = self.slots.get(key)?;
        Some((&channel.side, channel.output.as_ref()))
    }

    /// Go on with the side socket of a worker that has identified itself to another server.
    ///
    /// # Errors
    /// `System` if the kernel watches no further descriptor.
    pub fn adopt(
        &mut self,
        poll: &Poll,
        slot: Slot,
        pid: i32,
        side: OwnedFd,
        output: Option<OwnedFd>,
    ) -> Result<Key> {
        let key = self.slots.insert_with(|key| SideChannel {
            side: Side::resume(side, pid),
            key,
            slot: Some(slot),
            output: None,
        });
        if let Some(channel) = self.slots.get_mut(key) {
            let token = Token::new(Source::Side, key);
            poll.add(&channel.side, token, Ready::READ)
                .map_err(Error::system("epoll_ctl"))?;
            if let Some(output) = output {
                channel.read_from(poll, output);
            }
        }
        Ok(key)
    }

    /// Accept workers, and read the records by which they identify themselves.
    pub fn accept(&mut self, cx: &mut Context, processes: &mut Processes, clients: &mut Clients) {
        self.accept_waiting(&cx.poll);
        for key in std::mem::take(&mut self.unidentified) {
            self.read(cx, processes, clients, key);
            if self.slots.get(key).is_some_and(|one| one.slot.is_none()) {
                self.unidentified.push(key);
            }
        }
    }

    fn accept_waiting(&mut self, poll: &Poll) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = &self.listener else {
                return;
            };
            let side = match listener.accept() {
                Ok(Some(side)) => side,
                Ok(None) => return,
                Err(_) => {
                    // The process has no descriptor left, and no event reports when it has one again: the worker waits.
                    return self.accepting.pause(poll, [listener]);
                }
            };
            if self.slots.len() >= SIDES_MAX {
                continue; // the worker runs without a side socket
            }
            let key = self.slots.insert_with(|key| SideChannel {
                side,
                key,
                slot: None,
                output: None,
            });
            if let Some(channel) = self.slots.get_mut(key) {
                let token = Token::new(Source::Side, key);
                if poll.add(&channel.side, token, Ready::READ).is_err() {
                    self.slots.remove(key);
                }
            }
            self.unidentified.push(key);
        }
    }

    /// Accept again if a pause is over.
    pub fn resume_accepting(&mut self, poll: &Poll, now: Instant) {
        if self.accepting.ends_pause(now) {
            self.accepting
                .resume(poll, Source::SideListener, &self.listener);
        }
    }

    /// When accepting resumes.
    pub fn resumes(&self) -> Option<Instant> {
        self.accepting.deadline()
    }

    /// Close the side socket of a worker.
    pub fn close(&mut self, poll: &Poll, key: Key) {
        if let Some(channel) = self.slots.remove(key) {
            poll.remove(&channel.side);
            if let Some(output) = &channel.output {
                poll.remove(output);
            }
        }
    }
}

impl SideChannel {
    fn read_from(&mut self, poll: &Poll, output: OwnedFd) {
        let token = Token::new(Source::Output, self.key);
        if poll.add(&output, token, Ready::READ).is_ok() {
            self.output = Some(output);
        }
    }
}

/// What comes from workers.
impl SideChannels {
    /// Read a turn's worth of records from a worker; true if there may be more.
    pub fn read(
        &mut self,
        cx: &mut Context,
        processes: &mut Processes,
        clients: &mut Clients,
        key: Key,
    ) -> bool {
        // Taken out, because a record borrows it while this handles the record.
        let mut record_buffer = self.record_buffer.take().unwrap_or_default();
        let mut more = true;
        for _ in 0..RECORDS_A_TURN {
            let Some(channel) = self.slots.get_mut(key) else {
                more = false;
                break;
            };
            match channel.side.receive(&mut record_buffer) {
                Ok(Received::Record(record)) => {
                    self.take_record(cx, processes, clients, key, record);
                }
                Ok(Received::Nothing) => {
                    more = false;
                    break;
                }
                Ok(Received::End) | Err(_) => {
                    // Its last output is still in the pipe.
                    self.read_output(cx, processes, clients, key, OUTPUT_BYTES_A_TURN);
                    self.close(&cx.poll, key);
                    more = false;
                    break;
                }
            }
        }
        self.record_buffer = Some(record_buffer);
        more
    }

    fn take_record(
        &mut self,
        cx: &mut Context,
        processes: &mut Processes,
        clients: &mut Clients,
        key: Key,
        record: Record<'_>,
    ) {
        let is_of = |id, attempt| self.is_of(processes, key, (id, attempt));
        match record {
            Record::Hello {
                slot,
                nonce,
                output,
            } => self.identify(&cx.poll, processes, key, (slot, nonce), output),
            Record::Log { id, attempt, bytes } if is_of(id, attempt) => clients.log(cx, id, bytes),
            Record::Returned { call } => self.take_returned(cx, processes, key, call),
            Record::Usage { figures } => self.take_usage(cx, key, figures),
            Record::Waits { id, attempt, waits } => {
                if let Some(slot) = self.slot_of(key) {
                    cx.machine.waits(cx.now, slot, id, attempt, waits);
                }
            }
            Record::Progress { id, attempt, map } if is_of(id, attempt) => {
                if message::is_record(map) {
                    cx.append(id, Happening::Progress(map.into()));
                }
            }
            Record::Warning { id, attempt, text } if is_of(id, attempt) => {
                clients.log(cx, id, format!("[forebay: {text}]\n").as_bytes());
            }
            Record::Items { id, attempt } if is_of(id, attempt) => clients.items_added(id),
            // Records of a run that has ended, or of another worker's.
            Record::Log { .. }
            | Record::Progress { .. }
            | Record::Warning { .. }
            | Record::Items { .. } => {}
        }
    }

    fn identify(
        &mut self,
        poll: &Poll,
        processes: &mut Processes,
        key: Key,
        (slot, nonce): (Slot, u64),
        output: OwnedFd,
    ) {
        let worker = processes.get_mut(slot);
        if !worker.is_some_and(|worker| worker.identify(nonce, key)) {
            return self.close(poll, key); // from another server's worker, or one that was given up
        }
        if let Some(channel) = self.slots.get_mut(key) {
            channel.slot = Some(slot);
            channel.read_from(poll, output);
        }
    }

    fn is_of(&self, processes: &Processes, key: Key, run: RunId) -> bool {
        let worker = self.slot_of(key).and_then(|slot| processes.get(slot));
        worker.is_some_and(|worker| worker.side() == Some(key) && worker.writes_for(run))
    }

    /// The slot of the worker that has identified itself on this side socket.
    pub fn slot_of(&self, key: Key) -> Option<Slot> {
        self.slots.get(key)?.slot
    }

    /// A worker has returned a run that it had not begun.
    fn take_returned(&self, cx: &mut Context, processes: &mut Processes, key: Key, call: u64) {
        let Some(slot) = self.slot_of(key) else {
            return;
        };
        let worker = processes.get_mut(slot);
        if let Some((id, attempt)) = worker.and_then(|worker| worker.returned(call)) {
            cx.machine.returned(cx.now, slot, id, attempt);
        }
    }

    /// A worker has reported figures; those of one that has not identified itself belong to no slot.
    fn take_usage(&self, cx: &Context, key: Key, figures: &[u8]) {
        if let Some(slot) = self.slot_of(key) {
            // Malformed figures are dropped: what the worker runs does not depend on them.
            let _ = cx.shared.usage().take(slot, figures);
        }
    }

    /// How many bytes are in a worker's pipe; `None` if that is unknown.
    pub fn bytes_in_pipe(&self, key: Key) -> Option<usize> {
        let output = self.slots.get(key)?.output.as_ref()?;
        let there = rustix::io::ioctl_fionread(output).ok()?;
        Some(usize::try_from(there).unwrap_or(OUTPUT_BYTES_A_TURN))
    }

    /// Read a worker's output, which belongs to its run if that is a single one.
    pub fn read_output(
        &mut self,
        cx: &mut Context,
        processes: &mut Processes,
        clients: &mut Clients,
        key: Key,
        bytes_max: usize,
    ) {
        let mut left = bytes_max;
        while left > 0 {
            let Some(channel) = self.slots.get_mut(key) else {
                break;
            };
            let (Some(output), slot) = (&channel.output, channel.slot) else {
                break;
            };
            match rustix::io::read(output, &mut self.buffer[..left.min(OUTPUT_READ_BYTES)]) {
                Ok(count) if count > 0 => {
                    left = left.saturating_sub(count);
                    let (bytes, _) = self.buffer.split_at(count);
                    let worker = slot.and_then(|slot| processes.get_mut(slot));
                    if let Some((id, _)) = worker.and_then(|worker| worker.wrote(bytes)) {
                        clients.log(cx, id, bytes);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Ok(_) | Err(_) => {
                    if let Some(output) = channel.output.take() {
                        cx.poll.remove(output.as_fd());
                    }
                    break;
                }
            }
        }
    }

    /// Read everything that a worker sent and wrote before the end of its run or its process.
    pub fn drain(
        &mut self,
        cx: &mut Context,
        processes: &mut Processes,
        clients: &mut Clients,
        key: Key,
    ) {
        // Many runs of one worker may send at once: a run that never stops sending delays its own end by this much at
        // most.
        for _ in 0..RECORD_TURNS_AT_END {
            if !self.read(cx, processes, clients, key) {
                break;
            }
        }
        self.read_output(cx, processes, clients, key, OUTPUT_BYTES_A_TURN);
    }
}
