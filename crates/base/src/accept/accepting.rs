//! Whether a loop accepts: the watch of its listening sockets, and the pauses.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::poll::{Kind, Poll, Ready, Token};
use crate::slots::Key;

/// How long accepting pauses: no event reports that the process has a descriptor again.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether a loop watches its listening sockets.
///
/// A loop that has no room for another connection stops, and one that has no descriptor for it pauses: the connection
/// stays in the queue, and the event for it would come back at once. Each call names the same sockets, which are the
/// loop's; for others it begins anew. The index of the key in an event is the position of its socket among them.
#[derive(Debug, Default)]
pub struct Accepting {
    watched: bool,
    resume_at: Option<Instant>,
}

impl Accepting {
    /// Watch the sockets, unless they are watched. Ends a pause.
    ///
    /// # Errors
    /// Those of [`Poll::add`]; then none of the sockets is watched.
    pub fn start<K: Kind>(
        &mut self,
        poll: &Poll<K>,
        kind: K,
        sockets: impl IntoIterator<Item: AsFd> + Clone,
    ) -> Result<(), Errno> {
        if !self.watched {
            self.watched = watch(poll, kind, sockets)?;
        }
        self.resume_at = None;
        Ok(())
    }

    /// Watch the sockets again, unless a pause lasts. Where the kernel cannot watch them, a pause begins.
    pub fn resume<K: Kind>(
        &mut self,
        poll: &Poll<K>,
        kind: K,
        sockets: impl IntoIterator<Item: AsFd> + Clone,
    ) {
        if self.resume_at.is_none() && self.start(poll, kind, sockets).is_err() {
            self.resume_at = Some(Instant::now() + PAUSE);
        }
    }

    /// Stop watching the sockets.
    pub fn stop<K: Kind>(&mut self, poll: &Poll<K>, sockets: impl IntoIterator<Item: AsFd>) {
        if std::mem::take(&mut self.watched) {
            sockets.into_iter().for_each(|socket| poll.remove(socket));
        }
    }

    /// Stop watching the sockets for a while.
    pub fn pause<K: Kind>(&mut self, poll: &Poll<K>, sockets: impl IntoIterator<Item: AsFd>) {
        self.stop(poll, sockets);
        self.resume_at = Some(Instant::now() + PAUSE);
    }

    /// Whether a pause is over; returned once.
    pub fn ends_pause(&mut self, now: Instant) -> bool {
        self.resume_at.take_if(|due| *due <= now).is_some()
    }

    /// When the pause is over, if there is one.
    pub fn deadline(&self) -> Option<Instant> {
        self.resume_at
    }
}

/// Watch the sockets; whether there are any.
fn watch<K: Kind>(
    poll: &Poll<K>,
    kind: K,
    sockets: impl IntoIterator<Item: AsFd> + Clone,
) -> Result<bool, Errno> {
    let mut any = false;
    for (index, socket) in (0..).zip(sockets.clone()) {
        let key = Key {
            index,
            generation: 0,
        };
        if let Err(errno) = poll.add(socket, Token::new(kind, key), Ready::READ) {
            sockets.into_iter().for_each(|socket| poll.remove(socket));
            return Err(errno);
        }
        any = true;
    }
    Ok(any)
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Source {
        Listener,
    }

    impl Kind for Source {
        const ALL: &'static [Self] = &[Self::Listener];

        fn index(self) -> usize {
            self as usize
        }
    }

    /// Two sockets that are readable, since their peers are closed.
    fn readable() -> [OwnedFd; 2] {
        std::array::from_fn(|_| UnixStream::pair().expect("a pair").0.into())
    }

    /// The positions of the sockets that are watched.
    fn found(poll: &mut Poll<Source>) -> Vec<u32> {
        poll.wait(Some(Duration::ZERO)).expect("an epoll");
        let events = (0..).map_while(|index| poll.event(index));
        let mut found: Vec<_> = events.map(|(token, _)| token.key.index).collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn the_sockets_are_watched_by_their_positions_until_it_stops() {
        let (mut poll, sockets) = (Poll::new().expect("an epoll"), readable());
        let mut accepting = Accepting::default();
        for _ in 0..2 {
            let started = accepting.start(&poll, Source::Listener, &sockets);
            assert_eq!(started, Ok(())); // nothing the second time
            assert_eq!(found(&mut poll), [0, 1]);
        }
        for _ in 0..2 {
            accepting.stop(&poll, &sockets);
            assert_eq!(found(&mut poll), []);
        }
    }

    #[test]
    fn without_a_socket_nothing_is_watched() {
        let (mut poll, sockets) = (Poll::new().expect("an epoll"), readable());
        let mut accepting = Accepting::default();
        accepting.resume(&poll, Source::Listener, None::<&OwnedFd>);
        accepting.resume(&poll, Source::Listener, &sockets);
        assert_eq!(found(&mut poll), [0, 1]);
    }

    #[test]
    fn a_pause_lasts_for_its_time() {
        let (mut poll, sockets) = (Poll::new().expect("an epoll"), readable());
        let mut accepting = Accepting::default();
        accepting
            .start(&poll, Source::Listener, &sockets)
            .expect("watched");
        let before = Instant::now();
        accepting.pause(&poll, &sockets);
        let end = accepting.deadline().expect("a pause");
        assert!(end >= before + PAUSE);
        assert!(!accepting.ends_pause(before));
        accepting.resume(&poll, Source::Listener, &sockets);
        assert_eq!(found(&mut poll), []);
        assert!(accepting.ends_pause(end) && !accepting.ends_pause(end));
        assert_eq!(accepting.deadline(), None);
        accepting.resume(&poll, Source::Listener, &sockets);
        assert_eq!(found(&mut poll), [0, 1]);
    }

    #[test]
    fn a_start_ends_a_pause_before_its_time() {
        let (mut poll, sockets) = (Poll::new().expect("an epoll"), readable());
        let mut accepting = Accepting::default();
        accepting.pause(&poll, &sockets);
        accepting
            .start(&poll, Source::Listener, &sockets)
            .expect("watched");
        assert_eq!(accepting.deadline(), None);
        assert_eq!(found(&mut poll), [0, 1]);
    }

    #[test]
    fn sockets_that_cannot_be_watched_are_tried_again_after_a_pause() {
        let (mut poll, [first, second]) = (Poll::new().expect("an epoll"), readable());
        let mut accepting = Accepting::default();
        // A descriptor is watched once: the second time the kernel refuses it.
        accepting.resume(&poll, Source::Listener, [&first, &first]);
        assert_eq!(found(&mut poll), []);
        let end = accepting.deadline().expect("a pause");
        assert!(accepting.ends_pause(end));
        accepting.resume(&poll, Source::Listener, [&first, &second]);
        assert_eq!(found(&mut poll), [0, 1]);
    }
}
