//! Who drives a link: one thread that waits, or one port; the others follow until it hands on.
use std::os::fd::AsFd;
use std::sync::{Arc, MutexGuard};
use std::thread::{current, park_timeout};
use std::time::{Duration, Instant};

use forebay_transport::stream::Socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::far::Far;
use super::inner::{Inner, Lead, Seat};
use super::{Link, Until};
use crate::stream::batch::Batch;
use crate::stream::channel::Channel;
use crate::stream::deadline::Deadline;
use crate::stream::error::Error;
use crate::stream::port::{Core, Port};

/// After this a thread that follows looks for signals, which do not wake it.
const SIGNALS: Duration = Duration::from_millis(100);

impl<M: Send + Sync + 'static> Inner<M> {
    pub(super) fn is_led_by(&self, port: &Arc<Core<M>>) -> bool {
        match self.lead {
            Lead::Port(at) => Arc::ptr_eq(&self.seats[at].core, port),
            Lead::Nobody | Lead::Thread(_) => false,
        }
    }

    /// Whether this thread leads from here on.
    fn take_lead(&mut self) -> bool {
        let me = Lead::Thread(current().id());
        match self.lead {
            Lead::Nobody => {}
            // Whoever turns that port may be this very thread, or one that waits for it.
            Lead::Port(at) => self.unseat(at),
            lead @ Lead::Thread(_) => return lead == me,
        }
        self.lead = me;
        true
    }

    /// A port leads no more; its socket is not watched there.
    fn unseat(&mut self, at: usize) {
        self.lead = Lead::Nobody;
        let core = &self.seats[at].core;
        if let Some(channel) = &self.channel {
            core.forget(channel.socket());
        }
        for socket in self.far.iter().flat_map(Far::sockets) {
            core.forget(socket);
        }
    }

    /// Have a port lead.
    fn enthrone(&mut self, at: usize) {
        let Some(channel) = &self.channel else {
            self.lead = Lead::Nobody;
            return;
        };
        self.lead = Lead::Port(at);
        let seat = &self.seats[at];
        seat.core
            .watch(seat.place, channel.socket(), self.blocked, false);
        if let Some(far) = &self.far {
            seat.core.watch_far(seat.place, far.sockets());
        }
        if let Some(due) = self.due {
            seat.core.arm(due);
        }
        if self.again {
            seat.core.ring();
        }
    }

    /// Who leads does not need to: have somebody else do it who does, at best one that waits at this moment.
    fn hand_on(&mut self) {
        if let Lead::Port(at) = self.lead {
            self.unseat(at);
        }
        self.lead = Lead::Nobody;
        if let Some(at) = self.waited() {
            self.enthrone(at);
        } else if let Some(follower) = self.followers.pop_front() {
            follower.unpark();
        } else if let Some(at) = self.seats.iter().position(|seat| seat.batches > 0) {
            self.enthrone(at);
        } else if !self.requester.is_idle()
            && let Some(at) = self.seats.iter().position(|seat| seat.keeps)
        {
            self.enthrone(at);
        }
    }

    /// A port with batches here that a thread sleeps in.
    fn waited(&self) -> Option<usize> {
        let waited = |seat: &Seat<M>| seat.batches > 0 && seat.core.is_waited();
        self.seats.iter().position(waited)
    }

    /// A thread is about to sleep in this port: nobody leads whom no thread turns.
    fn claim(&mut self, port: &Arc<Core<M>>) {
        let own = |seat: &Seat<M>| Arc::ptr_eq(&seat.core, port) && seat.batches > 0;
        let Some(at) = self.seats.iter().position(own) else {
            return;
        };
        match self.lead {
            Lead::Port(other) if other != at && !self.seats[other].core.is_waited() => {
                self.unseat(other);
                self.enthrone(at);
            }
            Lead::Nobody => self.enthrone(at),
            Lead::Port(_) | Lead::Thread(_) => {}
        }
    }

    /// This thread leads no more, if it did, and follows nobody.
    fn step_down(&mut self) {
        let me = current().id();
        self.unfollow();
        // It may have been called to lead while it made up its mind to leave.
        if matches!(self.lead, Lead::Nobody) || self.lead == Lead::Thread(me) {
            self.hand_on();
        }
    }

    fn unfollow(&mut self) {
        let me = current().id();
        self.followers.retain(|follower| follower.id() != me);
    }

    /// What follows from a turn for those who do not take part in it.
    pub(super) fn tell(&mut self) {
        let Lead::Port(at) = self.lead else {
            return;
        };
        let wanted = |seat: &Seat<M>| seat.batches > 0;
        let others = !self.followers.is_empty() || self.seats.iter().any(wanted);
        if self.seats[at].batches == 0 && (others || !self.is_open()) {
            return self.hand_on();
        }
        let seat = &self.seats[at];
        if let Some(channel) = &self.channel {
            seat.core
                .watch(seat.place, channel.socket(), self.blocked, true);
        }
        if let Some(due) = self.due {
            seat.core.arm(due);
        }
        if self.again {
            seat.core.ring();
        }
    }

    /// Where a port sits, from here on.
    fn seat(&mut self, link: &std::sync::Weak<Link<M>>, port: &Arc<Core<M>>) -> usize {
        let known = |seat: &Seat<M>| Arc::ptr_eq(&seat.core, port);
        self.seats.iter().position(known).unwrap_or_else(|| {
            self.seats.push(Seat {
                core: Arc::clone(port),
                place: port.seat(link),
                batches: 0,
                keeps: false,
            });
            self.seats.len() - 1
        })
    }

    /// A port has one batch more, which has not ended.
    pub(super) fn count(&mut self, link: &std::sync::Weak<Link<M>>, port: &Arc<Core<M>>) {
        let at = self.seat(link, port);
        self.seats[at].batches += 1;
        match self.lead {
            Lead::Nobody => self.enthrone(at),
            Lead::Port(other) if other != at && self.seats[other].batches == 0 => {
                self.unseat(other);
                self.enthrone(at);
            }
            Lead::Port(_) | Lead::Thread(_) => {}
        }
    }
}

