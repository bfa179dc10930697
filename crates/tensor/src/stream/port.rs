//! How an event loop, or the thread that completes futures, drives links and learns of its finished batches.
//!
//! One descriptor is readable when anything is due: an `epoll` of the sockets of the links that this port leads, of a
//! timer for their deadlines, and of an eventfd for batches that finished while another thread or port led their
//! link.
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use forebay_base::time::timespec;
use forebay_base::wakeup::Wakeup;
use forebay_transport::drive::Look;
use forebay_transport::stream::Socket;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::error::StreamError;
use super::ready::ReadyList;

const EVENTS: usize = 64;

/// What an event of the port belongs to.
#[derive(Clone, Copy)]
enum Token {
    /// The ready list.
    Ready,
    Timer,
    /// The link with this index.
    Link(u32),
}

impl Token {
    fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Ready => 0,
            Self::Timer => 1,
            Self::Link(index) => 2 + u64::from(index),
        })
    }

    fn of(data: EventData) -> Option<Self> {
        match data.u64() {
            0 => Some(Self::Ready),
            1 => Some(Self::Timer),
            link => u32::try_from(link - 2).ok().map(Self::Link),
        }
    }
}

/// A link, as the port that drives it sees it.
pub(super) trait Driven<M>: Send + Sync {
    /// Take a turn, if the port leads the link.
    fn turn_of(&self, port: &Arc<Core<M>>, now: Instant);

    /// A thread is about to sleep in the port.
    fn claim_lead(&self, port: &Arc<Core<M>>);

    /// The thread that slept in the port returns: hand the lead to another waiter, if there is one.
    fn yield_lead(&self, port: &Arc<Core<M>>);

    /// The port is closed: remove it.
    fn remove_port(&self, port: &Arc<Core<M>>);
}

/// The part of a port that links refer to.
pub(super) struct Core<M> {
    pub(super) ready: Arc<ReadyList>,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// A thread sleeps in the port, or is about to.
    has_waiter: AtomicBool,
    state: Mutex<State<M>>,
}

struct State<M> {
    links: Vec<Weak<dyn Driven<M>>>,
    /// When the timer expires.
    armed: Option<Instant>,
    /// Whether a waiting thread spins for a while before it sleeps.
    look: Look,
}

impl<M> Core<M> {
    /// Register a link; returns its index, which its events carry.
    pub(super) fn register(&self, link: Weak<dyn Driven<M>>) -> u32 {
        let mut state = self.state();
        let free = state
            .links
            .iter()
            .position(|registered| registered.strong_count() == 0);
        let index = free.unwrap_or(state.links.len());
        if index == state.links.len() {
            state.links.push(link);
        } else {
            state.links[index] = link;
        }
        u32::try_from(index).expect("limits are below 2^32")
    }

    /// Watch a link's socket.
    pub(super) fn watch(&self, link: u32, socket: &OwnedFd, blocked: bool, added: bool) {
        let mut wanted = EventFlags::IN;
        wanted.set(EventFlags::OUT, blocked);
        let data = Token::Link(link).data();
        // Fails only without kernel memory; then the link is turned when the timer expires.
        _ = if added {
            epoll::modify(&self.epoll, socket, data, wanted)
        } else {
            epoll::add(&self.epoll, socket, data, wanted)
        };
    }

    /// Watch a link's verbs connection for completions and for its end.
    pub(super) fn watch_verbs(&self, link: u32, [completed, lifeline]: [&Socket; 2]) {
        let data = Token::Link(link).data();
        _ = epoll::add(&self.epoll, completed, data, EventFlags::IN); // as in `watch`
        _ = epoll::add(&self.epoll, lifeline, data, EventFlags::RDHUP);
    }

    pub(super) fn unwatch(&self, socket: &OwnedFd) {
        _ = epoll::delete(&self.epoll, socket); // fails if it was not watched, which is fine
    }

    /// Turn the links no later than `due`.
    pub(super) fn arm(&self, due: Instant) {
        let mut state = self.state();
        if state.armed.is_some_and(|armed| armed <= due) {
            return;
        }
        state.armed = Some(due);
        let until = due.saturating_duration_since(Instant::now());
        let once = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(until.max(Duration::from_nanos(1))), // zero would disarm the timer
        };
        _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    pub(super) fn has_waiter(&self) -> bool {
        self.has_waiter.load(Ordering::SeqCst)
    }

    /// Have the port turn at once.
    pub(super) fn wake_up(&self) {
        self.ready.wake_up();
    }

    fn state(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn link(&self, index: u32) -> Option<Arc<dyn Driven<M>>> {
        self.state().links.get(index as usize)?.upgrade()
    }
}

/// Drives links in the thread that calls [`Port::turn`] or [`Port::wait`]; one thread at a time.
///
/// A port leads a link while batches of the port are outstanding there, unless a thread that waits for its own batch
/// leads the link already.
pub struct Port<M: Send + Sync + 'static> {
    pub(super) core: Arc<Core<M>>,
    epoch: u64,
}

