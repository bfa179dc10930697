//! One epoll whose events name what they are about: a kind of the user's, and the key of a slot.
//!
//! An event never carries a descriptor's number or a pointer: between the moment at which the kernel queued it and the
//! one at which it is handled, the descriptor may have been closed and its number given to another connection. The key's
//! generation ([`crate::slots`]) makes such an event find nothing.
//!
//! Level-triggered: what is not read to its end is reported again by the next wait, so a bounded turn loses nothing.
//! Source: epoll(7), `epoll_ctl(2)`.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::slots::Key;
use crate::time::timespec;

/// Events of one wait; more come with the next.
pub const EVENTS_MAX: usize = 256;
const KIND_SHIFT: u32 = 56;

/// What a descriptor is to its user: a fieldless enum.
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Source { Listener, Client }
///
/// impl forebay_base::poll::Kind for Source {
///     const ALL: &'static [Self] = &[Self::Listener, Self::Client];
///     fn index(self) -> usize { self as usize }
/// }
/// ```
pub trait Kind: Copy + 'static {
    /// All kinds, at most 256, in the order of their indices.
    const ALL: &'static [Self];

    /// The place of this one in `ALL`.
    fn index(self) -> usize;
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<K> {
    /// What the descriptor is.
    pub kind: K,
    /// Whose it is; the default where there is one of the kind.
    pub key: Key,
}

impl<K: Kind> Token<K> {
    /// Of a descriptor that belongs to a slot.
    pub fn new(kind: K, key: Key) -> Self {
        Self { kind, key }
    }

    /// Of the only descriptor of a kind.
    pub fn only(kind: K) -> Self {
        Self::new(kind, Key::default())
    }

    fn pack(self) -> EventData {
        EventData::new_u64((self.kind.index() as u64) << KIND_SHIFT | self.key.to_bits())
    }

    fn unpack(data: EventData) -> Option<Self> {
        let bits = data.u64();
        let kind = *K::ALL.get(usize::try_from(bits >> KIND_SHIFT).ok()?)?;
        Some(Self::new(kind, Key::from_bits(bits)))
    }
}

/// What is wanted of a descriptor, or has come. A hang-up and an error are both, since either call reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Reading would not block.
    pub read: bool,
    /// Writing would not block.
    pub write: bool,
}

impl Ready {
    /// Neither: such a descriptor is not watched at all.
    pub const NOTHING: Self = Self {
        read: false,
        write: false,
    };
    /// Reading alone.
    pub const READ: Self = Self {
        read: true,
        write: false,
    };
    /// Both.
    pub const BOTH: Self = Self {
        read: true,
        write: true,
    };

    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, self.read);
        flags.set(EventFlags::OUT, self.write);
        flags
    }

    fn of(flags: EventFlags) -> Self {
        let gone = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        Self {
            read: gone || flags.contains(EventFlags::IN),
            write: gone || flags.contains(EventFlags::OUT),
        }
    }
}

/// One epoll, and what its last wait found.
#[derive(Debug)]
pub struct Poll<K> {
    epoll: OwnedFd,
    found: Vec<(Token<K>, Ready)>,
}

