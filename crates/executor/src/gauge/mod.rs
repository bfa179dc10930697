//! Measures the memory of the workers, with that of the machine.
//!
//! A separate thread, because reading `smaps_rollup` takes a tenth of a millisecond and more, under a lock that the
//! process needs for its page faults, and no request may wait for that. It polls: the kernel has no notification of
//! growth. The period follows from whether something runs, and from what measuring costs.

mod limits;
mod memory;
mod pressure;
mod process;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use forebay_base::Queue;

pub use limits::Limits;
pub use memory::{Memory, MemoryUse};

use crate::error::{Error, Result};
use crate::limit::{GAUGE_BUSY_MS, GAUGE_IDLE_MS, GAUGE_SHARE};
use crate::request::Slot;
use process::private_bytes;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// A worker's private memory: what would be freed if it ended.
    Worker {
        slot: Slot,
        pid: i32,
        private_bytes: u64,
    },
    /// Pushed after the readings of the workers that were measured with it.
    Machine {
        /// Of [`Memory::limit_bytes`], what is in use and cannot be reclaimed: the limit less what is free.
        resident_bytes: u64,
        /// The fraction of the last ten seconds in which tasks stalled for memory, 0.0 to 1.0; 0 if unknown.
        pressure: f32,
        /// How many workers had been reported gone when it was measured: one that ended later is still contained.
        gone: u64,
    },
}