impl<M: Send + Sync + 'static> Link<M> {
    /// Send what was asked for, and see to it that somebody receives what comes of it.
    pub(super) fn go(
        &self,
        mut inner: MutexGuard<'_, Inner<M>>,
        batch: &Arc<Batch<M>>,
        timeout: Option<Duration>,
    ) {
        inner.limit(batch, Instant::now(), timeout);
        self.send(inner);
    }

    /// Send what there is, and have whoever leads know what follows from it.
    pub(super) fn send(&self, mut inner: MutexGuard<'_, Inner<M>>) {
        let due = inner.due;
        inner.send(Instant::now());
        let sooner = inner.due.is_some_and(|at| due.is_none_or(|due| at < due));
        if matches!(inner.lead, Lead::Thread(_)) && (sooner || inner.blocked || inner.again) {
            self.ring(); // it sleeps on something else
        }
        inner.tell();
    }

    /// Have a port lead while nobody else does and the peer still has to answer: of what was given up the memory comes
    /// back then, at the latest with the connection's liveness.
    pub fn attend(&self, port: &Port<M>) {
        let Ok(mut inner) = self.lock() else {
            return;
        };
        if inner.requester.is_idle() {
            return;
        }
        let at = inner.seat(&self.own, &port.core);
        inner.seats[at].keeps = true;
        if matches!(inner.lead, Lead::Nobody) {
            inner.enthrone(at);
        }
    }

    /// A thread is about to sleep in a port.
    pub(in crate::stream) fn claim(&self, port: &Arc<Core<M>>) {
        if let Ok(mut inner) = self.lock() {
            inner.claim(port);
        }
    }

    /// The thread that slept in a port has other things to do: whoever waits leads in its place.
    pub(in crate::stream) fn rest(&self, port: &Arc<Core<M>>) {
        if let Ok(mut inner) = self.lock()
            && inner.is_led_by(port)
            && (inner.waited().is_some() || !inner.followers.is_empty())
        {
            inner.hand_on();
        }
    }

    /// A port is closed: it leads no more, and hears of nothing.
    pub(in crate::stream) fn leave(&self, port: &Arc<Core<M>>) {
        let Ok(mut inner) = self.lock() else {
            return;
        };
        let known = |seat: &Seat<M>| Arc::ptr_eq(&seat.core, port);
        let Some(at) = inner.seats.iter().position(known) else {
            return;
        };
        inner.seats[at].batches = 0;
        let leads = inner.lead == Lead::Port(at);
        if leads {
            inner.unseat(at);
        }
        inner.seats.remove(at);
        match inner.lead {
            Lead::Port(other) if other > at => inner.lead = Lead::Port(other - 1),
            _ if leads => inner.hand_on(),
            _ => {}
        }
    }

    /// Wait for a batch of this link, by driving it, or while somebody else does.
    ///
    /// # Errors
    ///
    /// [`Error::Deadline`], [`Error::Interrupted`], [`Error::Forked`]; the batch goes on then.
    pub fn wait(
        &self,
        batch: &Arc<Batch<M>>,
        until: Until,
        deadline: Option<Deadline>,
    ) -> Result<(), Error> {
        let reached = || batch.is_done() || (until == Until::More && batch.has_news());
        if reached() {
            return Ok(());
        }
        batch.wake(Some((current(), until == Until::More)));
        let waited = loop {
            let mut inner = self.lock()?;
            inner.unfollow();
            if reached() {
                break Ok(());
            }
            if let Some(deadline) = deadline
                && deadline.has_passed(Instant::now())
            {
                break Err(deadline.missed_by(&self.peer));
            }
            let slept = if inner.take_lead() {
                self.lead(inner, deadline)
            } else {
                inner.followers.push_back(current());
                drop(inner);
                follow(deadline)
            };
            if slept.is_err() {
                break slept;
            }
        };
        batch.wake(None);
        let mut inner = self.lock()?;
        inner.step_down();
        inner.tell();
        waited
    }

    /// Sleep on the socket, unless there is something to do at once, and do it.
    fn lead(
        &self,
        inner: MutexGuard<'_, Inner<M>>,
        deadline: Option<Deadline>,
    ) -> Result<(), Error> {
        let Some(watch) = inner.channel.as_ref().map(Channel::watch) else {
            return Ok(()); // it was closed, and everything has ended
        };
        let (again, blocked, due) = (inner.again, inner.blocked, inner.due);
        let mut look = inner.look;
        let far = inner.far.as_ref().map(|far| far.sockets().map(Arc::clone));
        drop(inner);
        let mut is_far = false;
        if !again {
            let mut interest = PollFlags::IN;
            interest.set(PollFlags::OUT, blocked);
            let until = [due, deadline.map(|deadline| deadline.due)]
                .into_iter()
                .flatten()
                .min();
            if far.is_some() {
                is_far = self.sleep((&watch, interest), far.as_ref(), until)?;
            } else {
                look.or_sleep(watch.as_fd(), || {
                    self.sleep((&watch, interest), None, until).map(drop)
                })?;
            }
        }
        let mut inner = self.lock()?;
        inner.look = look;
        if is_far {
            inner.turn_far_alone(Instant::now());
        } else {
            inner.turn(Instant::now());
        }
        Ok(())
    }

    /// Sleep until something has happened; whether it was something of the fabric alone.
    fn sleep(
        &self,
        (socket, interest): (&Socket, PollFlags),
        far: Option<&[Socket; 2]>,
        until: Option<Instant>,
    ) -> Result<bool, Error> {
        let timeout = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let [completed, lifeline] = far.map_or([&self.wake; 2], |far| [&*far[0], &*far[1]]);
        let mut watched = [
            PollFd::new(socket, interest),
            PollFd::new(&self.wake, PollFlags::IN),
            PollFd::new(completed, PollFlags::IN),
            PollFd::new(lifeline, PollFlags::RDHUP),
        ];
        let count = if far.is_some() { watched.len() } else { 2 };
        match poll(&mut watched[..count], timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Err(Error::Interrupted),
            Err(errno) => return Err(Error::system("poll")(errno)),
        }
        let [on_socket, woken, completed, ended] =
            watched.map(|watched| !watched.revents().is_empty());
        if woken {
            _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        Ok((completed || ended) && !on_socket && !woken)
    }
}

/// Sleep until the batch has news or this thread is to lead.
fn follow(deadline: Option<Deadline>) -> Result<(), Error> {
    let left = deadline.map(|deadline| deadline.due.saturating_duration_since(Instant::now()));
    let begun = Instant::now();
    park_timeout(left.unwrap_or(SIGNALS).min(SIGNALS));
    if begun.elapsed() < SIGNALS || left.is_some_and(|left| left < SIGNALS) {
        return Ok(());
    }
    Err(Error::Interrupted)
}
