//! How threads and ports drive a link: one that waits leads it, or follows the leader (see `drivers`).
use std::os::fd::AsFd;
use std::sync::{Arc, MutexGuard};
use std::thread::{current, park_timeout};
use std::time::{Duration, Instant};

use forebay_base::signals;
use forebay_base::time::left;
use forebay_transport::stream::Socket;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::drivers::Wants;
use super::inner::Inner;
use super::{Link, Until};
use crate::stream::batch::Batch;
use crate::stream::deadline::Deadline;
use crate::stream::error::StreamError;
use crate::stream::port::{Core, Driven, Port};

/// How often a following thread returns to check for signals, which do not end `park_timeout`.
const SIGNALS: Duration = Duration::from_millis(100);

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
        let before = inner.wants.due;
        inner.send(Instant::now());
        let Wants {
            blocked,
            again,
            due,
        } = inner.wants;
        let sooner = due.is_some_and(|at| before.is_none_or(|before| at < before));
        if inner.drivers.has_leading_thread() && (sooner || blocked || again) {
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
        let (drivers, interest) = inner.drivers();
        if !interest.is_idle {
            drivers.drain_by(&self.own, &port.core, &interest);
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
            inner.drivers.unfollow();
            if reached() {
                break Ok(());
            }
            if let Some(deadline) = deadline
                && deadline.has_passed(Instant::now())
            {
                break Err(deadline.missed_by(&self.peer));
            }
            let (drivers, interest) = inner.drivers();
            let slept = if drivers.take_lead(&interest) {
                self.lead(inner, deadline)
            } else {
                inner.drivers.follow();
                drop(inner);
                follow(deadline)
            };
            if slept.is_err() {
                break slept;
            }
        };
        batch.set_waiter(None);
        let mut inner = self.lock()?;
        let (drivers, interest) = inner.drivers();
        drivers.step_down(&interest);
        drivers.update(&interest);
        waited
    }

    /// Sleep on the socket unless there is work, then do one turn.
    fn lead(
        &self,
        inner: MutexGuard<'_, Inner<M>>,
        deadline: Option<Deadline>,
    ) -> Result<(), StreamError> {
        let Some(watch) = inner.socket() else {
            return Ok(()); // it is closed, and all operations have ended
        };
        let Wants {
            blocked,
            again,
            due,
        } = inner.wants;
        let mut look = inner.look;
        let verbs = inner
            .verbs
            .pulls()
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
        match signals::poll(&mut watched[..count], left(until)) {
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
            && inner.drivers.is_led_by(port)
        {
            inner.turn(now);
            inner.update_leader();
        }
    }

    fn claim_lead(&self, port: &Arc<Core<M>>) {
        if let Ok(mut inner) = self.lock() {
            let (drivers, interest) = inner.drivers();
            drivers.claim(port, &interest);
        }
    }

    fn yield_lead(&self, port: &Arc<Core<M>>) {
        if let Ok(mut inner) = self.lock() {
            let (drivers, interest) = inner.drivers();
            drivers.yield_lead(port, &interest);
        }
    }

    fn remove_port(&self, port: &Arc<Core<M>>) {
        if let Ok(mut inner) = self.lock() {
            let (drivers, interest) = inner.drivers();
            drivers.remove_port(port, &interest);
        }
    }
}

/// Sleep until the batch makes progress or this thread should lead.
fn follow(deadline: Option<Deadline>) -> Result<(), StreamError> {
    let left = left(deadline.map(|deadline| deadline.due));
    let begun = Instant::now();
    park_timeout(left.unwrap_or(SIGNALS).min(SIGNALS));
    if begun.elapsed() < SIGNALS || left.is_some_and(|left| left < SIGNALS) {
        return Ok(());
    }
    Err(StreamError::Interrupted)
}