impl<K: Kind> Poll<K> {
    /// # Errors
    /// Those of `epoll_create1(2)`: as a rule no descriptor is left.
    pub fn new() -> Result<Self, Errno> {
        debug_assert!(
            K::ALL.len() <= 256 && (0..).zip(K::ALL).all(|(index, kind)| kind.index() == index)
        );
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            found: Vec::with_capacity(EVENTS_MAX),
        })
    }

    /// Watch a descriptor that is not watched.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`: no memory, or the limit of watches of this user.
    pub fn add(&self, descriptor: impl AsFd, token: Token<K>, wanted: Ready) -> Result<(), Errno> {
        epoll::add(&self.epoll, descriptor, token.pack(), wanted.flags())
    }

    /// Watch a descriptor that is not watched for the peer's end alone: bytes that come cause no event.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn add_for_end(&self, descriptor: impl AsFd, token: Token<K>) -> Result<(), Errno> {
        epoll::add(&self.epoll, descriptor, token.pack(), EventFlags::RDHUP)
    }

    /// Change what is wanted of a descriptor, from `before` to `wanted`. No system call where they are equal.
    ///
    /// Where nothing is wanted the descriptor is not watched at all, since a hang-up would be reported for ever.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn change(
        &self,
        descriptor: impl AsFd,
        token: Token<K>,
        before: Ready,
        wanted: Ready,
    ) -> Result<(), Errno> {
        match (before, wanted) {
            _ if before == wanted => Ok(()),
            (_, Ready::NOTHING) => epoll::delete(&self.epoll, descriptor),
            (Ready::NOTHING, _) => self.add(descriptor, token, wanted),
            _ => epoll::modify(&self.epoll, descriptor, token.pack(), wanted.flags()),
        }
    }

    /// Stop watching, before the descriptor is closed: a copy of it in another process keeps a watch alive.
    ///
    /// No error: that it was not watched is what is wanted.
    pub fn remove(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Sleep until something is ready, at most for `timeout`; without one for ever. Forgets what the wait before found.
    ///
    /// A signal ends it early, with nothing found. Cost: one system call, no allocation.
    ///
    /// # Errors
    /// Those of `epoll_wait(2)` but `INTR`.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<(), Errno> {
        self.found.clear();
        let timeout = timeout.map(timespec);
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        match epoll::wait(&self.epoll, &mut room, timeout.as_ref()) {
            Ok((events, _)) => {
                let found = events.iter().filter_map(|event| {
                    // Only tokens were given to the kernel, so each one unpacks.
                    Some((Token::unpack(event.data)?, Ready::of(event.flags)))
                });
                self.found.extend(found);
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// The event at a place of what the last wait found, so that its handling may change the poll; `None` behind the last.
    pub fn event(&self, index: usize) -> Option<(Token<K>, Ready)> {
        self.found.get(index).copied()
    }
}

impl<K> AsFd for Poll<K> {
    /// For a loop that watches this poll among others: readable while an event waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Source {
        Listener,
        Client,
    }

    impl Kind for Source {
        const ALL: &'static [Self] = &[Self::Listener, Self::Client];

        fn index(self) -> usize {
            self as usize
        }
    }

    const KEY: Key = Key {
        index: u32::MAX,
        generation: 0x00ff_ffff,
    };

    #[test]
    fn tokens_survive_the_kernel() {
        for token in [
            Token::only(Source::Listener),
            Token::new(Source::Client, KEY),
        ] {
            assert_eq!(Token::unpack(token.pack()), Some(token));
        }
        assert_eq!(
            Token::<Source>::unpack(EventData::new_u64(2 << KIND_SHIFT)),
            None
        );
    }

    #[test]
    fn a_wait_finds_what_is_wanted_alone() {
        let mut poll = Poll::new().expect("an epoll");
        let (here, mut there) = UnixStream::pair().expect("sockets");
        let token = Token::new(Source::Client, KEY);
        poll.add(&here, token, Ready::READ).expect("watched");
        poll.wait(Some(Duration::ZERO)).expect("no error");
        assert_eq!(poll.event(0), None);
        there.write_all(b"x").expect("room");
        poll.wait(None).expect("no error");
        assert_eq!(poll.event(0), Some((token, Ready::READ)));
        assert_eq!(poll.event(1), None);
        poll.change(&here, token, Ready::READ, Ready::NOTHING)
            .expect("watched");
        poll.wait(Some(Duration::ZERO)).expect("no error");
        assert_eq!(poll.event(0), None);
    }

    #[test]
    fn an_end_is_found_without_the_bytes_before_it() {
        let mut poll = Poll::new().expect("an epoll");
        let (here, mut there) = UnixStream::pair().expect("sockets");
        let token = Token::new(Source::Client, KEY);
        poll.add_for_end(&here, token).expect("watched");
        there.write_all(b"x").expect("room");
        poll.wait(Some(Duration::ZERO)).expect("no error");
        assert_eq!(poll.event(0), None);
        there.shutdown(Shutdown::Write).expect("connected");
        poll.wait(None).expect("no error");
        assert_eq!(poll.event(0), Some((token, Ready::NOTHING)));
    }

    #[test]
    fn a_hang_up_is_told_to_readers_and_writers() {
        let mut poll = Poll::new().expect("an epoll");
        let (here, there) = UnixStream::pair().expect("sockets");
        let token = Token::only(Source::Listener);
        poll.add(&here, token, Ready::READ).expect("watched");
        drop(there);
        poll.wait(None).expect("no error");
        assert_eq!(poll.event(0), Some((token, Ready::BOTH)));
        poll.remove(&here);
        poll.remove(&here); // not watched any more, which is no error
    }
}
