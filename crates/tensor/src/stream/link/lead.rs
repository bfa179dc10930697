//! Which thread or port drives a link: the leader. The others follow until it hands over.
//!
//! A link has no thread of its own, since a wake-up of another thread costs more than a small pull: the thread that
//! waits receives for itself and for all others. Two invariants keep that live:
//!
//! 1. While operations of a waiting thread or port are outstanding the link has a leader, or one follower was
//!    unparked to become it.
//! 2. No waiter depends on a port that is not turned, such as that of a busy event loop: a thread that begins to wait
//!    takes the lead from any port, and a port in which a thread sleeps takes it from one in which none does.
use std::os::fd::AsFd;
use std::sync::{Arc, MutexGuard, Weak};
use std::thread::{current, park_timeout};
use std::time::{Duration, Instant};

use forebay_base::time::{left, timespec};
use forebay_transport::stream::Socket;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::inner::{Inner, Lead, PortEntry};
use super::verbs::VerbsPulls;
use super::{Link, Until};
use crate::stream::batch::Batch;
use crate::stream::channel::Channel;
use crate::stream::deadline::Deadline;
use crate::stream::error::StreamError;
use crate::stream::port::{Core, Driven, Port};

/// How often a following thread returns to check for signals, which do not end `park_timeout`.
const SIGNALS: Duration = Duration::from_millis(100);

impl<M: Send + Sync + 'static> Inner<M> {
    pub(super) fn is_led_by(&self, port: &Arc<Core<M>>) -> bool {
        match self.lead {
            Lead::Port(at) => Arc::ptr_eq(&self.ports[at].core, port),
            Lead::None | Lead::Thread(_) => false,
        }
    }

    /// Take the lead; returns whether this thread has it now.
    fn take_lead(&mut self) -> bool {
        let me = Lead::Thread(current().id());
        match self.lead {
            Lead::None => {}
            // The port's thread may be this one, or wait for this one: either would never turn the port.
            Lead::Port(at) => self.clear_leader(at),
            lead @ Lead::Thread(_) => return lead == me,
        }
        self.lead = me;
        true
    }

    /// Take the lead from a port, and unwatch the sockets there: two watchers would receive the same bytes.
    fn clear_leader(&mut self, at: usize) {
        self.lead = Lead::None;
        let core = &self.ports[at].core;
        if let Some(channel) = &self.channel {
            core.unwatch(channel.socket());
        }
        for socket in self.verbs.iter().flat_map(VerbsPulls::sockets) {
            core.unwatch(socket);
        }
    }

    /// Give the lead to a port.
    fn set_leader(&mut self, at: usize) {
        let Some(channel) = &self.channel else {
            self.lead = Lead::None;
            return;
        };
        self.lead = Lead::Port(at);
        let entry = &self.ports[at];
        entry
            .core
            .watch(entry.link, channel.socket(), self.blocked, false);
        if let Some(verbs) = &self.verbs {
            entry.core.watch_verbs(entry.link, verbs.sockets());
        }
        if let Some(due) = self.due {
            entry.core.arm(due);
        }
        if self.again {
            entry.core.wake_up();
        }
    }

    /// Hand the lead to another candidate: preferably a port in which a thread sleeps now, then a following thread,
    /// then any port with batches, and finally one that drains canceled requests.
    fn hand_over(&mut self) {
        if let Lead::Port(at) = self.lead {
            self.clear_leader(at);
        }
        self.lead = Lead::None;
        if let Some(at) = self.waiting_port() {
            self.set_leader(at);
        } else if let Some(follower) = self.followers.pop_front() {
            follower.unpark();
        } else if let Some(at) = self.ports.iter().position(|entry| entry.batches > 0) {
            self.set_leader(at);
        } else if !self.requester.is_idle()
            && let Some(at) = self.ports.iter().position(|entry| entry.drains)
        {
            self.set_leader(at);
        }
    }

    /// A port with batches here in which a thread sleeps.
    fn waiting_port(&self) -> Option<usize> {
        let has_waiter = |entry: &PortEntry<M>| entry.batches > 0 && entry.core.has_waiter();
        self.ports.iter().position(has_waiter)
    }

    /// A thread is about to sleep in this port: it takes the lead from a port that no thread sleeps in.
    fn claim(&mut self, port: &Arc<Core<M>>) {
        let own = |entry: &PortEntry<M>| Arc::ptr_eq(&entry.core, port) && entry.batches > 0;
        let Some(at) = self.ports.iter().position(own) else {
            return;
        };
        match self.lead {
            Lead::Port(other) if other != at && !self.ports[other].core.has_waiter() => {
                self.clear_leader(other);
                self.set_leader(at);
            }
            Lead::None => self.set_leader(at),
            Lead::Port(_) | Lead::Thread(_) => {}
        }
    }

    /// This thread stops leading or following.
    fn step_down(&mut self) {
        let me = current().id();
        self.unfollow();
        // `hand_over` may have chosen this thread while it was returning: pass the lead on, or nothing would drive
        // the link.
        if matches!(self.lead, Lead::None) || self.lead == Lead::Thread(me) {
            self.hand_over();
        }
    }

    fn unfollow(&mut self) {
        let me = current().id();
        self.followers.retain(|follower| follower.id() != me);
    }

    /// After a turn: rearm the leading port, or hand over if it has no batches left and others have.
    pub(super) fn update_leader(&mut self) {
        let Lead::Port(at) = self.lead else {
            return;
        };
        let wanted = |entry: &PortEntry<M>| entry.batches > 0;
        let others = !self.followers.is_empty() || self.ports.iter().any(wanted);
        if self.ports[at].batches == 0 && (others || !self.is_open()) {
            return self.hand_over();
        }
        let entry = &self.ports[at];
        if let Some(channel) = &self.channel {
            entry
                .core
                .watch(entry.link, channel.socket(), self.blocked, true);
        }
        if let Some(due) = self.due {
            entry.core.arm(due);
        }
        if self.again {
            entry.core.wake_up();
        }
    }

    /// The index of a port in `ports`; adds it if necessary.
    fn port_index(&mut self, link: &Weak<Link<M>>, port: &Arc<Core<M>>) -> usize {
        let known = |entry: &PortEntry<M>| Arc::ptr_eq(&entry.core, port);
        self.ports.iter().position(known).unwrap_or_else(|| {
            self.ports.push(PortEntry {
                core: Arc::clone(port),
                link: port.register(Weak::<Link<M>>::clone(link)),
                batches: 0,
                drains: false,
            });
            self.ports.len() - 1
        })
    }

    /// A port has one more unfinished batch.
    pub(super) fn add_batch(&mut self, link: &Weak<Link<M>>, port: &Arc<Core<M>>) {
        let at = self.port_index(link, port);
        self.ports[at].batches += 1;
        match self.lead {
            Lead::None => self.set_leader(at),
            Lead::Port(other) if other != at && self.ports[other].batches == 0 => {
                self.clear_leader(other);
                self.set_leader(at);
            }
            Lead::Port(_) | Lead::Thread(_) => {}
        }
    }
}

