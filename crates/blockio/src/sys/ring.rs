//! One `io_uring`: its two queues in shared memory, and the system calls on it.
//!
//! # Publication
//!
//! Entries are written behind the tail that the kernel knows, and the tail is published once, by [`Ring::enter`].
//! Until then, and for whatever the kernel did not take, [`Ring::rewind`] takes them back:
//! the kernel reads the tail only inside of `io_uring_enter`, because there is no thread of its own (SQPOLL).
//!
//! Sources: `io_uring(7)`, `io_uring_setup(2)`, `io_uring_enter(2)`, `io_uring_register(2)`.
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use forebay_base::process;
use forebay_base::time::timespec;
use rustix::io::Errno;
use rustix::io_uring::{
    IoringCqeFlags, IoringEnterFlags, IoringFeatureFlags, IoringRegisterOp, IoringRsrcFlags,
    IoringSetupFlags, io_uring_clone_buffers, io_uring_cqe, io_uring_enter, io_uring_enter_arg,
    io_uring_files_update, io_uring_getevents_arg, io_uring_params, io_uring_ptr,
    io_uring_register, io_uring_rsrc_register, io_uring_rsrc_update2, io_uring_setup, io_uring_sqe,
    iovec,
};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// `IORING_SETUP_NO_SQARRAY`, since Linux 6.6; entries are taken in the order of their indices.
const NO_SQARRAY: IoringSetupFlags = IoringSetupFlags::from_bits_retain(1 << 16);
/// `IORING_REGISTER_DST_REPLACE`, since Linux 6.13: what the ring had registered goes.
const CLONE_REPLACE: u32 = 2;
const OFFSET_QUEUES: u64 = 0;
const OFFSET_ENTRIES: u64 = 0x1000_0000;

/// What a ring asks of the kernel, best first; an older one gets the next.
const SETUPS: [IoringSetupFlags; 4] = [
    IoringSetupFlags::SINGLE_ISSUER
        .union(IoringSetupFlags::DEFER_TASKRUN)
        .union(IoringSetupFlags::SUBMIT_ALL)
        .union(NO_SQARRAY),
    IoringSetupFlags::SINGLE_ISSUER
        .union(IoringSetupFlags::DEFER_TASKRUN)
        .union(IoringSetupFlags::SUBMIT_ALL),
    IoringSetupFlags::COOP_TASKRUN.union(IoringSetupFlags::SUBMIT_ALL),
    IoringSetupFlags::empty(),
];

/// Memory shared with the kernel. A forked child does not have it.
struct Shared {
    start: NonNull<u8>,
    bytes: usize,
    /// Which process it is mapped in.
    epoch: u64,
}

