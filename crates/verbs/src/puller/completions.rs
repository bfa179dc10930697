//! How pulls and reads end: completions become arrivals, which the caller settles.
use std::mem;
use std::time::Instant;

use forebay_tensor::{Class, Error};

use super::pull::{Arrival, Kind};
use super::slot::Settled;
use super::{Posted, Puller};
use crate::link::Event;
use crate::wire::{Answer, Status};

impl Puller {
    /// Take arrivals, without waiting.
    ///
    /// # Errors
    ///
    /// Why the connection is over; [`Puller::break_off`] ends what is pending.
    pub fn poll(&mut self, arrivals: &mut Vec<Arrival>) -> Result<(), Error> {
        let mut events = mem::take(&mut self.events);
        let polled = self.link.poll(&mut events);
        self.take_events_of(events, arrivals)?;
        polled.map(|_| ())
    }

    /// Like [`Puller::poll`], but waits for an arrival until `deadline`.
    /// Completions of this end's operations wake it too: it may return without an arrival.
    ///
    /// # Errors
    ///
    /// As [`Puller::poll`].
    pub fn wait(
        &mut self,
        arrivals: &mut Vec<Arrival>,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        if !self.ready.is_empty() {
            return self.poll(arrivals);
        }
        let mut events = mem::take(&mut self.events);
        let waited = self.link.wait(&mut events, deadline);
        self.take_events_of(events, arrivals)?;
        waited
    }

    /// Like [`Puller::poll`], for an event loop that watches [`Puller::as_fd`](std::os::fd::AsFd::as_fd): afterwards
    /// the descriptor becomes readable with the next completion. The loop must watch the stream for its end too.
    ///
    /// # Errors
    ///
    /// As [`Puller::poll`].
    pub fn turn(&mut self, arrivals: &mut Vec<Arrival>) -> Result<(), Error> {
        let mut events = mem::take(&mut self.events);
        let turned = self.link.turn(&mut events);
        self.take_events_of(events, arrivals)?;
        turned
    }

    fn take_events_of(
        &mut self,
        mut events: Vec<Event<Posted>>,
        arrivals: &mut Vec<Arrival>,
    ) -> Result<(), Error> {
        arrivals.append(&mut self.ready);
        let mut result = Ok(());
        for each in events.drain(..) {
            result = result.and(self.take(each, arrivals));
        }
        self.events = events; // keep its capacity
        result
    }

    fn take(&mut self, events: Event<Posted>, arrivals: &mut Vec<Arrival>) -> Result<(), Error> {
        match events {
            Event::Done(Posted::Request(slot)) => self.slots.sent(slot),
            Event::Done(Posted::Bound | Posted::Released { .. }) => {}
            Event::Done(Posted::Revoked { slot, error, .. }) => {
                arrivals.push(Arrival(Kind::Slot {
                    slot,
                    result: Err(error),
                }));
            }
            Event::Done(Posted::Read { token, into }) => {
                arrivals.push(Arrival(Kind::Read(Settled {
                    token,
                    into: Some(into),
                    result: Ok(()),
                })));
            }
            Event::Received { immediate, bytes } => {
                let answered =
                    Answer::decode(immediate).and_then(|answer| self.answered(answer, bytes));
                let arrival = answered.map_err(|error| self.link.fence(error))?;
                arrivals.extend(arrival);
            }
        }
        Ok(())
    }

    /// The pull that an answer ends; `None` if the pull was revoked before.
    fn answered(&mut self, answer: Answer, bytes: u32) -> Result<Option<Arrival>, Error> {
        if !self.slots.answer(answer, bytes)? {
            return Ok(None);
        }
        Ok(Some(Arrival(Kind::Slot {
            slot: answer.slot,
            result: refused(answer.status),
        })))
    }

    /// End an arrived pull, which frees its slot. `None` if [`Puller::break_off`] has ended it.
    pub fn settle(&mut self, arrival: Arrival) -> Option<Settled> {
        match arrival.0 {
            Kind::Slot { slot, result } => self.slots.settle(slot, result),
            Kind::Read(settled) => Some(settled),
        }
    }
}

fn refused(status: Status) -> Result<(), Error> {
    let (class, text) = match status {
        Status::Ok => return Ok(()),
        Status::Stale => (Class::Stale, "the tensor was dropped or replaced"),
        Status::OutOfRange => (
            Class::OutOfRange,
            "the tensor does not have all of these rows",
        ),
        Status::Room => (
            Class::Config,
            "the destination has another size than the rows",
        ),
        Status::NotInBlock => return Err(Error::NotInBlock),
        Status::Limit => (Class::Limit, "too many tensors are exposed to this peer"),
    };
    Err(Error::Refused {
        class,
        text: text.to_owned(),
    })
}
