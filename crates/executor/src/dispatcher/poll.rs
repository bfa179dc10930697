//! The dispatcher's epoll, whose tokens name what is watched.

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

/// A slot of a table, distinguished from its earlier uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotKey {
    pub number: u32,
    pub generation: u32,
}

impl SlotKey {
    /// The generation after this one.
    pub fn next_generation(generation: u32) -> u32 {
        (generation + 1) & ((1 << GENERATION_BITS) - 1)
    }
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    Commands,
    Store,
    Gauge,
    ClientListener,
    SideListener,
    SourceFiles,
    Client(SlotKey),
    Worker(SlotKey),
    /// The pidfd of a worker.
    Death(SlotKey),
    Side(SlotKey),
    /// The pipe of a worker's output.
    Output(SlotKey),
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
    found: Vec<(Token, Ready)>,
}

impl Poll {
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            found: Vec::with_capacity(EVENTS_MAX),
        })
    }

    /// Change what is watched of a descriptor from `before` to `wanted`. A descriptor of which nothing is wanted is
    /// removed, since a hang-up would be reported for ever.
    pub fn watch(
        &self,
        descriptor: impl AsFd,
        token: Token,
        before: Ready,
        wanted: Ready,
    ) -> Result<(), Errno> {
        let nothing = Ready::default();
        let data = EventData::new_u64(to_data(token));
        match (before == nothing, wanted == nothing) {
            _ if before == wanted => Ok(()),
            (_, true) => epoll::delete(&self.epoll, descriptor),
            (true, false) => epoll::add(&self.epoll, descriptor, data, flags_of(wanted)),
            (false, false) => epoll::modify(&self.epoll, descriptor, data, flags_of(wanted)),
        }
    }

    /// Watch a descriptor for reading as long as it lives.
    pub fn watch_for_good(&self, descriptor: impl AsFd, token: Token) -> crate::error::Result<()> {
        self.watch(descriptor, token, Ready::default(), Ready::READ)
            .map_err(Error::system("epoll_ctl"))
    }

    /// Stop watching a descriptor, which may be closed already.
    pub fn forget(&self, descriptor: impl AsFd, token: Token, before: Ready) {
        // Fails if it was not watched.
        let _ = self.watch(descriptor, token, before, Ready::default());
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
            let token = from_data(event.data.u64())?;
            Some((token, ready_of(event.flags)))
        });
        self.found.extend(found);
        Ok(())
    }

    /// An event of the last wait; `None` after the last one.
    pub fn event(&self, index: usize) -> Option<(Token, Ready)> {
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

fn to_data(token: Token) -> u64 {
    let nowhere = SlotKey {
        number: 0,
        generation: 0,
    };
    let (kind, key) = match token {
        Token::Commands => (0, nowhere),
        Token::Store => (1, nowhere),
        Token::Gauge => (2, nowhere),
        Token::ClientListener => (3, nowhere),
        Token::SideListener => (4, nowhere),
        Token::SourceFiles => (5, nowhere),
        Token::Client(key) => (6, key),
        Token::Worker(key) => (7, key),
        Token::Death(key) => (8, key),
        Token::Side(key) => (9, key),
        Token::Output(key) => (10, key),
    };
    kind << (32 + GENERATION_BITS) | u64::from(key.generation) << 32 | u64::from(key.number)
}

fn from_data(data: u64) -> Option<Token> {
    let key = SlotKey {
        number: u32::try_from(data & u64::from(u32::MAX)).ok()?,
        generation: u32::try_from(data >> 32 & ((1 << GENERATION_BITS) - 1)).ok()?,
    };
    Some(match data >> (32 + GENERATION_BITS) {
        0 => Token::Commands,
        1 => Token::Store,
        2 => Token::Gauge,
        3 => Token::ClientListener,
        4 => Token::SideListener,
        5 => Token::SourceFiles,
        6 => Token::Client(key),
        7 => Token::Worker(key),
        8 => Token::Death(key),
        9 => Token::Side(key),
        10 => Token::Output(key),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_watched_is_told_apart() {
        let key = SlotKey {
            number: u32::MAX,
            generation: SlotKey::next_generation((1 << GENERATION_BITS) - 3),
        };
        let sources = [
            Token::Commands,
            Token::SourceFiles,
            Token::Client(key),
            Token::Worker(key),
            Token::Death(key),
            Token::Side(key),
            Token::Output(key),
        ];
        for token in sources {
            assert_eq!(from_data(to_data(token)), Some(token));
        }
    }
}