impl Shared {
    fn map(descriptor: BorrowedFd<'_>, bytes: usize, offset: u64) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping where the kernel likes.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                protection,
                flags,
                descriptor,
                offset,
            )?
        };
        let start = NonNull::new(start.cast()).expect("mmap never returns address 0");
        let shared = Self {
            start,
            bytes,
            epoch: process::epoch(),
        };
        // SAFETY: our own mapping; a child would submit to its parent's ring through it.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontFork)? };
        Ok(shared)
    }

    /// The value at `offset`, which the kernel reported.
    fn at<T>(&self, offset: u32) -> NonNull<T> {
        let offset = offset as usize;
        assert!(offset + size_of::<T>() <= self.bytes, "outside of the ring");
        // SAFETY: inside the mapping; the kernel aligns what it reports.
        unsafe { self.start.add(offset).cast() }
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: mapped while `self` lives; both sides use the word atomically.
        unsafe { AtomicU32::from_ptr(self.at::<u32>(offset).as_ptr()) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.epoch != process::epoch() {
            return; // never mapped in a forked child: the addresses may belong to another mapping by now
        }
        // SAFETY: mapped by `map` in this process; all pointers into it are dropped with the ring.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}

/// An `io_uring`. Not for a thread beside its maker, where the kernel supports that rule; the caller sees to it.
///
/// A forked child may drop it, which closes the child's descriptor, and nothing else.
pub(crate) struct Ring {
    queues: Shared,
    entries: Shared,
    descriptor: OwnedFd,
    params: io_uring_params,
    /// Where the next entry goes, ahead of the published tail.
    tail: u32,
    flags: IoringSetupFlags,
}

// SAFETY: plain memory and a descriptor; which thread may enter is the owner's rule, and breaking it gets EEXIST.
unsafe impl Send for Ring {}

impl fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Ring")
            .field("descriptor", &self.descriptor)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Make a ring that takes `submissions` entries at once and holds `completions` results; both are rounded up.
    pub(crate) fn new(submissions: u32, completions: u32) -> io::Result<Self> {
        let mut last = Errno::INVAL;
        for setup in SETUPS {
            match Self::with_flags(submissions, completions, setup) {
                Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    last = Errno::INVAL;
                }
                outcome => return outcome,
            }
        }
        Err(last.into())
    }

    /// A ring with none of the flags that bind it to a thread: to register buffers that others clone.
    pub(crate) fn unbound() -> io::Result<Self> {
        Self::with_flags(1, 2, IoringSetupFlags::empty())
    }

    fn with_flags(submissions: u32, completions: u32, setup: IoringSetupFlags) -> io::Result<Self> {
        let mut params = io_uring_params::default();
        params.flags = setup | IoringSetupFlags::CQSIZE | IoringSetupFlags::CLAMP;
        params.cq_entries = completions.max(submissions);
        // SAFETY: the parameters are ours and outlive the call.
        let descriptor = unsafe { io_uring_setup(submissions, &mut params)? };
        if !params.features.contains(IoringFeatureFlags::SINGLE_MMAP) {
            return Err(io::ErrorKind::Unsupported.into()); // before Linux 5.4
        }
        let completions_end =
            params.cq_off.cqes as usize + params.cq_entries as usize * size_of::<io_uring_cqe>();
        let array_end =
            params.sq_off.array as usize + params.sq_entries as usize * size_of::<u32>();
        let queue_bytes = completions_end.max(array_end);
        let queues = Shared::map(descriptor.as_fd(), queue_bytes, OFFSET_QUEUES)?;
        let entry_bytes = params.sq_entries as usize * size_of::<io_uring_sqe>();
        let entries = Shared::map(descriptor.as_fd(), entry_bytes, OFFSET_ENTRIES)?;
        if !setup.contains(NO_SQARRAY) {
            for index in 0..params.sq_entries {
                let array = params.sq_off.array + index * 4;
                queues.word(array).store(index, Ordering::Relaxed);
            }
        }
        Ok(Self {
            queues,
            entries,
            descriptor,
            params,
            tail: 0,
            flags: setup,
        })
    }

    /// Whether completions come only to a thread that enters for them.
    pub(crate) fn is_deferred(&self) -> bool {
        self.flags.contains(IoringSetupFlags::DEFER_TASKRUN)
    }

    /// Entries that can be prepared before the next enter.
    pub(crate) fn room(&self) -> u32 {
        self.params.sq_entries - self.prepared()
    }

    /// Entries that were prepared and that the kernel has not taken.
    pub(crate) fn prepared(&self) -> u32 {
        let head = self.queues.word(self.params.sq_off.head);
        self.tail.wrapping_sub(head.load(Ordering::Acquire))
    }

    /// Write an entry; there is room.
    pub(crate) fn prepare(&mut self, entry: io_uring_sqe) {
        debug_assert!(self.room() > 0, "the submission queue is full");
        let index = self.tail & (self.params.sq_entries - 1);
        let offset = index * u32::try_from(size_of::<io_uring_sqe>()).expect("64 bytes");
        // SAFETY: inside the mapping; the kernel does not read it before the tail is published past it,
        // and took what was there before, because there was room.
        unsafe { self.entries.at::<io_uring_sqe>(offset).write(entry) };
        self.tail = self.tail.wrapping_add(1);
    }

    /// Take back what the kernel has not taken, newest first; `taken_back` gets what each would have been called.
    pub(crate) fn rewind(&mut self, mut taken_back: impl FnMut(u64)) {
        while self.prepared() > 0 {
            self.tail = self.tail.wrapping_sub(1);
            let index = self.tail & (self.params.sq_entries - 1);
            let offset = index * u32::try_from(size_of::<io_uring_sqe>()).expect("64 bytes");
            // SAFETY: inside the mapping, written by `prepare`; the kernel only reads it.
            let entry = unsafe { self.entries.at::<io_uring_sqe>(offset).read() };
            taken_back(entry.user_data.u64_());
        }
        self.publish();
    }

    fn publish(&self) {
        let tail = self.queues.word(self.params.sq_off.tail);
        tail.store(self.tail, Ordering::Release);
    }

    /// Submit what was prepared and wait until `wait` completions are there; returns how many entries were taken.
    ///
    /// With `look` completions are collected though none is waited for.
    pub(crate) fn enter(&mut self, wait: u32, look: bool) -> Result<u32, Errno> {
        self.publish();
        let mut flags = IoringEnterFlags::empty();
        flags.set(IoringEnterFlags::GETEVENTS, wait > 0 || look);
        // SAFETY: the entries up to the tail are whole, and their memory is kept by the batches in flight.
        unsafe { io_uring_enter(&self.descriptor, self.prepared(), wait, flags) }
    }

    /// As [`Ring::enter`], but wait at most `timeout`; `ETIME` when time ran out and nothing was submitted.
    pub(crate) fn enter_within(&mut self, wait: u32, timeout: Duration) -> Result<u32, Errno> {
        self.publish();
        self.enter_until(self.prepared(), wait, timeout)
    }

    /// Wait at most `timeout` for `wait` completions; submits nothing. `ETIME` when time ran out.
    pub(crate) fn wait(&mut self, wait: u32, timeout: Duration) -> Result<u32, Errno> {
        self.enter_until(0, wait, timeout)
    }

    fn enter_until(&mut self, submit: u32, wait: u32, timeout: Duration) -> Result<u32, Errno> {
        let timespec = timespec(timeout);
        let argument = io_uring_getevents_arg {
            ts: io_uring_ptr::new((&raw const timespec).cast_mut().cast()),
            ..io_uring_getevents_arg::default()
        };
        let flags = IoringEnterFlags::GETEVENTS | IoringEnterFlags::EXT_ARG;
        // SAFETY: as in `enter`; the argument and what it points to outlive the call.
        unsafe { io_uring_enter_arg(&self.descriptor, submit, wait, flags, Some(&argument)) }
    }

    /// Take all completions that are there, oldest first: name, result, and whether more come of the same entry.
    pub(crate) fn reap(&mut self, mut completed: impl FnMut(u64, i32, bool)) -> u32 {
        let head_word = self.queues.word(self.params.cq_off.head);
        let tail_word = self.queues.word(self.params.cq_off.tail);
        let mut head = head_word.load(Ordering::Relaxed);
        let tail = tail_word.load(Ordering::Acquire);
        let count = tail.wrapping_sub(head);
        let entry_bytes = u32::try_from(size_of::<io_uring_cqe>()).expect("16 bytes");
        while head != tail {
            let index = head & (self.params.cq_entries - 1);
            let offset = self.params.cq_off.cqes + index * entry_bytes;
            // SAFETY: inside the mapping; the kernel wrote it before the tail that was read above.
            let entry = unsafe { self.queues.at::<io_uring_cqe>(offset).as_ref() };
            let (name, result) = (entry.user_data.u64_(), entry.res);
            let more = entry.flags.contains(IoringCqeFlags::MORE);
            head = head.wrapping_add(1);
            // Given back one by one: a panic in `completed` must not make the same completion come twice.
            head_word.store(head, Ordering::Release);
            completed(name, result, more);
        }
        count
    }

    /// Have an eventfd signalled when completions come.
    pub(crate) fn register_eventfd(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        let number = eventfd.as_raw_fd();
        self.register(IoringRegisterOp::RegisterEventfd, &raw const number, 1)
    }

    /// Make room for `count` files, all empty.
    pub(crate) fn register_file_table(&mut self, count: u32) -> io::Result<()> {
        let mut table = io_uring_rsrc_register::default();
        table.nr = count;
        table.flags = IoringRsrcFlags::REGISTER_SPARSE;
        let bytes = u32::try_from(size_of::<io_uring_rsrc_register>()).expect("32 bytes");
        self.register(IoringRegisterOp::RegisterFiles2, &raw const table, bytes)
    }

    /// Put a file into a index of the table; -1 empties it.
    pub(crate) fn update_file(&mut self, index: u32, descriptor: RawFd) -> io::Result<()> {
        let mut update = io_uring_files_update::default();
        update.offset = index;
        update.fds = io_uring_ptr::new((&raw const descriptor).cast_mut().cast());
        self.register(IoringRegisterOp::RegisterFilesUpdate, &raw const update, 1)
    }

    /// Make room for `count` buffers, all empty.
    pub(crate) fn register_buffer_table(&mut self, count: u32) -> io::Result<()> {
        let mut table = io_uring_rsrc_register::default();
        table.nr = count;
        table.flags = IoringRsrcFlags::REGISTER_SPARSE;
        let bytes = u32::try_from(size_of::<io_uring_rsrc_register>()).expect("32 bytes");
        self.register(IoringRegisterOp::RegisterBuffers2, &raw const table, bytes)
    }

    /// Put a buffer into a index of the table; `None` empties it. Its pages stay in memory while it is there.
    ///
    /// The memory has to stay mapped only for the call: the kernel keeps the pages.
    pub(crate) fn update_buffer(
        &mut self,
        index: u32,
        memory: Option<(NonNull<u8>, usize)>,
    ) -> io::Result<()> {
        let (start, bytes) = memory.map_or((ptr::null_mut(), 0), |(start, bytes)| {
            (start.as_ptr(), bytes)
        });
        let vector = iovec {
            iov_base: start.cast(),
            iov_len: bytes,
        };
        let mut update = io_uring_rsrc_update2::default();
        update.offset = index;
        update.data = io_uring_ptr::new((&raw const vector).cast_mut().cast());
        update.nr = 1;
        let bytes = u32::try_from(size_of::<io_uring_rsrc_update2>()).expect("32 bytes");
        self.register(
            IoringRegisterOp::RegisterBuffersUpdate,
            &raw const update,
            bytes,
        )
    }

    /// Take over the buffers that `source` has registered, for those that this ring has. Since Linux 6.13.
    pub(crate) fn clone_buffers(&mut self, source: &Ring) -> io::Result<()> {
        let mut clone = io_uring_clone_buffers::default();
        clone.src_fd = source.descriptor.as_raw_fd().cast_unsigned();
        clone.flags = CLONE_REPLACE;
        self.register(IoringRegisterOp::RegisterCloneBuffers, &raw const clone, 1)
    }

    fn register<T>(
        &mut self,
        operation: IoringRegisterOp,
        argument: *const T,
        count: u32,
    ) -> io::Result<()> {
        // SAFETY: each caller above passes what the operation takes, and it outlives the call.
        unsafe { io_uring_register(&self.descriptor, operation, argument.cast(), count)? };
        Ok(())
    }
}
