//! What the dispatcher sleeps on: one epoll, and names for what it watches.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::error::Error;

/// Events of one turn.
const EVENTS_MAX: usize = 256;
const GENERATION_BITS: u32 = 24;

/// A place in a table, told from its use before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    pub number: u32,
    pub generation: u32,
}

impl Place {
    /// The generation after this one.
    pub fn next_generation(generation: u32) -> u32 {
        (generation + 1) & ((1 << GENERATION_BITS) - 1)
    }
}

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Commands,
    Store,
    Gauge,
    Listener,
    SideDoor,
    Files,
    Client(Place),
    Worker(Place),
    /// The pidfd of a worker.
    Death(Place),
    Side(Place),
    /// The pipe of a worker's output.
    Output(Place),
}

/// What is wanted of a descriptor, or has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    pub read: bool,
    pub write: bool,
}

impl Ready {
    pub const READ: Self = Self {
        read: true,
        write: false,
    };
}

/// One epoll.
#[derive(Debug)]
pub struct Poll {
    epoll: OwnedFd,
    found: Vec<(Source, Ready)>,
}

impl Poll {
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            found: Vec::with_capacity(EVENTS_MAX),
        })
    }

    /// Change what is watched of a descriptor, from `before` to `wanted`; nothing wanted is not watched at all,
    /// since a hang-up would be reported for ever.
    pub fn watch(
        &self,
        descriptor: impl AsFd,
        source: Source,
        before: Ready,
        wanted: Ready,
    ) -> Result<(), Errno> {
        let nothing = Ready::default();
        let data = EventData::new_u64(to_data(source));
        match (before == nothing, wanted == nothing) {
            _ if before == wanted => Ok(()),
            (_, true) => epoll::delete(&self.epoll, descriptor),
            (true, false) => epoll::add(&self.epoll, descriptor, data, flags_of(wanted)),
            (false, false) => epoll::modify(&self.epoll, descriptor, data, flags_of(wanted)),
        }
    }

    /// Watch what is read from for as long as this lives.
    pub fn watch_for_good(
        &self,
        descriptor: impl AsFd,
        source: Source,
    ) -> crate::error::Result<()> {
        self.watch(descriptor, source, Ready::default(), Ready::READ)
            .map_err(Error::system("epoll_ctl"))
    }

    /// Watch a descriptor no more, which may be gone already.
    pub fn forget(&self, descriptor: impl AsFd, source: Source, before: Ready) {
        // Refused where it was not watched, which is what is wanted.
        let _ = self.watch(descriptor, source, before, Ready::default());
    }

    /// Sleep until something is ready, at most for a time. A signal ends it too.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), Errno> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        self.found.clear();
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        let events = match epoll::wait(&self.epoll, &mut room, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        let found = events.iter().filter_map(|event| {
            let source = from_data(event.data.u64())?;
            Some((source, ready_of(event.flags)))
        });
        self.found.extend(found);
        Ok(())
    }

    /// What the last wait found, by its place: ends with `None`.
    pub fn event(&self, index: usize) -> Option<(Source, Ready)> {
        self.found.get(index).copied()
    }
}

fn ready_of(flags: EventFlags) -> Ready {
    let gone = flags.intersects(EventFlags::HUP | EventFlags::ERR);
    Ready {
        read: gone || flags.contains(EventFlags::IN),
        write: gone || flags.contains(EventFlags::OUT),
    }
}

fn flags_of(wanted: Ready) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, wanted.read);
    flags.set(EventFlags::OUT, wanted.write);
    flags
}

fn to_data(source: Source) -> u64 {
    let nowhere = Place {
        number: 0,
        generation: 0,
    };
    let (kind, place) = match source {
        Source::Commands => (0, nowhere),
        Source::Store => (1, nowhere),
        Source::Gauge => (2, nowhere),
        Source::Listener => (3, nowhere),
        Source::SideDoor => (4, nowhere),
        Source::Files => (5, nowhere),
        Source::Client(place) => (6, place),
        Source::Worker(place) => (7, place),
        Source::Death(place) => (8, place),
        Source::Side(place) => (9, place),
        Source::Output(place) => (10, place),
    };
    kind << (32 + GENERATION_BITS) | u64::from(place.generation) << 32 | u64::from(place.number)
}

fn from_data(data: u64) -> Option<Source> {
    let place = Place {
        number: u32::try_from(data & u64::from(u32::MAX)).ok()?,
        generation: u32::try_from(data >> 32 & ((1 << GENERATION_BITS) - 1)).ok()?,
    };
    Some(match data >> (32 + GENERATION_BITS) {
        0 => Source::Commands,
        1 => Source::Store,
        2 => Source::Gauge,
        3 => Source::Listener,
        4 => Source::SideDoor,
        5 => Source::Files,
        6 => Source::Client(place),
        7 => Source::Worker(place),
        8 => Source::Death(place),
        9 => Source::Side(place),
        10 => Source::Output(place),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_is_told_apart() {
        let place = Place {
            number: u32::MAX,
            generation: Place::next_generation((1 << GENERATION_BITS) - 3),
        };
        let sources = [
            Source::Commands,
            Source::Files,
            Source::Client(place),
            Source::Worker(place),
            Source::Death(place),
            Source::Side(place),
            Source::Output(place),
        ];
        for source in sources {
            assert_eq!(from_data(to_data(source)), Some(source));
        }
    }
}
