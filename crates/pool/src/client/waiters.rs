//! The callers that wait: each with a queue of its own, on which it is woken.
//!
//! A caller waits by a ticket, and is woken once, when that is granted; or it watches, and is woken when anything
//! happens, and looks again.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_base::Queue;

use super::{WATCH, Wake};
use crate::machine::Ticket;

/// The queues of the callers that wait.
#[derive(Debug)]
pub struct Waiters {
    next_ticket: Ticket,
    of_tickets: BTreeMap<Ticket, Arc<Queue<Wake>>>,
    watchers: Vec<Arc<Queue<Wake>>>,
}

impl Waiters {
    /// No one waits.
    pub const fn new() -> Self {
        Self {
            next_ticket: WATCH + 1,
            of_tickets: BTreeMap::new(),
            watchers: Vec::new(),
        }
    }

    /// A ticket that was not given before.
    pub fn next_ticket(&mut self) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        ticket
    }

    /// Push a ticket to a queue: at once where it `is_granted`, else when `wake` is called for it.
    pub fn await_on(&mut self, ticket: Ticket, queue: &Arc<Queue<Wake>>, is_granted: bool) {
        if is_granted {
            notify(queue, ticket);
        } else {
            self.of_tickets.insert(ticket, Arc::clone(queue));
        }
    }

    /// A ticket was granted.
    pub fn wake(&mut self, ticket: Ticket) {
        if let Some(queue) = self.of_tickets.remove(&ticket) {
            notify(&queue, ticket);
        }
    }

    /// A ticket has given up.
    pub fn leave(&mut self, ticket: Ticket) {
        self.of_tickets.remove(&ticket);
    }

    /// Push to a queue when something happens. Queues without a waiter are removed, so that a caller that asks again and
    /// again leaves nothing behind.
    pub fn watch(&mut self, queue: Option<&Arc<Queue<Wake>>>) {
        let Some(queue) = queue else {
            return;
        };
        self.watchers
            .retain(|known| Arc::strong_count(known) > 1 && !Arc::ptr_eq(known, queue));
        self.watchers.push(Arc::clone(queue));
    }

    /// Something happened: wake the watchers, which look again.
    pub fn wake_watchers(&mut self) {
        for queue in self.watchers.drain(..) {
            notify(&queue, WATCH);
        }
    }

    /// The pool is closed: wake all callers, each of which finds that when it asks again.
    pub fn wake_all(&mut self) {
        for (ticket, queue) in std::mem::take(&mut self.of_tickets) {
            notify(&queue, ticket);
        }
        self.wake_watchers();
    }
}

/// Push a wake-up. A queue that is full is being drained, and one that is closed has no reader left.
fn notify(queue: &Queue<Wake>, wake: Wake) {
    let _ = queue.push(wake);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> Arc<Queue<Wake>> {
        Arc::new(Queue::new(8).expect("an eventfd"))
    }

    fn items(queue: &Queue<Wake>) -> Vec<Wake> {
        let mut items = Vec::new();
        queue.drain(&mut items).expect("open");
        items
    }

    #[test]
    fn a_ticket_is_woken_once_and_not_after_it_left() {
        let (mut waiters, queue) = (Waiters::new(), queue());
        let tickets: Vec<Ticket> = (0..3).map(|_| waiters.next_ticket()).collect();
        assert!(!tickets.contains(&WATCH));
        waiters.await_on(tickets[0], &queue, true);
        assert_eq!(items(&queue), [tickets[0]]);
        waiters.await_on(tickets[1], &queue, false);
        waiters.await_on(tickets[2], &queue, false);
        waiters.leave(tickets[2]);
        for ticket in tickets.iter().chain(&tickets) {
            waiters.wake(*ticket);
        }
        assert_eq!(items(&queue), [tickets[1]]);
    }

    #[test]
    fn a_watcher_is_woken_once_however_often_it_asked() {
        let (mut waiters, queue) = (Waiters::new(), queue());
        waiters.watch(Some(&queue));
        waiters.watch(None);
        waiters.watch(Some(&queue));
        waiters.wake_watchers();
        waiters.wake_watchers();
        assert_eq!(items(&queue), [WATCH]);
    }
}