impl<M: Send + Sync + 'static> Link<M> {
    /// Set the deadline of a batch, and send.
    pub(super) fn send_by(
        &self,
        mut inner: MutexGuard<'_, Inner<M>>,
        batch: &Arc<Batch<M>>,
        timeout: Option<Duration>,
    ) {
        inner.set_deadline(batch, Instant::now(), timeout);
        self.send(inner);
    }

    /// Send, and update the leader's interest.
    pub(super) fn send(&self, mut inner: MutexGuard<'_, Inner<M>>) {
        let due = inner.due;
        inner.send(Instant::now());
        let sooner = inner.due.is_some_and(|at| due.is_none_or(|due| at < due));
        if matches!(inner.lead, Lead::Thread(_)) && (sooner || inner.blocked || inner.again) {
            self.wakeup.raise(); // it sleeps with the former deadline and interest
        }
        inner.update_leader();
    }

    /// Have a port lead while the peer still has to answer and nothing else does: the memory of canceled operations
    /// comes back with the answer, at the latest when the peer is declared silent.
    pub fn keep_driving(&self, port: &Port<M>) {
        let Ok(mut inner) = self.lock() else {
            return;
        };
        if inner.requester.is_idle() {
            return;
        }
        let at = inner.port_index(&self.own, &port.core);
        inner.ports[at].drains = true;
        if matches!(inner.lead, Lead::None) {
            inner.set_leader(at);
        }
    }

    /// Wait for a batch of this link, driving the link unless another thread does.
    ///
    /// # Errors
    ///
    /// [`StreamError::Deadline`], [`StreamError::Interrupted`], [`StreamError::Forked`]; the batch continues.
    pub fn wait(
        &self,
        batch: &Arc<Batch<M>>,
        until: Until,
        deadline: Option<Deadline>,
    ) -> Result<(), StreamError> {
        let reached = || batch.is_done() || (until == Until::More && batch.has_arrivals());
        if reached() {
            return Ok(());
        }
        batch.set_waiter(Some((current(), until == Until::More)));
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
        batch.set_waiter(None);
        let mut inner = self.lock()?;
        inner.step_down();
        inner.update_leader();
        waited
    }

    /// Sleep on the socket unless there is work, then do one turn.
    fn lead(
        &self,
        inner: MutexGuard<'_, Inner<M>>,
        deadline: Option<Deadline>,
    ) -> Result<(), StreamError> {
        let Some(watch) = inner.channel.as_ref().map(Channel::watch) else {
            return Ok(()); // it is closed, and all operations have ended
        };
        let (again, blocked, due) = (inner.again, inner.blocked, inner.due);
        let mut look = inner.look;
        let verbs = inner
            .verbs
            .as_ref()
            .map(|verbs| verbs.sockets().map(Arc::clone));
        drop(inner);
        let mut is_verbs_alone = false;
        if !again {
            let mut interest = PollFlags::IN;
            interest.set(PollFlags::OUT, blocked);
            let until = [due, deadline.map(|deadline| deadline.due)]
                .into_iter()
                .flatten()
                .min();
            if verbs.is_some() {
                is_verbs_alone = self.sleep((&watch, interest), verbs.as_ref(), until)?;
            } else {
                look.or_sleep(watch.as_fd(), || {
                    self.sleep((&watch, interest), None, until).map(drop)
                })?;
            }
        }
        let mut inner = self.lock()?;
        inner.look = look;
        if is_verbs_alone {
            inner.turn_verbs_alone(Instant::now());
        } else {
            inner.turn(Instant::now());
        }
        Ok(())
    }

    /// Sleep until an event; returns whether it was one of the verbs connection only.
    fn sleep(
        &self,
        (socket, interest): (&Socket, PollFlags),
        verbs: Option<&[Socket; 2]>,
        until: Option<Instant>,
    ) -> Result<bool, StreamError> {
        let timeout = left(until).map(timespec);
        let wakeup = self.wakeup.as_fd();
        let [completed, lifeline] =
            verbs.map_or([wakeup; 2], |sockets| sockets.each_ref().map(AsFd::as_fd));
        let mut watched = [
            PollFd::new(socket, interest),
            PollFd::from_borrowed_fd(wakeup, PollFlags::IN),
            PollFd::from_borrowed_fd(completed, PollFlags::IN),
            PollFd::from_borrowed_fd(lifeline, PollFlags::RDHUP),
        ];
        let count = if verbs.is_some() { watched.len() } else { 2 };
        match poll(&mut watched[..count], timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Err(StreamError::Interrupted),
            Err(errno) => return Err(StreamError::system("poll")(errno)),
        }
        let [on_socket, woken, completed, ended] =
            watched.map(|watched| !watched.revents().is_empty());
        if woken {
            self.wakeup.clear();
        }
        Ok((completed || ended) && !on_socket && !woken)
    }
}