/// The measuring thread. Dropping it ends the thread and waits for it, at most for a round.
#[derive(Debug)]
pub struct Gauge {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Orders {
    workers: HashMap<Slot, i32>,
    /// Workers to be measured at once.
    wanted: Vec<Slot>,
    closed: bool,
}

/// Lock order: `orders` is the only lock, and is not held during a measurement.
#[derive(Debug)]
struct Shared {
    orders: Mutex<Orders>,
    woken: Condvar,
    /// Something runs.
    busy: AtomicBool,
    /// Something ran since the last round.
    was_busy: AtomicBool,
    /// The thread measures with the short period.
    fast: AtomicBool,
    /// Workers that are gone.
    gone: AtomicU64,
}

impl Gauge {
    /// Start the thread; readings go to `readings`. If it is full they are dropped: newer ones follow.
    ///
    /// # Errors
    /// `System` if the thread cannot be started.
    pub fn start(memory: Memory, readings: Arc<Queue<Reading>>) -> Result<Self> {
        let shared = Arc::new(Shared {
            orders: Mutex::default(),
            woken: Condvar::new(),
            busy: AtomicBool::new(false),
            was_busy: AtomicBool::new(false),
            fast: AtomicBool::new(false),
            gone: AtomicU64::new(0),
        });
        let theirs = Arc::clone(&shared);
        let thread = Builder::new()
            .name("forebay-gauge".into())
            .spawn(move || run(&theirs, &memory, &readings))
            .map_err(Error::system("start the gauge's thread"))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Measure the worker of this slot from now on; its first reading comes at once.
    pub fn watch(&self, slot: Slot, pid: i32) {
        let mut orders = self.shared.lock();
        orders.workers.insert(slot, pid);
        orders.wanted.push(slot);
        drop(orders);
        self.shared.woken.notify_one();
    }

    /// The worker of this slot is gone.
    pub fn unwatch(&self, slot: Slot) {
        self.shared.lock().workers.remove(&slot);
        self.shared.gone.fetch_add(1, Ordering::Release);
    }

    /// Whether no further worker has gone since this count.
    pub fn is_current(&self, gone: u64) -> bool {
        self.shared.gone.load(Ordering::Relaxed) == gone
    }

    /// Measure this worker now, ahead of its turn.
    pub fn measure(&self, slot: Slot) {
        self.shared.lock().wanted.push(slot);
        self.shared.woken.notify_one();
    }

    /// Set whether something runs. Cost: two stores, except when it wakes a thread that measured rarely.
    pub fn pace(&self, busy: bool) {
        self.shared.busy.store(busy, Ordering::Relaxed);
        if busy {
            self.shared.was_busy.store(true, Ordering::Relaxed);
            if !self.shared.fast.swap(true, Ordering::Relaxed) {
                // Under the lock, so that the thread cannot go to sleep between its check and this wake-up.
                drop(self.shared.lock());
                self.shared.woken.notify_one();
            }
        }
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.woken.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // the panic hook has reported a panic
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        // No code of a caller runs under the lock, and every change is one step.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pause after a round that took `cost`. The short period continues for one long period after a run.
    fn pause(&self, cost: Duration, last_busy: &mut Instant) -> Duration {
        let now = Instant::now();
        let idle = Duration::from_millis(GAUGE_IDLE_MS);
        if self.busy.load(Ordering::Relaxed) | self.was_busy.swap(false, Ordering::Relaxed) {
            *last_busy = now;
        }
        let fast = now.duration_since(*last_busy) < idle;
        self.fast.store(fast, Ordering::Relaxed);
        let period = if fast { GAUGE_BUSY_MS } else { GAUGE_IDLE_MS };
        Duration::from_millis(period).max(cost * (GAUGE_SHARE - 1))
    }

    /// Wait for the time or for an order. Returns what to measure ahead of its turn; `None` at the end.
    fn wait(&self, until: Instant, slow: bool) -> Option<Vec<(Slot, i32)>> {
        let mut orders = self.lock();
        loop {
            if orders.closed {
                return None;
            }
            if !orders.wanted.is_empty() {
                let wanted = std::mem::take(&mut orders.wanted);
                let found = wanted.into_iter();
                let found = found.filter_map(|slot| Some((slot, *orders.workers.get(&slot)?)));
                return Some(found.collect());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || (slow && self.fast.load(Ordering::Relaxed)) {
                return Some(Vec::new());
            }
            let woken = self.woken.wait_timeout(orders, left);
            orders = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn run(shared: &Shared, memory: &Memory, readings: &Queue<Reading>) {
    let mut last_busy = Instant::now();
    let mut round = Round::default();
    loop {
        let began = Instant::now();
        let workers: Vec<_> = shared
            .lock()
            .workers
            .iter()
            .map(|(&slot, &pid)| (slot, pid))
            .collect();
        round
            .known
            .retain(|slot, _| workers.iter().any(|(watched, _)| watched == slot));
        round.tell(&workers, shared, memory, readings);
        let pause = shared.pause(began.elapsed(), &mut last_busy);
        let (until, slow) = (Instant::now() + pause, !shared.fast.load(Ordering::Relaxed));
        loop {
            let Some(wanted) = shared.wait(until, slow) else {
                return;
            };
            if wanted.is_empty() {
                break;
            }
            round.tell(&wanted, shared, memory, readings);
        }
    }
}

/// The measurements so far.
#[derive(Default)]
struct Round {
    /// Private bytes of each watched worker when it was last measured.
    known: HashMap<Slot, u64>,
}

impl Round {
    /// Measure and push. The workers first: what they grow meanwhile is then in the machine's memory, rather than in
    /// neither.
    fn tell(
        &mut self,
        workers: &[(Slot, i32)],
        shared: &Shared,
        memory: &Memory,
        readings: &Queue<Reading>,
    ) {
        let gone = shared.gone.load(Ordering::Acquire);
        for &(slot, pid) in workers {
            // A worker that is gone has no reading; the dispatcher learns of its death elsewhere.
            let Some(private_bytes) = private_bytes(pid) else {
                self.known.remove(&slot);
                continue;
            };
            self.known.insert(slot, private_bytes);
            let _ = readings.push(Reading::Worker {
                slot,
                pid,
                private_bytes,
            });
        }
        let machine = memory.measure(self.known.values().sum());
        let _ = readings.push(Reading::Machine {
            resident_bytes: machine.resident_bytes,
            pressure: machine.pressure,
            gone,
        });
    }
}

#[cfg(test)]
mod tests;