impl<M: Send + Sync + 'static> Port<M> {
    /// A port without links; `Link::start` adds them.
    ///
    /// # Errors
    ///
    /// [`StreamError::System`] if no descriptor is left: a port needs three.
    pub fn new() -> Result<Self, StreamError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(StreamError::system("epoll"))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags);
        let timer = timer.map_err(StreamError::system("timerfd"))?;
        let wakeup = Wakeup::new().map_err(|error| StreamError::eventfd(&error))?;
        let ready = ReadyList::new(wakeup);
        let watched = [(ready.as_fd(), Token::Ready), (timer.as_fd(), Token::Timer)];
        for (descriptor, token) in watched {
            epoll::add(&epoll, descriptor, token.data(), EventFlags::IN)
                .map_err(StreamError::system("epoll"))?;
        }
        Ok(Self {
            core: Arc::new(Core {
                ready: Arc::new(ready),
                epoll,
                timer,
                has_waiter: AtomicBool::new(false),
                state: Mutex::new(State {
                    links: Vec::new(),
                    armed: None,
                    look: Look::default(),
                }),
            }),
            epoch: forebay_memory::epoch(),
        })
    }

    /// Readable when [`Self::turn`] is due. The port owns it.
    pub fn fileno(&self) -> RawFd {
        self.core.epoll.as_raw_fd()
    }

    /// Do all work that needs no waiting, and append the tickets of batches with newly ended operations, each once.
    ///
    /// # Errors
    ///
    /// [`StreamError::Closed`], [`StreamError::Forked`], [`StreamError::System`].
    pub fn turn(&self, tickets: &mut Vec<u64>) -> Result<(), StreamError> {
        self.drive(false, tickets)
    }

    /// The same after sleeping until something is due; it may return without a ticket.
    ///
    /// # Errors
    ///
    /// As [`Self::turn`]; [`StreamError::Interrupted`].
    pub fn wait(&self, tickets: &mut Vec<u64>) -> Result<(), StreamError> {
        self.check()?;
        // Set before `claim_lead` looks at the links, and cleared before `yield_lead` does: of two ports that claim a
        // link concurrently, at least one sees the other's flag. The link's lock orders the two looks.
        self.core.has_waiter.store(true, Ordering::SeqCst);
        self.each_link(|link, port| link.claim_lead(port));
        let driven = self.drive(true, tickets);
        self.core.has_waiter.store(false, Ordering::SeqCst);
        self.each_link(|link, port| link.yield_lead(port));
        driven
    }

    fn each_link(&self, act: impl Fn(&dyn Driven<M>, &Arc<Core<M>>)) {
        let count = self.core.state().links.len();
        for link in (0..).take(count).filter_map(|index| self.core.link(index)) {
            act(&*link, &self.core);
        }
    }

    fn drive(&self, sleeps: bool, tickets: &mut Vec<u64>) -> Result<(), StreamError> {
        self.check()?;
        // An earlier turn may have consumed the wake-up of `close` and returned tickets: do not sleep again.
        let was_closed = self.core.ready.is_closed();
        if sleeps && !was_closed {
            self.sleep()?;
        }
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let (events, _) = match epoll::wait(
            &self.core.epoll,
            &mut events[..],
            Some(&timespec(Duration::ZERO)),
        ) {
            Ok(found) => found,
            Err(Errno::INTR) => return Err(StreamError::Interrupted),
            Err(errno) => return Err(StreamError::system("epoll_wait")(errno)),
        };
        self.core.ready.begin_turn();
        let now = Instant::now();
        for event in events {
            match Token::of(event.data) {
                Some(Token::Ready) => self.core.ready.clear_wakeup(),
                Some(Token::Timer) => self.expire(now),
                Some(Token::Link(index)) => {
                    if let Some(link) = self.core.link(index) {
                        link.turn_of(&self.core, now);
                    }
                }
                None => {}
            }
        }
        let is_closed = self.core.ready.end_turn(tickets);
        if is_closed && tickets.is_empty() {
            return Err(closed());
        }
        Ok(())
    }

    fn sleep(&self) -> Result<(), StreamError> {
        let mut look = self.core.state().look;
        let slept = look.await_input(self.core.epoll.as_fd(), None);
        self.core.state().look = look;
        slept.map_err(|errno| match errno {
            Errno::INTR => StreamError::Interrupted,
            errno => StreamError::system("poll")(errno),
        })
    }

    /// The timer has expired: turn all links.
    fn expire(&self, now: Instant) {
        _ = rustix::io::read(&self.core.timer, &mut [0; 8]);
        let links = {
            let mut state = self.core.state();
            state.armed = None;
            state.links.clone()
        };
        for link in links.iter().filter_map(Weak::upgrade) {
            link.turn_of(&self.core, now);
        }
    }

    /// Give the links up, and wake the thread that waits here. Idempotent. Does nothing in a forked child.
    pub fn close(&self) {
        if self.check().is_err() {
            return;
        }
        self.core.ready.close();
        let links = std::mem::take(&mut self.core.state().links);
        for link in links.iter().filter_map(Weak::upgrade) {
            link.remove_port(&self.core);
        }
        self.core.wake_up();
    }

    fn check(&self) -> Result<(), StreamError> {
        if self.epoch == forebay_memory::epoch() {
            return Ok(());
        }
        Err(StreamError::Forked {
            what: "the port".into(),
        })
    }
}

impl<M: Send + Sync + 'static> Drop for Port<M> {
    fn drop(&mut self) {
        self.close();
    }
}

fn closed() -> StreamError {
    StreamError::Closed {
        what: "the port".into(),
    }
}
