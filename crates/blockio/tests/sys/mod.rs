//! What tests do with memory, signals and the heap that needs `unsafe`.
#![allow(unsafe_code, dead_code)] // each test uses a part of it
pub mod counting;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::thread::JoinHandleExt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::JoinHandle;

use forebay_blockio::{Batch, Error, Files, Keeper, Lent, Memory, Operation, Operations, Results};

/// What `O_DIRECT` asks for everywhere.
const ALIGN: usize = 4096;

struct Held {
    operations: Box<[UnsafeCell<Operation>]>,
    results: Box<[UnsafeCell<i64>]>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is looked at through raw pointers only, as memory is that the kernel writes.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

/// Memory of one batch: its operations, its buffer, its results. Clones are owners of the same memory.
#[derive(Clone)]
pub struct Loan(Arc<Held>);

impl Loan {
    /// Lend `operations` and a buffer of `bytes`, all zero; the results are `i64::MIN`.
    pub fn new(operations: &[Operation], bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).expect("a small buffer");
        // SAFETY: the layout has a size.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("there is memory");
        Self(Arc::new(Held {
            operations: operations.iter().copied().map(UnsafeCell::new).collect(),
            results: operations
                .iter()
                .map(|_| UnsafeCell::new(i64::MIN))
                .collect(),
            start,
            bytes,
        }))
    }

    /// The batch. Its memory is kept by the test, or by [`Loan::keeper`], until it is done.
    pub fn batch(&self, files: Files, exact: bool) -> Batch {
        self.check(files, exact).expect("it is right")
    }

    /// The batch, if it is right.
    pub fn check(&self, files: Files, exact: bool) -> Result<Batch, Error> {
        let count = self.0.operations.len();
        // SAFETY: the test, or the keeper it gives, owns the memory until the batch is done.
        unsafe {
            Batch::new(
                Operations::Listed(Lent::new(NonNull::from(&*self.0.operations).cast(), count)),
                files,
                Memory::new(self.0.start, self.0.bytes, true),
                Results::new(NonNull::from(&*self.0.results).cast(), count),
                exact,
            )
        }
    }

    /// An owner for a batch in flight.
    pub fn keeper(&self) -> Keeper {
        Box::new(self.clone())
    }

    /// How many own the memory.
    pub fn owners(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    pub fn results(&self) -> Vec<i64> {
        let cells = self.0.results.iter();
        // SAFETY: ours, aligned, and written as atomics while a batch is in flight.
        let number = |cell: &UnsafeCell<i64>| unsafe { AtomicI64::from_ptr(cell.get()) };
        cells
            .map(|cell| number(cell).load(Ordering::Acquire))
            .collect()
    }

    /// A copy of `bytes` of the buffer from `at`.
    pub fn read(&self, at: usize, bytes: usize) -> Vec<u8> {
        assert!(at + bytes <= self.0.bytes);
        let each = at..at + bytes;
        // SAFETY: within the buffer; as in `results`.
        each.map(|at| unsafe { self.0.start.add(at).read_volatile() })
            .collect()
    }

    /// Put `content` into the buffer at `at`.
    pub fn write(&self, at: usize, content: &[u8]) {
        assert!(at + content.len() <= self.0.bytes);
        for (at, &byte) in (at..).zip(content) {
            // SAFETY: within the buffer, and no batch is in flight.
            unsafe { self.0.start.add(at).write_volatile(byte) };
        }
    }

    /// Change operation `index`, as another thread may while the batch is in flight.
    pub fn change(&self, index: usize, operation: Operation) {
        // SAFETY: ours; a batch reads it volatile, and checks what it has read.
        unsafe { self.0.operations[index].get().write_volatile(operation) };
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.bytes.max(1), ALIGN).expect("as it was made");
        // SAFETY: made with this layout, and nobody else owns it.
        unsafe { dealloc(self.start.as_ptr(), layout) };
    }
}

extern "C" fn nothing(_: libc::c_int) {}

/// Have `SIGUSR1` do nothing, and system calls go on after it where they can (`SA_RESTART`).
pub fn handle_signal() {
    // SAFETY: the handler does nothing, and all of the action is set.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()),
            0
        );
    }
}

/// Send it to a thread that has not been joined.
pub fn signal<T>(thread: &JoinHandle<T>) {
    // SAFETY: the handle is of a thread that was not joined.
    assert_eq!(
        unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR1) },
        0
    );
}

/// Ignore the signal of a file that grows beyond its limit, so that the write fails instead.
pub fn ignore_file_size_signal() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Make a descriptor of somebody else's mean another file, as a program does that closes what is not its own.
pub fn put_over(descriptor: RawFd, file: &impl AsFd) {
    let file = file.as_fd().as_raw_fd();
    // SAFETY: numbers only; what the owner of `descriptor` makes of it is what the test is about.
    assert_eq!(unsafe { libc::dup2(file, descriptor) }, descriptor);
}
