//! The threads of the fallback: started when there is work for them, idle until there is more, ended together.
//!
//! # Waking
//!
//! A batch of `n` operations wakes `n` idle threads at most, and starts as many as are missing to that, at most up to the limit.
//! So while there is something to take, a thread is awake for it, or all are at work.
//! What becomes possible later, as everything behind an fsync does, is for the thread that made it possible:
//! it wakes one more, or starts it, as long as there is more to take and no thread on the way.
//!
//! # Order of locks
//!
//! `handles` (held while threads are started), then `state` (never held during a system call but those of the lock).
//!
//! `tests/loom.rs` checks every interleaving of callers, of the threads and of a close.
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use crate::engines::ring::driver::Counts;
use crate::engines::threads::lane::{Ended, Lanes};
use crate::engines::threads::sync::thread::{self, JoinHandle};
use crate::engines::threads::sync::{Condvar, Mutex, MutexGuard};
use crate::error::Error;
use crate::service;
use crate::shared::Shared;

pub(crate) struct State {
    pub(crate) lanes: Lanes,
    /// Threads that sleep and were not woken.
    idle: u32,
    /// Wake-ups that no sleeper has taken yet.
    wakes: u32,
    /// Threads that were started and have not come yet.
    coming: u32,
    /// Threads that have not ended.
    alive: u32,
    pub(crate) stopping: bool,
}

/// There is no thread, and none can be started.
pub(crate) struct Refused<'a> {
    error: Error,
    /// Held since that was found: until it is let go, no thread can take what was inserted.
    state: MutexGuard<'a, State>,
}

impl Refused<'_> {
    /// Take the batch back that was brought, and say why.
    pub(crate) fn take_back(mut self, index: usize, ticket: u64) -> Error {
        let refused = self.state.lanes.refuse(index, ticket);
        drop(self.state);
        drop(refused); // without the lock
        self.error
    }
}

pub(crate) struct Pool {
    state: Mutex<State>,
    /// There is something to take.
    work: Condvar,
    /// A thread has ended.
    gone: Condvar,
    handles: Mutex<Vec<JoinHandle<()>>>,
    threads: u32,
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Pool")
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl Pool {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let threads = shared.config.threads;
        Self {
            state: Mutex::new(State {
                lanes: Lanes::new(threads, Arc::clone(&shared.quarantine)),
                idle: 0,
                wakes: 0,
                coming: 0,
                alive: 0,
                stopping: false,
            }),
            work: Condvar::new(),
            gone: Condvar::new(),
            handles: Mutex::new(Vec::new()),
            threads,
            shared: Arc::clone(shared),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Have threads take `operations` that were brought, and let go of the lock.
    ///
    /// # Errors
    ///
    /// [`Refused`] if there is no thread, and none can be started. Fewer than wanted are no error.
    pub(crate) fn call<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        operations: usize,
    ) -> Result<(), Refused<'a>> {
        let wanted = u32::try_from(operations)
            .unwrap_or(u32::MAX)
            .min(self.threads);
        let woken = wanted.min(state.idle);
        state.idle -= woken;
        state.wakes += woken;
        let all = state.idle == 0;
        let missing = (wanted - woken).min(self.threads - state.alive);
        drop(state);
        if woken > 1 && all {
            self.work.notify_all();
        } else {
            (0..woken).for_each(|_| self.work.notify_one());
        }
        if missing == 0 {
            return Ok(());
        }
        self.start(missing)
    }

    fn start(self: &Arc<Self>, missing: u32) -> Result<(), Refused<'_>> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..missing {
            let mut state = self.lock();
            if state.alive == self.threads || state.stopping {
                break;
            }
            state.alive += 1;
            state.coming += 1;
            let number = state.alive;
            drop(state);
            let pool = Arc::clone(self);
            let name = format!("forebay-block-{number}");
            match service::start(name, move || pool.serve()) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    let mut state = self.lock();
                    state.alive -= 1;
                    state.coming -= 1;
                    self.gone.notify_all();
                    if state.alive > 0 || state.stopping {
                        return Ok(()); // a close has ended what was brought
                    }
                    return Err(Refused { error, state });
                }
            }
        }
        Ok(())
    }

    /// What a thread does.
    fn serve(self: Arc<Self>) {
        // As a rule an operation ends one batch at most.
        let mut ended = Vec::with_capacity(4);
        let mut over = None;
        let mut state = self.lock();
        state.coming -= 1;
        loop {
            if let Some((job, result)) = over.take() {
                state.lanes.complete(&job, result, &mut ended);
            }
            let job = state.lanes.next(&mut ended);
            if job.is_none() && ended.is_empty() {
                if state.stopping {
                    break;
                }
                state = self.sleep(state);
                continue;
            }
            if job.is_some() && state.wakes + state.coming == 0 && state.lanes.can_issue() {
                // That fewer threads than wanted can be had is no error.
                _ = self.call(state, 1);
            } else {
                drop(state);
            }
            self.notify(&mut ended);
            over = job.map(|job| {
                let result = job.transfer.carry_out();
                (job, result)
            });
            state = self.lock();
        }
        state.alive -= 1;
        self.gone.notify_all();
    }

    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.idle += 1;
        while state.wakes == 0 && !state.stopping {
            state = (self.work.wait(state)).unwrap_or_else(PoisonError::into_inner);
        }
        // When all stop, wake-ups are not counted any more.
        state.wakes = state.wakes.saturating_sub(1);
        state
    }

    /// Notify the callers of the batches that have ended; the lock is not held.
    pub(crate) fn notify(&self, ended: &mut Vec<Ended>) {
        for end in ended.drain(..) {
            match end {
                Ended::Notify(notice) => {
                    self.shared.count(Counts::of(notice.operations));
                    notice.send();
                }
                Ended::Wake(waiter) => waiter.end(),
                Ended::Drop(keeper) => drop(keeper),
            }
        }
    }

    /// Refuse everything from now on, issue nothing more, wait until the threads have ended.
    ///
    /// Returns the operations that have not ended by then, whose threads are left to themselves.
    pub(crate) fn close(&self, deadline: Instant) -> u32 {
        let mut ended = Vec::new();
        let mut state = self.lock();
        state.stopping = true;
        state.lanes.detach_all(&mut ended);
        self.work.notify_all();
        drop(state);
        self.notify(&mut ended);
        let own = self.is_own_thread();
        let mut state = self.lock();
        while state.alive > u32::from(own) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.gone.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let (left, first) = state.lanes.leak();
        drop(state);
        if first {
            self.shared.note_leak(left);
        }
        self.join();
        left
    }

    /// Whether the calling thread is one of the pool's: a keeper that was dropped here may own the queue.
    fn is_own_thread(&self) -> bool {
        let own = thread::current().id();
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.iter().any(|handle| handle.thread().id() == own)
    }

    /// Join the threads that have ended; what is left of them is a few instructions.
    fn join(&self) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let handles = std::mem::take(&mut *handles);
        if self.lock().alive > 0 {
            return;
        }
        for handle in handles {
            let joined = handle.join();
            debug_assert!(joined.is_ok(), "a thread of the pool has panicked");
        }
    }

    /// Forget the threads in a forked child, which does not have them.
    pub(crate) fn abandon(&self) {
        let handles = self.handles.try_lock();
        if let Ok(mut handles) = handles {
            std::mem::forget(std::mem::take(&mut *handles));
        }
    }
}
