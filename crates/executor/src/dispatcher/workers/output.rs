//! The side sockets of workers: output, progress, warnings, returned calls.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_base::accept::ACCEPTS_PER_TURN;
use forebay_base::slots::{Key, Slots};
use rustix::io::Errno;

use crate::dispatcher::driver::Driver;
use crate::dispatcher::limit::{
    ACCEPT_PAUSE_MS, OUTPUT_BYTES_A_TURN, OUTPUT_READ_BYTES, RECORD_TURNS_AT_END, RECORDS_A_TURN,
    SIDES_MAX,
};
use crate::dispatcher::poll::{Poll, Ready, Source, Token, watch_only};
use crate::dispatcher::rebinding::RebindReports;
use crate::dispatcher::workers::WorkerProcess;
use crate::error::Result;
use crate::id::RequestId;
use crate::request::Slot;
use crate::side::{Received, Record, RecordBuffer, Side, SideListener};

/// The side socket of one worker, with the pipe of its output.
pub struct SideChannel {
    pub side: Side,
    key: Key,
    /// The worker's slot, once it has identified itself.
    slot: Option<Slot>,
    output: Option<OwnedFd>,
}

/// All side sockets, with their listener.
pub struct SideChannels {
    listener: Option<SideListener>,
    rebind_reports: RebindReports,
    /// The process had no descriptor left: accepting resumes then.
    resumes: Option<Instant>,
    slots: Slots<SideChannel>,
    /// Side sockets whose worker has not identified itself.
    unidentified: Vec<Key>,
    record_buffer: RecordBuffer,
    buffer: Box<[u8]>,
}

