//! What the dispatcher's thread and the program's threads share: the queues between them.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_base::Queue;

use crate::dispatcher::limit::{COMMANDS_MAX, FINISHED_MAX, ORDERS_MAX, TICKETS_MAX};
use crate::dispatcher::supervisor::mailbox::{Mailbox, Waited, queue_error};
use crate::dispatcher::supervisor::protocol::{AdminCall, Command, Finished, Order};
use crate::error::Result;
use crate::usage::Usage;

/// Commands to the dispatcher, and what it sends out.
pub struct Shared {
    pub commands: Queue<Command>,
    pub admin_calls: Mailbox<AdminCall>,
    pub finished: Mailbox<Finished>,
    orders: Mailbox<Order>,
    /// Orders about source files that the supervisor has not taken yet.
    sources: AtomicUsize,
    /// What workers use; held for a record of a worker, or a copy of the sums.
    usage: Mutex<Usage>,
}

impl Shared {
    pub fn new() -> Result<Self> {
        Ok(Self {
            commands: Queue::new(COMMANDS_MAX).map_err(queue_error)?,
            admin_calls: Mailbox::new(TICKETS_MAX)?,
            finished: Mailbox::new(FINISHED_MAX)?,
            orders: Mailbox::new(ORDERS_MAX)?,
            sources: AtomicUsize::new(0),
            usage: Mutex::default(),
        })
    }

    /// Send an order to the supervisor. A full mailbox drops it: a supervisor that takes none of so many orders starts
    /// no worker either.
    pub fn order(&self, order: Order) {
        let sources = usize::from(matches!(order, Order::Sources(_)));
        // Counted before it is pushed, so that the supervisor never takes an order that was not counted.
        self.sources.fetch_add(sources, Ordering::AcqRel);
        if !self.orders.push(order) {
            self.sources.fetch_sub(sources, Ordering::AcqRel);
        }
    }

    /// Wait for orders, at most for a time.
    ///
    /// # Errors
    /// `System`.
    pub fn take_orders(&self, timeout: Option<Duration>) -> Result<Waited<Order>> {
        let waited = self.orders.take(timeout)?;
        if let Waited::Items(orders) = &waited {
            let about_sources = |order: &&Order| matches!(order, Order::Sources(_));
            let sources = orders.iter().filter(about_sources).count();
            self.sources.fetch_sub(sources, Ordering::AcqRel);
        }
        Ok(waited)
    }

    /// See [`Mailbox::fileno`], for the orders.
    pub fn orders_fileno(&self) -> RawFd {
        self.orders.fileno()
    }

    /// Whether the supervisor has yet to take an order about source files.
    pub fn has_untaken_sources(&self) -> bool {
        self.sources.load(Ordering::Acquire) > 0
    }

    /// What workers use. Do not wait with it in hand: the dispatcher's thread takes it, too.
    pub fn usage(&self) -> MutexGuard<'_, Usage> {
        // Each change of the sums is one step.
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Make every thread that waits on a mailbox return.
    pub fn wake(&self) {
        self.orders.wake();
        self.admin_calls.wake();
        self.finished.wake();
    }

    /// Close every queue.
    pub fn close(&self) {
        self.commands.close();
        // Commands that came after the last look are dropped, and with them the channels that their senders wait on.
        drop(self.commands.drain(&mut Vec::new()));
        self.orders.close();
        self.admin_calls.close();
        self.finished.close();
    }
}
