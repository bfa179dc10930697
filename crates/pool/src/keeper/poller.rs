//! Which descriptor wants attention, and whose it is.

use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;

use crate::clock::wait_of;
use crate::error::{Error, Result};

/// What happened to whom; `serial` tells a newer owner of the same id from an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// The control socket has a message, room, or its end.
    Control,
    /// The client's process ended.
    Client,
    /// A template reported.
    Report(u32, u32),
    /// A template's process ended.
    TemplateExit(u32, u32),
    /// A template wrote.
    TemplateOutput(u32, u32),
    /// A service's process ended.
    Exit(u32, u32),
    /// A service wrote.
    Output(u32, u32),
    /// A service reported a copy of itself.
    Branched(u32, u32),
    /// The directory of a starting service changed.
    File(u32, u32),
}

impl Token {
    /// Kind in the top byte, serial in the next three, id below.
    fn pack(self) -> u64 {
        let (kind, id, serial) = match self {
            Self::Control => (0, 0, 0),
            Self::Client => (1, 0, 0),
            Self::Report(id, serial) => (2, id, serial),
            Self::TemplateExit(id, serial) => (3, id, serial),
            Self::TemplateOutput(id, serial) => (4, id, serial),
            Self::Exit(id, serial) => (5, id, serial),
            Self::Output(id, serial) => (6, id, serial),
            Self::Branched(id, serial) => (7, id, serial),
            Self::File(id, serial) => (8, id, serial),
        };
        (kind << 56) | (u64::from(serial & SERIAL_MASK) << 32) | u64::from(id)
    }

    fn unpack(raw: u64) -> Option<Self> {
        let id = u32::try_from(raw & 0xffff_ffff).ok()?;
        let serial = u32::try_from((raw >> 32) & u64::from(SERIAL_MASK)).ok()?;
        Some(match raw >> 56 {
            0 => Self::Control,
            1 => Self::Client,
            2 => Self::Report(id, serial),
            3 => Self::TemplateExit(id, serial),
            4 => Self::TemplateOutput(id, serial),
            5 => Self::Exit(id, serial),
            6 => Self::Output(id, serial),
            7 => Self::Branched(id, serial),
            8 => Self::File(id, serial),
            _ => return None,
        })
    }
}

/// Serials wrap at 24 bits: far more than events that can be queued at once.
pub const SERIAL_MASK: u32 = 0xff_ffff;

/// An epoll set of tokens.
#[derive(Debug)]
pub struct Poller(OwnedFd);

impl Poller {
    /// An empty set.
    pub fn new() -> Result<Self> {
        epoll::create(epoll::CreateFlags::CLOEXEC)
            .map(Self)
            .map_err(Error::system("epoll_create1"))
    }

    /// Watch for something to read.
    pub fn add(&self, source: impl AsFd, token: Token) -> Result<()> {
        let data = epoll::EventData::new_u64(token.pack());
        epoll::add(&self.0, source, data, epoll::EventFlags::IN).map_err(Error::system("epoll_ctl"))
    }

    /// Watch for room to write too, or no longer.
    pub fn want_write(&self, source: impl AsFd, token: Token, wanted: bool) -> Result<()> {
        let flags = if wanted {
            epoll::EventFlags::IN | epoll::EventFlags::OUT
        } else {
            epoll::EventFlags::IN
        };
        let data = epoll::EventData::new_u64(token.pack());
        epoll::modify(&self.0, source, data, flags).map_err(Error::system("epoll_ctl"))
    }

    /// Stop watching; before the descriptor is closed, because copies of it keep a registration alive.
    pub fn remove(&self, source: impl AsFd) {
        let _ = epoll::delete(&self.0, source);
    }

    /// Wait for events, at most so many milliseconds.
    pub fn wait(&self, limit_ms: Option<u64>) -> Result<Vec<Token>> {
        let limit = limit_ms.map(wait_of);
        let mut events = Vec::with_capacity(64);
        match epoll::wait(&self.0, spare_capacity(&mut events), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::system("epoll_wait")(errno)),
        }
        Ok(events
            .iter()
            .filter_map(|event| Token::unpack(event.data.u64()))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_kernel() {
        let tokens = [
            Token::Control,
            Token::Client,
            Token::Report(7, 3),
            Token::Exit(u32::MAX, SERIAL_MASK),
        ];
        for token in tokens {
            assert_eq!(Token::unpack(token.pack()), Some(token));
        }
    }
}
