//! The signal mask of the calling thread.
use std::mem::MaybeUninit;
use std::ptr;

/// What the kernel raises in the thread that made the mistake: blocked, it would end the process without a word.
const FAULTS: [libc::c_int; 6] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGSEGV,
    libc::SIGTRAP,
];

/// Blocks all signals but faults in the calling thread while it lives, and so in the threads that are made meanwhile.
///
/// A signal of the process then goes to a thread that waits for one, and no transfer is cut short.
/// `SIGPIPE` and `SIGXFSZ` stay pending in the thread that wrote, whose result is `EPIPE` and `EFBIG`.
pub(crate) struct Blocked {
    before: libc::sigset_t,
}

impl Blocked {
    pub(crate) fn all() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: the sets are ours; sigfillset writes the first whole, pthread_sigmask the second.
        // Neither fails for arguments that are all valid.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            for fault in FAULTS {
                libc::sigdelset(all.as_mut_ptr(), fault);
            }
            let failed =
                libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            debug_assert_eq!(failed, 0, "pthread_sigmask");
            Self {
                before: before.assume_init(),
            }
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is one that the kernel gave.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}
