//! What a native listener does when time has passed: deadlines, pauses, and its end.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::Timespec;

use super::{Place, Reactor, Seat};
use crate::limit::NATIVE_GRACE_MS;
use crate::serve::peer::Ready;

impl Reactor {
    pub(super) fn timeout(&self) -> Timespec {
        let now = Instant::now();
        let mut until = self.looks.saturating_duration_since(now);
        if !self.again.is_empty() {
            until = Duration::ZERO;
        }
        let handshake = self.handshakes.front().map(|(due, _)| *due);
        let redial = self.redials.first().map(|(due, _, _)| *due);
        let dues = [handshake, redial, self.resumes, self.ends];
        for due in dues.into_iter().flatten() {
            until = until.min(due.saturating_duration_since(now));
        }
        Timespec {
            tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: until.subsec_nanos().into(),
        }
    }

    pub(super) fn keep_time(&mut self, now: Instant) {
        while let Some((due, place)) = self.handshakes.front().copied()
            && (due <= now || self.served(place).is_none_or(|served| served.met))
        {
            self.handshakes.pop_front();
            if self.served(place).is_some_and(|served| !served.met) {
                self.common.tally.late.fetch_add(1, Ordering::Relaxed);
                self.dismiss(place);
            }
        }
        if self.resumes.is_some_and(|due| due <= now) {
            self.resumes = None;
            self.welcome();
        }
        if self.redials.first().is_some_and(|(due, _, _)| *due <= now) {
            for (_, place, target) in std::mem::take(&mut self.redials) {
                if self.served(place).is_some() {
                    self.dial(place, target);
                    self.watch(place);
                }
            }
        }
        if self.looks <= now {
            self.looks = now + self.options.stall / 4;
            self.dismiss_stalled(now);
        }
    }

    fn dismiss_stalled(&mut self, now: Instant) {
        for place in self.places() {
            let stall = self.options.stall;
            let stalled = self.served(place).is_some_and(|served| {
                let position = served.peer.position();
                served.progress.has_stalled(now, position, stall)
            });
            if stalled {
                self.common.tally.stalled.fetch_add(1, Ordering::Relaxed);
                self.dismiss(place);
            }
        }
    }

    fn places(&self) -> Vec<Place> {
        let taken = |seat: &Seat| seat.taken.is_some();
        let numbered = self.seats.iter().zip(0u32..);
        numbered
            .filter(|(seat, _)| taken(seat))
            .map(|(seat, number)| Place {
                seat: number,
                generation: seat.generation,
            })
            .collect()
    }

    /// Whether the owner has closed and nothing is left to be answered, or its time is over.
    pub(super) fn is_done(&mut self) -> bool {
        if !self.common.closing.load(Ordering::Acquire) {
            return false;
        }
        let now = Instant::now();
        if self.ends.is_none() {
            self.ends = Some(now + Duration::from_millis(NATIVE_GRACE_MS));
            self.resumes = None;
            let _ = self.set_accepting(false);
            self.door = None;
            for place in self.places() {
                if let Some(served) = self.served(place) {
                    served.peer.close();
                    self.step(place, Ready::default(), Ready::default());
                }
            }
        }
        self.places().is_empty() || self.ends.is_some_and(|end| end <= now)
    }
}
