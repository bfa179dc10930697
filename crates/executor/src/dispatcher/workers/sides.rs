//! The side sockets of workers: who connects, what they tell, and the output of what they run.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::dispatcher::driver::Driver;
use crate::dispatcher::limit::{
    ACCEPT_PAUSE_MS, ACCEPTS_A_TURN, OUTPUT_BYTES_A_TURN, OUTPUT_READ_BYTES, RECORD_TURNS_AT_END,
    RECORDS_A_TURN, SIDES_MAX,
};
use crate::dispatcher::place::Made;
use crate::dispatcher::poll::{Place, Poll, Ready, Source};
use crate::dispatcher::seats::Seats;
use crate::dispatcher::workers::Worker;
use crate::error::{Error, Result};
use crate::id::RequestId;
use crate::request::Slot;
use crate::side::{Desk, Received, Record, Side, SideDoor};

/// The side socket of one worker, and the pipe that its output comes from.
pub struct Seat {
    pub side: Side,
    place: Place,
    /// Whose it is, once it has said so.
    slot: Option<Slot>,
    output: Option<OwnedFd>,
}

/// All of them, and the door.
pub struct Sides {
    door: Option<SideDoor>,
    made: Option<Made>,
    /// No descriptor was left: the door is closed until then.
    resumes: Option<Instant>,
    seats: Seats<Seat>,
    /// Those who have not said yet who they are.
    strangers: Vec<Place>,
    desk: Desk,
    buffer: Box<[u8]>,
}

impl Default for Sides {
    fn default() -> Self {
        Self {
            made: None,
            door: None,
            resumes: None,
            seats: Seats::default(),
            strangers: Vec::new(),
            desk: Desk::default(),
            buffer: vec![0; OUTPUT_READ_BYTES].into_boxed_slice(),
        }
    }
}

impl Sides {
    /// Let workers in at `path`.
    ///
    /// # Errors
    /// Those of [`SideDoor::bind`].
    pub fn listen(&mut self, poll: &Poll, path: &Path) -> Result<()> {
        self.open(poll, path)?;
        self.made = Some(Made::at(path));
        Ok(())
    }

    /// Make the socket again where it was removed; what became of that.
    pub fn look_after(&mut self, poll: &Poll) -> Option<std::result::Result<(), String>> {
        let gone = self.made.take_if(|made| made.is_gone())?;
        self.door = None;
        let attempt = self.listen(poll, gone.path());
        gone.remade(attempt, &mut self.made)
    }

    fn open(&mut self, poll: &Poll, path: &Path) -> Result<()> {
        let door = SideDoor::bind(path)?;
        poll.watch(&door, Source::SideDoor, Ready::default(), Ready::READ)
            .map_err(Error::system("epoll_ctl"))?;
        self.door = Some(door);
        Ok(())
    }

    pub fn get(&mut self, place: Place) -> Option<&mut Seat> {
        self.seats.get_mut(place)
    }

    fn accept(&mut self, poll: &Poll) {
        for _ in 0..ACCEPTS_A_TURN {
            let Some(door) = &self.door else {
                return;
            };
            let side = match door.accept() {
                Ok(Some(side)) => side,
                Ok(None) => return,
                Err(_) => {
                    // No descriptor is left, and nobody says when there is one again: the worker waits.
                    poll.forget(door, Source::SideDoor, Ready::READ);
                    let pause = Duration::from_millis(ACCEPT_PAUSE_MS);
                    self.resumes = Instant::now().checked_add(pause);
                    return;
                }
            };
            if self.seats.len() >= SIDES_MAX {
                continue; // it works without a side
            }
            let place = self.seats.add(|place| Seat {
                side,
                place,
                slot: None,
                output: None,
            });
            if let Some(seat) = self.seats.get_mut(place) {
                let source = Source::Side(place);
                if poll
                    .watch(&seat.side, source, Ready::default(), Ready::READ)
                    .is_err()
                {
                    self.seats.remove(place);
                }
            }
            self.strangers.push(place);
        }
    }

    /// Let workers in again, if a pause was made that is over.
    pub fn welcome(&mut self, poll: &Poll, now: Instant) {
        if let (Some(door), true) = (&self.door, self.resumes.is_some_and(|at| at <= now)) {
            let watched = poll.watch(door, Source::SideDoor, Ready::default(), Ready::READ);
            // Where the kernel watches nothing more either, the pause goes on.
            let again = now.checked_add(Duration::from_millis(ACCEPT_PAUSE_MS));
            self.resumes = again.filter(|_| watched.is_err());
        }
    }

    /// When workers are let in again.
    pub fn resumes(&self) -> Option<Instant> {
        self.resumes
    }

    fn remove(&mut self, poll: &Poll, place: Place) {
        if let Some(seat) = self.seats.remove(place) {
            poll.forget(&seat.side, Source::Side(place), Ready::READ);
            if let Some(output) = &seat.output {
                poll.forget(output, Source::Output(place), Ready::READ);
            }
        }
    }
}

impl Seat {
    fn read_from(&mut self, poll: &Poll, output: OwnedFd) {
        let source = Source::Output(self.place);
        if poll
            .watch(&output, source, Ready::default(), Ready::READ)
            .is_ok()
        {
            self.output = Some(output);
        }
    }
}

impl Driver {
    /// Let workers in, and hear who they are.
    pub fn let_sides_in(&mut self) {
        self.sides.accept(&self.poll);
        for place in std::mem::take(&mut self.sides.strangers) {
            self.read_side(place);
            let stranger = |seat: &mut Seat| seat.slot.is_none();
            if self.sides.get(place).is_some_and(stranger) {
                self.sides.strangers.push(place);
            }
        }
    }

