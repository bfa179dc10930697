//! Which thread or port drives a link: the leader. The others follow until it hands over.
//!
//! A link has no thread of its own, since a wake-up of another thread costs more than a small pull: the thread that
//! waits receives for itself and for all others. Two invariants keep that live:
//!
//! 1. While operations of a waiting thread or port are outstanding the link has a leader, or one follower was
//!    unparked to become it.
//! 2. No waiter depends on a port that is not turned, such as that of a busy event loop: a thread that begins to wait
//!    takes the lead from any port, and a port in which a thread sleeps takes it from one in which none does.
//!
//! `forebay_base::waiters`, by which threads wait for calls and for a shared pool, is another one: there the one driver
//! keeps the lead, and an answer wakes the thread that waits for it. Here several ports take the lead from each other, and a
//! batch wakes its own waiter. The queue of followers and the wake-up of the next is all that both have.
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::thread::{Thread, ThreadId, current};
use std::time::Instant;

use forebay_transport::stream::Socket;

use super::Link;
use crate::stream::port::Core;
use crate::stream::ready::ReadyList;

/// Which thread or port receives for the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    None,
    Thread(ThreadId),
    /// The port with this index in `ports`.
    Port(usize),
}

/// A port with batches of this link.
struct PortEntry<M> {
    core: Arc<Core<M>>,
    /// The index of the link at the port.
    link: u32,
    /// Batches of the port that have not ended.
    batches: usize,
    /// The port leads while there is no other candidate and requests are outstanding: for canceled batches, whose
    /// memory comes back only when the peer has answered.
    drains: bool,
}

/// What the next turn of a link waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wants {
    /// The socket is full.
    pub(super) blocked: bool,
    /// There is more to do without waiting.
    pub(super) again: bool,
    /// When the next turn is due without an event.
    pub(super) due: Option<Instant>,
}

impl Wants {
    /// Have a port turn in time.
    fn arm<M>(&self, port: &Core<M>) {
        if let Some(due) = self.due {
            port.arm(due);
        }
        if self.again {
            port.wake_up();
        }
    }
}

/// What a leading port watches for a link, and whether the peer has to answer.
pub(super) struct Interest<'a> {
    /// `None` once the link is closed or broken.
    pub(super) socket: Option<&'a Socket>,
    pub(super) verbs: Option<[&'a Socket; 2]>,
    pub(super) wants: Wants,
    /// Nothing is with the peer.
    pub(super) is_idle: bool,
}

/// The threads and ports of a link that wait for it.
pub(super) struct Drivers<M> {
    lead: Lead,
    /// Threads that wait while another thread or a port leads.
    followers: VecDeque<Thread>,
    ports: Vec<PortEntry<M>>,
}

impl<M> Drivers<M> {
    pub(super) fn new() -> Self {
        Self {
            lead: Lead::None,
            followers: VecDeque::new(),
            ports: Vec::new(),
        }
    }

    /// Whether a thread leads, which may sleep on the sockets.
    pub(super) fn has_leading_thread(&self) -> bool {
        matches!(self.lead, Lead::Thread(_))
    }

    /// This thread waits for the leader.
    pub(super) fn follow(&mut self) {
        self.followers.push_back(current());
    }

    /// Stop watching a socket in all ports.
    pub(super) fn unwatch(&self, socket: &OwnedFd) {
        for entry in &self.ports {
            entry.core.unwatch(socket);
        }
    }
}

