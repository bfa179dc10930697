//! One connection: a queue pair, its completions, and the stream that it was set up over.
//!
//! Operations complete in the order of posting (reliable connections guarantee that), so none is looked up by an id:
//! `P` describes each posted operation, and completions take them from the front.
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use forebay_base::time::{left, timespec};
use forebay_tensor::Error;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::discovery::Adapter;
use crate::sys::layout::{RECEIVED_WITH_IMMEDIATE, WorkCompletion};
use crate::sys::library::Library;
use crate::sys::pair::Pair;
use crate::wire::{Hello, SLOTS_MAX, protocol};

/// Completions taken at once.
const BATCH: usize = 64;

/// The stream that a connection was set up over. Its end means that the peer is gone; bytes on it after the set-up are
/// not read here.
pub trait Lifeline: Read + Write + AsFd + Send {}

impl<S: Read + Write + AsFd + Send> Lifeline for S {}

/// An event of a connection.
#[derive(Debug)]
pub(super) enum Event<P> {
    /// A posted operation has completed.
    Done(P),
    /// The peer has written `bytes`, with immediate data.
    Received { immediate: u32, bytes: u32 },
}

/// A connection; `P` describes posted operations.
pub(super) struct Link<P> {
    pair: Pair,
    posted: VecDeque<P>,
    posted_max: usize,
    /// Writes of the peer that may be in flight.
    received_max: usize,
    /// `None` if the caller watches for the peer's end.
    lifeline: Option<Box<dyn Lifeline>>,
    /// Why it is over.
    broken: Option<Error>,
}

/// A queue pair of this end that is not connected yet.
pub(super) struct Unconnected<P> {
    link: Link<P>,
    /// The introduction for the peer.
    pub(super) ours: Hello,
    port: u8,
    gid_index: u8,
}

impl<P> Unconnected<P> {
    /// At most `sends` operations are posted at once, and the peer may write with immediate data once per slot before
    /// this end takes the completions.
    pub(super) fn new(adapter: &Adapter, slots: u32, sends: u32) -> Result<Self, Error> {
        if slots == 0 || slots > SLOTS_MAX {
            return Err(Error::Config {
                setting: "slots",
                value: slots.into(),
                advice: "use 1 to 1024",
            });
        }
        let found = adapter.found();
        let pair = Pair::new(&adapter.domain, sends, slots)
            .map_err(|error| broken("no queue pair", &error))?;
        let random = RandomState::new().hash_one(pair.number()).to_le_bytes();
        let sequence = u32::from_le_bytes([random[0], random[1], random[2], 0]);
        let ours = Hello {
            address: adapter.address(pair.number(), sequence),
            slots,
        };
        let link = Link {
            pair,
            posted: VecDeque::with_capacity(sends as usize),
            posted_max: sends as usize,
            received_max: slots as usize,
            lifeline: None,
            broken: None,
        };
        Ok(Self {
            link,
            ours,
            port: found.port,
            gid_index: found.gid_index,
        })
    }

    /// Connect to the peer with this introduction. Without a `lifeline` the caller watches for the peer's end.
    pub(super) fn connect(
        mut self,
        peer: &Hello,
        lifeline: Option<Box<dyn Lifeline>>,
    ) -> Result<Link<P>, Error> {
        let (ours, pair) = (&self.ours, &mut self.link.pair);
        let (port, gid_index) = (self.port, self.gid_index);
        let mut ready = || {
            pair.initialise(port)?;
            for _ in 0..ours.slots {
                pair.post_receive()?; // before the peer can send: a write without a receive fails
            }
            pair.connect(port, gid_index, &ours.address, &peer.address)?;
            pair.start(&ours.address)
        };
        ready().map_err(|error| broken("the queue pair does not connect", &error))?;
        self.link.lifeline = lifeline;
        Ok(self.link)
    }
}

impl<P> Link<P> {
    /// Connect over `stream`: both ends call this.
    pub(super) fn connect(
        adapter: &Adapter,
        mut stream: Box<dyn Lifeline>,
        slots: u32,
        sends: u32,
    ) -> Result<(Self, Hello), Error> {
        let unconnected = Unconnected::new(adapter, slots, sends)?;
        let peer = unconnected.ours.exchange(&mut *stream)?;
        let link = unconnected.connect(&peer, Some(stream))?;
        Ok((link, peer))
    }

    /// The stream that it was connected over.
    pub(super) fn lifeline(&mut self) -> &mut dyn Lifeline {
        &mut **self.lifeline.as_mut().expect("connected over a stream")
    }

    /// Operations that have not completed, in the order of posting.
    pub(super) fn posted(&self) -> impl Iterator<Item = &P> {
        self.posted.iter()
    }