impl Default for SideChannels {
    fn default() -> Self {
        Self {
            listener: None,
            rebind_reports: RebindReports::default(),
            resumes: None,
            slots: Slots::default(),
            unidentified: Vec::new(),
            record_buffer: RecordBuffer::default(),
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
        let listener = SideListener::bind(path)?;
        watch_only(poll, &listener, Source::SideListener)?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Bind the socket again if its file was removed; the outcome, if there is one to report.
    pub fn rebind_if_removed(&mut self, poll: &Poll) -> Option<std::result::Result<(), String>> {
        let listener = self
            .listener
            .as_mut()
            .filter(|listener| listener.is_gone())?;
        poll.remove(&*listener);
        let attempt = listener.bind_again();
        self.resumes = Some(Instant::now()); // it is watched again from the next turn on
        self.rebind_reports.report(listener.path(), attempt)
    }

    pub fn get(&mut self, key: Key) -> Option<&mut SideChannel> {
        self.slots.get_mut(key)
    }

    fn accept(&mut self, poll: &Poll) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = &self.listener else {
                return;
            };
            let side = match listener.accept() {
                Ok(Some(side)) => side,
                Ok(None) => return,
                Err(_) => {
                    // The process has no descriptor left, and no event reports when it has one again: the worker waits.
                    poll.remove(listener);
                    let pause = Duration::from_millis(ACCEPT_PAUSE_MS);
                    self.resumes = Instant::now().checked_add(pause);
                    return;
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
        if let (Some(listener), true) = (&self.listener, self.resumes.is_some_and(|at| at <= now)) {
            let watched = poll.add(listener, Token::only(Source::SideListener), Ready::READ);
            // If the kernel cannot watch the listener either, the pause continues.
            let again = now.checked_add(Duration::from_millis(ACCEPT_PAUSE_MS));
            self.resumes = again.filter(|_| watched.is_err());
        }
    }

    /// When accepting resumes.
    pub fn resumes(&self) -> Option<Instant> {
        self.resumes
    }

    fn remove(&mut self, poll: &Poll, key: Key) {
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

impl Driver {
    /// Accept workers, and read the records by which they identify themselves.
    pub fn accept_sides(&mut self) {
        self.side_channels.accept(&self.poll);
        for key in std::mem::take(&mut self.side_channels.unidentified) {
            self.read_side(key);
            let is_unidentified = |channel: &mut SideChannel| channel.slot.is_none();
            if self.side_channels.get(key).is_some_and(is_unidentified) {
                self.side_channels.unidentified.push(key);
            }
        }
    }

    /// Read a turn's worth of records from a worker; true if there may be more.
    pub fn read_side(&mut self, key: Key) -> bool {
        // Taken out, because a record borrows it while the driver handles the record.
        let mut record_buffer = std::mem::take(&mut self.side_channels.record_buffer);
        let mut more = true;
        for _ in 0..RECORDS_A_TURN {
            let Some(channel) = self.side_channels.slots.get_mut(key) else {
                more = false;
                break;
            };
            match channel.side.receive(&mut record_buffer) {
                Ok(Received::Record(record)) => self.take_record(key, record),
                Ok(Received::Nothing) => {
                    more = false;
                    break;
                }
                Ok(Received::End) | Err(_) => {
                    // Its last output is still in the pipe.
                    self.read_output(key, OUTPUT_BYTES_A_TURN);
                    self.close_side(key);
                    more = false;
                    break;
                }
            }
        }
        self.side_channels.record_buffer = record_buffer;
        more
    }

    fn take_record(&mut self, key: Key, record: Record<'_>) {
        match record {
            Record::Hello {
                slot,
                nonce,
                output,
            } => self.identify(key, slot, nonce, output),
            Record::Log { id, attempt, bytes } if self.is_of(key, id, attempt) => {
                self.log(id, bytes);
            }
            Record::Returned { call } => self.take_returned(key, call),
            Record::Progress { id, attempt, map } if self.is_of(key, id, attempt) => {
                self.progress(id, map);
            }
            Record::Warning { id, attempt, text } if self.is_of(key, id, attempt) => {
                self.log(id, format!("[forebay: {text}]\n").as_bytes());
            }
            // Records of a run that has ended, or of another worker's.
            Record::Log { .. } | Record::Progress { .. } | Record::Warning { .. } => {}
        }
    }

    fn identify(&mut self, key: Key, slot: Slot, nonce: u64, output: OwnedFd) {
        let worker = self.workers.get_mut(slot);
        let Some(worker) = worker.filter(|worker| worker.nonce == nonce) else {
            return self.close_side(key); // from another server's worker, or one that was given up
        };
        worker.side = Some(key);
        if let Some(channel) = self.side_channels.get(key) {
            channel.slot = Some(slot);
            channel.read_from(&self.poll, output);
        }
    }

    fn is_of(&mut self, key: Key, id: RequestId, attempt: u32) -> bool {
        let slot = self.side_channels.get(key).and_then(|channel| channel.slot);
        let worker = slot.and_then(|slot| self.workers.get(slot));
        worker.is_some_and(|worker| worker.side == Some(key) && worker.runs((id, attempt)))
    }

    /// A worker has returned a run that it had not begun.
    fn take_returned(&mut self, key: Key, call: u64) {
        let Some(slot) = self.side_channels.get(key).and_then(|channel| channel.slot) else {
            return;
        };
        let serving = self
            .workers
            .get_mut(slot)
            .and_then(WorkerProcess::serving_mut);
        if let Some((id, attempt)) = serving.and_then(|serving| serving.returned(call)) {
            self.machine.returned(self.now, slot, id, attempt);
        }
    }

    /// A worker's pipe is readable.
    pub fn output_is_readable(&mut self, key: Key) {
        let channel = self.side_channels.get(key);
        let slot = channel.as_ref().and_then(|channel| channel.slot);
        let handed = slot.and_then(|slot| self.workers.get(slot));
        let handed = handed.is_some_and(WorkerProcess::has_handed);
        let Some(slot) = slot.filter(|_| handed) else {
            return self.read_output(key, OUTPUT_BYTES_A_TURN);
        };
        // The pipe is empty whenever such a worker replies. So the bytes that are there before its replies are taken
        // belong to the run that is the current one afterwards.
        let output = channel.and_then(|channel| channel.output.as_ref());
        let there = output.and_then(|output| rustix::io::ioctl_fionread(output).ok());
        self.read_worker(slot);
        let there = there.map_or(OUTPUT_BYTES_A_TURN, |there| {
            usize::try_from(there).unwrap_or(OUTPUT_BYTES_A_TURN)
        });
        // At the end of the pipe nothing is there; the read then finds the end.
        self.read_output(key, there.max(1));
    }

    /// Read a worker's output, which belongs to its run if that is a single one.
    fn read_output(&mut self, key: Key, bytes_max: usize) {
        let mut buffer = std::mem::take(&mut self.side_channels.buffer);
        let mut left = bytes_max;
        while left > 0 {
            let Some(channel) = self.side_channels.slots.get_mut(key) else {
                break;
            };
            let (Some(output), slot) = (&channel.output, channel.slot) else {
                break;
            };
            match rustix::io::read(output, &mut buffer[..left.min(OUTPUT_READ_BYTES)]) {
                Ok(count) if count > 0 => {
                    left = left.saturating_sub(count);
                    self.take_output(slot, &buffer[..count]);
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Ok(_) | Err(_) => {
                    if let Some(output) = channel.output.take() {
                        self.poll.remove(output.as_fd());
                    }
                    break;
                }
            }
        }
        self.side_channels.buffer = buffer;
    }

    fn take_output(&mut self, slot: Option<Slot>, bytes: &[u8]) {
        let Some(worker) = slot.and_then(|slot| self.workers.get_mut(slot)) else {
            return;
        };
        worker.tail.add(bytes);
        if let Some((id, _)) = worker.only_run() {
            self.log(id, bytes);
        }
    }

    /// Read everything that a worker sent and wrote before the end of its run or its process.
    pub fn drain_side(&mut self, slot: Slot) {
        let side = self.workers.get(slot).and_then(|worker| worker.side);
        if let Some(key) = side {
            // Many runs of one worker may send at once: a run that never stops sending delays its own end by this much
            // at most.
            for _ in 0..RECORD_TURNS_AT_END {
                if !self.read_side(key) {
                    break;
                }
            }
            self.read_output(key, OUTPUT_BYTES_A_TURN);
        }
    }

    /// Read a turn's worth of a worker's records.
    pub fn read_side_of(&mut self, slot: Slot) {
        if let Some(key) = self.workers.get(slot).and_then(|worker| worker.side) {
            self.read_side(key);
        }
    }

    pub fn close_side(&mut self, key: Key) {
        self.side_channels.remove(&self.poll, key);
    }
}