impl<M: Send + Sync + 'static> Drivers<M> {
    pub(super) fn is_led_by(&self, port: &Arc<Core<M>>) -> bool {
        match self.lead {
            Lead::Port(at) => Arc::ptr_eq(&self.ports[at].core, port),
            Lead::None | Lead::Thread(_) => false,
        }
    }

    /// Take the lead; returns whether this thread has it now.
    pub(super) fn take_lead(&mut self, interest: &Interest<'_>) -> bool {
        let me = Lead::Thread(current().id());
        match self.lead {
            Lead::None => {}
            // The port's thread may be this one, or wait for this one: either would never turn the port.
            Lead::Port(at) => self.clear_leader(at, interest),
            lead @ Lead::Thread(_) => return lead == me,
        }
        self.lead = me;
        true
    }

    /// Take the lead from a port, and unwatch the sockets there: two watchers would receive the same bytes.
    fn clear_leader(&mut self, at: usize, interest: &Interest<'_>) {
        self.lead = Lead::None;
        let core = &self.ports[at].core;
        for socket in interest
            .socket
            .into_iter()
            .chain(interest.verbs.into_iter().flatten())
        {
            core.unwatch(socket);
        }
    }

    /// Give the lead to a port.
    fn set_leader(&mut self, at: usize, interest: &Interest<'_>) {
        let Some(socket) = interest.socket else {
            self.lead = Lead::None;
            return;
        };
        self.lead = Lead::Port(at);
        let entry = &self.ports[at];
        let blocked = interest.wants.blocked;
        entry.core.watch(entry.link, socket, blocked, false);
        if let Some(sockets) = interest.verbs {
            entry.core.watch_verbs(entry.link, sockets);
        }
        interest.wants.arm(&entry.core);
    }

    /// Hand the lead to another candidate: preferably a port in which a thread sleeps now, then a following thread,
    /// then any port with batches, and finally one that drains canceled requests.
    fn hand_over(&mut self, interest: &Interest<'_>) {
        if let Lead::Port(at) = self.lead {
            self.clear_leader(at, interest);
        }
        self.lead = Lead::None;
        if let Some(at) = self.waiting_port() {
            self.set_leader(at, interest);
        } else if let Some(follower) = self.followers.pop_front() {
            follower.unpark();
        } else if let Some(at) = self.ports.iter().position(|entry| entry.batches > 0) {
            self.set_leader(at, interest);
        } else if !interest.is_idle
            && let Some(at) = self.ports.iter().position(|entry| entry.drains)
        {
            self.set_leader(at, interest);
        }
    }

    /// A port with batches here in which a thread sleeps.
    fn waiting_port(&self) -> Option<usize> {
        let has_waiter = |entry: &PortEntry<M>| entry.batches > 0 && entry.core.has_waiter();
        self.ports.iter().position(has_waiter)
    }

    /// A thread is about to sleep in this port: it takes the lead from a port that no thread sleeps in.
    pub(super) fn claim(&mut self, port: &Arc<Core<M>>, interest: &Interest<'_>) {
        let own = |entry: &PortEntry<M>| Arc::ptr_eq(&entry.core, port) && entry.batches > 0;
        let Some(at) = self.ports.iter().position(own) else {
            return;
        };
        match self.lead {
            Lead::Port(other) if other != at && !self.ports[other].core.has_waiter() => {
                self.clear_leader(other, interest);
                self.set_leader(at, interest);
            }
            Lead::None => self.set_leader(at, interest),
            Lead::Port(_) | Lead::Thread(_) => {}
        }
    }

    /// This thread stops leading or following.
    pub(super) fn step_down(&mut self, interest: &Interest<'_>) {
        let me = current().id();
        self.unfollow();
        // `hand_over` may have chosen this thread while it was returning: pass the lead on, or nothing would drive
        // the link.
        if matches!(self.lead, Lead::None) || self.lead == Lead::Thread(me) {
            self.hand_over(interest);
        }
    }

    /// This thread does not follow, or no longer.
    pub(super) fn unfollow(&mut self) {
        let me = current().id();
        self.followers.retain(|follower| follower.id() != me);
    }

    /// After a turn: rearm the leading port, or hand over if it has no batches left and others have.
    pub(super) fn update(&mut self, interest: &Interest<'_>) {
        let Lead::Port(at) = self.lead else {
            return;
        };
        let wanted = |entry: &PortEntry<M>| entry.batches > 0;
        let others = !self.followers.is_empty() || self.ports.iter().any(wanted);
        if self.ports[at].batches == 0 && (others || interest.socket.is_none()) {
            return self.hand_over(interest);
        }
        let entry = &self.ports[at];
        if let Some(socket) = interest.socket {
            let blocked = interest.wants.blocked;
            entry.core.watch(entry.link, socket, blocked, true);
        }
        interest.wants.arm(&entry.core);
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
    pub(super) fn add_batch(
        &mut self,
        link: &Weak<Link<M>>,
        port: &Arc<Core<M>>,
        interest: &Interest<'_>,
    ) {
        let at = self.port_index(link, port);
        self.ports[at].batches += 1;
        match self.lead {
            Lead::None => self.set_leader(at, interest),
            Lead::Port(other) if other != at && self.ports[other].batches == 0 => {
                self.clear_leader(other, interest);
                self.set_leader(at, interest);
            }
            Lead::Port(_) | Lead::Thread(_) => {}
        }
    }

    /// A batch that this port drives has ended.
    pub(super) fn batch_ended(&mut self, ready: &Arc<ReadyList>) {
        let of = |entry: &&mut PortEntry<M>| Arc::ptr_eq(&entry.core.ready, ready);
        if let Some(entry) = self.ports.iter_mut().find(of) {
            entry.batches = entry.batches.saturating_sub(1);
        }
    }

    /// Have a port lead while requests are outstanding and nothing else does.
    pub(super) fn drain_by(
        &mut self,
        link: &Weak<Link<M>>,
        port: &Arc<Core<M>>,
        interest: &Interest<'_>,
    ) {
        let at = self.port_index(link, port);
        self.ports[at].drains = true;
        if matches!(self.lead, Lead::None) {
            self.set_leader(at, interest);
        }
    }

    /// Hand the lead of a port in which a thread slept to another waiter, if there is one.
    pub(super) fn yield_lead(&mut self, port: &Arc<Core<M>>, interest: &Interest<'_>) {
        if self.is_led_by(port) && (self.waiting_port().is_some() || !self.followers.is_empty()) {
            self.hand_over(interest);
        }
    }

    /// A port is closed.
    pub(super) fn remove_port(&mut self, port: &Arc<Core<M>>, interest: &Interest<'_>) {
        let known = |entry: &PortEntry<M>| Arc::ptr_eq(&entry.core, port);
        let Some(at) = self.ports.iter().position(known) else {
            return;
        };
        self.ports[at].batches = 0;
        let leads = self.lead == Lead::Port(at);
        if leads {
            self.clear_leader(at, interest);
        }
        self.ports.remove(at);
        match self.lead {
            Lead::Port(other) if other > at => self.lead = Lead::Port(other - 1),
            _ if leads => self.hand_over(interest),
            _ => {}
        }
    }
}