impl<M: Send + Sync + 'static> Driven<M> for Link<M> {
    fn turn_of(&self, port: &Arc<Core<M>>, now: Instant) {
        if let Ok(mut inner) = self.lock()
            && inner.is_led_by(port)
        {
            inner.turn(now);
            inner.update_leader();
        }
    }

    fn claim_lead(&self, port: &Arc<Core<M>>) {
        if let Ok(mut inner) = self.lock() {
            inner.claim(port);
        }
    }

    fn yield_lead(&self, port: &Arc<Core<M>>) {
        if let Ok(mut inner) = self.lock()
            && inner.is_led_by(port)
            && (inner.waiting_port().is_some() || !inner.followers.is_empty())
        {
            inner.hand_over();
        }
    }

    fn remove_port(&self, port: &Arc<Core<M>>) {
        let Ok(mut inner) = self.lock() else {
            return;
        };
        let known = |entry: &PortEntry<M>| Arc::ptr_eq(&entry.core, port);
        let Some(at) = inner.ports.iter().position(known) else {
            return;
        };
        inner.ports[at].batches = 0;
        let leads = inner.lead == Lead::Port(at);
        if leads {
            inner.clear_leader(at);
        }
        inner.ports.remove(at);
        match inner.lead {
            Lead::Port(other) if other > at => inner.lead = Lead::Port(other - 1),
            _ if leads => inner.hand_over(),
            _ => {}
        }
    }
}

/// Sleep until the batch makes progress or this thread should lead.
fn follow(deadline: Option<Deadline>) -> Result<(), StreamError> {
    let left = deadline.map(|deadline| deadline.due.saturating_duration_since(Instant::now()));
    let begun = Instant::now();
    park_timeout(left.unwrap_or(SIGNALS).min(SIGNALS));
    if begun.elapsed() < SIGNALS || left.is_some_and(|left| left < SIGNALS) {
        return Ok(());
    }
    Err(StreamError::Interrupted)
}