    /// A worker has something to tell. True: it may have more.
    pub fn read_side(&mut self, place: Place) -> bool {
        let mut desk = std::mem::take(&mut self.sides.desk);
        let mut more = true;
        for _ in 0..RECORDS_A_TURN {
            let Some(seat) = self.sides.seats.get_mut(place) else {
                more = false;
                break;
            };
            match seat.side.receive(&mut desk) {
                Ok(Received::Record(record)) => self.take_record(place, record),
                Ok(Received::Nothing) => {
                    more = false;
                    break;
                }
                Ok(Received::End) | Err(_) => {
                    // Its last words lie in the pipe still.
                    self.read_output(place, OUTPUT_BYTES_A_TURN);
                    self.leave_side(place);
                    more = false;
                    break;
                }
            }
        }
        self.sides.desk = desk;
        more
    }

    fn take_record(&mut self, place: Place, record: Record<'_>) {
        match record {
            Record::Hello {
                slot,
                nonce,
                output,
            } => self.greet(place, slot, nonce, output),
            Record::Log { id, attempt, bytes } if self.is_of(place, id, attempt) => {
                self.log(id, bytes);
            }
            Record::Returned { call } => self.take_returned(place, call),
            Record::Progress { id, attempt, map } if self.is_of(place, id, attempt) => {
                self.progress(id, map);
            }
            Record::Warning { id, attempt, text } if self.is_of(place, id, attempt) => {
                self.log(id, format!("[forebay: {text}]\n").as_bytes());
            }
            // Of a run that has ended, or is none of this worker's.
            Record::Log { .. } | Record::Progress { .. } | Record::Warning { .. } => {}
        }
    }

    fn greet(&mut self, place: Place, slot: Slot, nonce: u64, output: OwnedFd) {
        let worker = self.workers.get_mut(slot);
        let Some(worker) = worker.filter(|worker| worker.nonce == nonce) else {
            return self.leave_side(place); // of another server, or of a worker that was given up
        };
        worker.side = Some(place);
        if let Some(seat) = self.sides.get(place) {
            seat.slot = Some(slot);
            seat.read_from(&self.poll, output);
        }
    }

    fn is_of(&mut self, place: Place, id: RequestId, attempt: u32) -> bool {
        let slot = self.sides.get(place).and_then(|seat| seat.slot);
        let worker = slot.and_then(|slot| self.workers.get(slot));
        worker.is_some_and(|worker| worker.side == Some(place) && worker.runs((id, attempt)))
    }

    /// A worker has given a run back.
    fn take_returned(&mut self, place: Place, call: u64) {
        let Some(slot) = self.sides.get(place).and_then(|seat| seat.slot) else {
            return;
        };
        let serving = self.workers.get_mut(slot).and_then(Worker::serving_mut);
        if let Some((id, attempt)) = serving.and_then(|serving| serving.returned(call)) {
            self.machine.returned(self.now, slot, id, attempt);
        }
    }

    /// A worker's pipe has something.
    pub fn output_is_there(&mut self, place: Place) {
        let seat = self.sides.get(place);
        let slot = seat.as_ref().and_then(|seat| seat.slot);
        let handed = slot.and_then(|slot| self.workers.get(slot));
        let handed = handed.is_some_and(Worker::has_handed);
        let Some(slot) = slot.filter(|_| handed) else {
            return self.read_output(place, OUTPUT_BYTES_A_TURN);
        };
        // The pipe is empty whenever such a worker replies. So what is there before its replies are taken was written
        // by whichever run is the first one after that.
        let output = seat.and_then(|seat| seat.output.as_ref());
        let there = output.and_then(|output| rustix::io::ioctl_fionread(output).ok());
        self.read_worker(slot);
        let there = there.map_or(OUTPUT_BYTES_A_TURN, |there| {
            usize::try_from(there).unwrap_or(OUTPUT_BYTES_A_TURN)
        });
        // Nothing is there at the pipe's end, which the read then finds.
        self.read_output(place, there.max(1));
    }

    /// What a worker has written since: it belongs to what it runs, if that is one request.
    fn read_output(&mut self, place: Place, bytes_max: usize) {
        let mut buffer = std::mem::take(&mut self.sides.buffer);
        let mut left = bytes_max;
        while left > 0 {
            let Some(seat) = self.sides.seats.get_mut(place) else {
                break;
            };
            let (Some(output), slot) = (&seat.output, seat.slot) else {
                break;
            };
            match rustix::io::read(output, &mut buffer[..left.min(OUTPUT_READ_BYTES)]) {
                Ok(count) if count > 0 => {
                    left = left.saturating_sub(count);
                    self.take_output(slot, &buffer[..count]);
                }
                Err(Errno::AGAIN | Errno::INTR) => break,
                Ok(_) | Err(_) => {
                    if let Some(output) = seat.output.take() {
                        let source = Source::Output(place);
                        self.poll.forget(output.as_fd(), source, Ready::READ);
                    }
                    break;
                }
            }
        }
        self.sides.buffer = buffer;
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

    /// Take what a worker has said and written before its run or its process ended.
    pub fn empty_side(&mut self, slot: Slot) {
        let side = self.workers.get(slot).and_then(|worker| worker.side);
        if let Some(place) = side {
            // Many runs of one worker talk at once: one that never stops holds up its own end for so long.
            for _ in 0..RECORD_TURNS_AT_END {
                if !self.read_side(place) {
                    break;
                }
            }
            self.read_output(place, OUTPUT_BYTES_A_TURN);
        }
    }

    /// Take what a worker has said.
    pub fn read_side_of(&mut self, slot: Slot) {
        if let Some(place) = self.workers.get(slot).and_then(|worker| worker.side) {
            self.read_side(place);
        }
    }

    pub fn leave_side(&mut self, place: Place) {
        self.sides.remove(&self.poll, place);
    }
}