    /// Post an operation; `what` is returned in [`Event::Done`] when it has completed.
    pub(super) fn post<R>(
        &mut self,
        what: P,
        post: impl FnOnce(&mut Pair) -> io::Result<R>,
    ) -> Result<R, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        if self.posted.len() == self.posted_max {
            return Err(Error::Limit {
                limit: "operations posted at once",
                value: self.posted_max as u64 + 1,
                maximum: self.posted_max as u64,
                advice: "take completions first",
            });
        }
        match post(&mut self.pair) {
            Ok(result) => {
                self.posted.push_back(what);
                Ok(result)
            }
            Err(error) => Err(self.fence(broken("an operation was refused", &error))),
        }
    }

    /// Take up to [`BATCH`] completions; each receive is posted again before it is returned.
    /// Returns whether there may be more.
    pub(super) fn poll(&mut self, into: &mut Vec<Event<P>>) -> Result<bool, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let mut completions = [WorkCompletion::default(); BATCH];
        let count = self.pair.queue.poll(&mut completions);
        let count = count.map_err(|error| self.fence(broken("completions are lost", &error)))?;
        for completion in &completions[..count] {
            self.take(completion, into)?;
        }
        Ok(count == BATCH)
    }

    fn take(&mut self, completion: &WorkCompletion, into: &mut Vec<Event<P>>) -> Result<(), Error> {
        if completion.status != 0 {
            return Err(self.fence(Error::Broken {
                why: format!("the device reported: {}", status(completion.status)),
            }));
        }
        // Receives are posted again at once, so a peer that ignores its slots could keep this loop busy for ever.
        if into.len() > self.posted_max + self.received_max {
            return Err(self.fence(protocol("more writes than it has slots for")));
        }
        if completion.opcode == RECEIVED_WITH_IMMEDIATE {
            let again = self.pair.post_receive();
            again.map_err(|error| self.fence(broken("a receive was refused", &error)))?;
            into.push(Event::Received {
                immediate: u32::from_be(completion.immediate),
                bytes: completion.bytes,
            });
        } else {
            let what = self.posted.pop_front();
            into.push(Event::Done(
                what.expect("each posted operation completes once"),
            ));
        }
        Ok(())
    }

    /// Like [`Link::poll`], but sleeps until an event or the deadline; without an event the deadline has passed.
    pub(super) fn wait(
        &mut self,
        into: &mut Vec<Event<P>>,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        loop {
            self.poll(into)?;
            if !into.is_empty() {
                return Ok(());
            }
            self.arm()?;
            // Completions before the queue was armed cause no event.
            self.poll(into)?;
            if !into.is_empty() || !self.sleep(deadline)? {
                return Ok(());
            }
        }
    }

    /// Like [`Link::poll`], for an event loop: takes all completions, and the next one makes the descriptor readable.
    pub(super) fn turn(&mut self, into: &mut Vec<Event<P>>) -> Result<(), Error> {
        self.pair.queue.take_events();
        while self.poll(into)? {}
        self.arm()?;
        while self.poll(into)? {} // completions before the queue was armed cause no event
        Ok(())
    }

    fn arm(&mut self) -> Result<(), Error> {
        let armed = self.pair.queue.arm();
        armed.map_err(|error| self.fence(broken("completion events cannot be requested", &error)))
    }

    /// Readable when operations have completed since [`Link::turn`].
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.pair.queue.as_fd()
    }

    /// Sleep until an event; returns `false` if the deadline has passed.
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<bool, Error> {
        let timeout = left(deadline).map(timespec);
        let queue = PollFd::new(&self.pair.queue, PollFlags::IN);
        let mut watched = [queue.clone(), queue];
        let mut count = 1;
        if let Some(lifeline) = &self.lifeline {
            watched[1] = PollFd::from_borrowed_fd(lifeline.as_fd(), PollFlags::RDHUP);
            count = 2;
        }
        let woken = match poll(&mut watched[..count], timeout.as_ref()) {
            Err(Errno::INTR) => return Ok(true),
            woken => woken.map_err(|error| broken("waiting for the device", &error.into()))?,
        };
        let [completed, ended] = watched.map(|watched| !watched.revents().is_empty());
        if completed {
            self.pair.queue.take_events();
        } else if ended {
            return Err(self.fence(Error::Broken {
                why: "the peer is gone: its stream ended".to_owned(),
            }));
        }
        Ok(woken > 0)
    }

    /// Ensure that the peer can write nothing any more. Posted operations are over, completed or not.
    /// Returns why the connection is over: this error, or an earlier one.
    pub(super) fn fence(&mut self, error: Error) -> Error {
        if let Some(error) = &self.broken {
            return error.clone();
        }
        // If even this is refused the device is gone, and writes nothing.
        drop(self.pair.fail());
        self.broken = Some(error.clone());
        error
    }

    /// Fence the peer because this end closes.
    pub(super) fn close(&mut self) {
        let why = "it was closed here".to_owned();
        self.fence(Error::Broken { why });
    }

    /// Why it is over, if it is.
    pub(super) fn broken(&self) -> Option<&Error> {
        self.broken.as_ref()
    }
}

impl<P> fmt::Debug for Link<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("pair", &self.pair)
            .field("posted", &self.posted.len())
            .finish_non_exhaustive()
    }
}

pub(super) fn broken(what: &str, error: &io::Error) -> Error {
    Error::Broken {
        why: format!("{what}: {error}"),
    }
}

fn status(number: u32) -> String {
    Library::get().map_or_else(
        |_| number.to_string(),
        |library| library.status_text(number),
    )
}
