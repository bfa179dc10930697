//! A completion queue, and the descriptor that wakes its waiter.
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::device::{Domain, entry, none};
use super::layout::{Channel, CompletionQueue, WorkCompletion};
use super::library::{checked, given};

/// Events are acknowledged in groups of this size, since each call takes a lock.
const ACKNOWLEDGED_AT_ONCE: u32 = 32;

/// A completion queue with its channel.
#[derive(Debug)]
pub(crate) struct Queue {
    domain: Arc<Domain>,
    channel: NonNull<Channel>,
    handle: NonNull<CompletionQueue>,
    /// Events that are not acknowledged yet; destroying the queue would wait for them.
    events: u32,
}

// SAFETY: libibverbs' objects may be used by any thread.
unsafe impl Send for Queue {}

impl Queue {
    /// A queue with room for `entries` completions; more would break its queue pairs.
    pub(crate) fn new(domain: &Arc<Domain>, entries: u32) -> io::Result<Self> {
        let library = domain.library;
        // SAFETY: the context is open, and held by what is made here.
        let channel = given(unsafe { (library.ibv_create_comp_channel)(domain.context()) })?;
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        // SAFETY: as above; the channel outlives the queue.
        let queue = unsafe {
            (library.ibv_create_cq)(domain.context(), entries, none(), channel.as_ptr(), 0)
        };
        let queue = given(queue).inspect_err(|_| {
            // SAFETY: nothing was made of it.
            unsafe { (library.ibv_destroy_comp_channel)(channel.as_ptr()) };
        })?;
        let made = Self {
            domain: Arc::clone(domain),
            channel,
            handle: queue,
            events: 0,
        };
        rustix::io::ioctl_fionbio(made.as_fd(), true)?;
        Ok(made)
    }

    pub(crate) fn as_ptr(&self) -> *mut CompletionQueue {
        self.handle.as_ptr()
    }

    /// Take completions into `into`; returns how many.
    pub(crate) fn poll(&mut self, into: &mut [WorkCompletion]) -> io::Result<usize> {
        let room = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        // SAFETY: an entry of an open context.
        let poll = entry(unsafe { (*self.domain.context()).poll_cq })?;
        // SAFETY: the queue lives, and there is room for so many.
        let count = unsafe { poll(self.as_ptr(), room, into.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| io::Error::other("the completion queue overran"))
    }

    /// Request an event at the next completion. Earlier completions cause none, so poll once more before waiting.
    pub(crate) fn arm(&mut self) -> io::Result<()> {
        // SAFETY: an entry of an open context.
        let arm = entry(unsafe { (*self.domain.context()).req_notify_cq })?;
        // SAFETY: the queue lives.
        checked(unsafe { arm(self.as_ptr(), 0) })
    }

    /// Take the events that made the descriptor readable.
    pub(crate) fn take_events(&mut self) {
        let (mut queue, mut mark) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel lives, both pointers are ours; its descriptor does not block.
        while unsafe {
            (self.domain.library.ibv_get_cq_event)(
                self.channel.as_ptr(),
                &raw mut queue,
                &raw mut mark,
            )
        } == 0
        {
            self.events += 1;
        }
        if self.events >= ACKNOWLEDGED_AT_ONCE {
            self.acknowledge();
        }
    }

    fn acknowledge(&mut self) {
        // SAFETY: the queue lives; so many events were taken and not acknowledged.
        unsafe { (self.domain.library.ibv_ack_cq_events)(self.as_ptr(), self.events) };
        self.events = 0;
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as `self`, and so does its descriptor.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.domain.is_foreign() {
            return;
        }
        self.acknowledge();
        // SAFETY: queue pairs hold the queue, so none is left; each is destroyed once, the channel last.
        unsafe {
            (self.domain.library.ibv_destroy_cq)(self.handle.as_ptr());
            (self.domain.library.ibv_destroy_comp_channel)(self.channel.as_ptr());
        }
    }
}
