//! Python buffers that threads without the interpreter read, and let go without waiting for it.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_base::PerProcess;
use pyo3::ffi;
use pyo3::prelude::*;

use super::exports::Exports;
use super::lent::Lent;
use super::loan::Loan;

/// Buffers that may be let go without the interpreter.
#[expect(dead_code, reason = "kept to be dropped")]
pub enum LetGo {
    Lent(Lent),
    Loan(Arc<Loan>),
    Exports(Exports),
}

/// What was let go and waits for a thread that has the interpreter. A child has its own: at the fork, a thread that it has
/// not may have held the parent's.
static LET_GO: PerProcess<Mutex<Vec<LetGo>>> = PerProcess::new();
/// The main thread has been asked to see to it.
static ASKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread has the interpreter, and lets go on purpose.
    static ATTACHED: Cell<bool> = const { Cell::new(false) };
}

/// An export of a Python buffer. Dropping it never waits for the GIL: the export ends a moment later.
pub struct Kept(ManuallyDrop<Lent>);

impl Kept {
    pub fn new(lent: Lent) -> Self {
        Self(ManuallyDrop::new(lent))
    }
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: the value is not used again; this is the only place that takes it out.
        let lent = unsafe { ManuallyDrop::take(&mut self.0) };
        let_go(LetGo::Lent(lent));
    }
}

/// Drop buffers where the interpreter may be used: at once inside of [`drop_attached`], else a moment later.
pub fn let_go(buffers: LetGo) {
    if ATTACHED.get() {
        return drop(buffers);
    }
    LET_GO
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(buffers);
    if !ASKED.swap(true, Ordering::AcqRel) {
        // SAFETY: may be called by any thread, with or without the GIL, while there is an interpreter; the
        // callback takes no argument. A refusal (32 calls wait) leaves it to the next `end_exports`.
        let asked = unsafe {
            ffi::Py_IsInitialized() != 0
                && ffi::Py_AddPendingCall(Some(called), std::ptr::null_mut()) == 0
        };
        if !asked {
            ASKED.store(false, Ordering::Release);
        }
    }
}

/// Drop what holds buffers, which end at once.
pub fn drop_attached<T>(_: Python<'_>, holder: T) {
    let before = ATTACHED.replace(true);
    drop(holder);
    ATTACHED.set(before);
}

/// Run by the main thread between two of its instructions, with the GIL.
extern "C" fn called(_: *mut c_void) -> c_int {
    Python::attach(end_exports);
    0
}

/// End the exports that were let go.
pub fn end_exports(_: Python<'_>) {
    ASKED.store(false, Ordering::Release);
    let ended = std::mem::take(
        &mut *LET_GO
            .get_or_init(Mutex::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner),
    );
    drop(ended);
}

/// Exports that may be dropped by any thread without waiting for the GIL: they end a moment later then.
pub struct KeptExports(Option<Exports>);

impl KeptExports {
    pub fn new(exports: Exports) -> Self {
        Self(Some(exports))
    }

    pub fn get(&self) -> Option<&Exports> {
        self.0.as_ref()
    }
}

impl Drop for KeptExports {
    fn drop(&mut self) {
        if let Some(exports) = self.0.take() {
            let_go(LetGo::Exports(exports));
        }
    }
}

/// The keeper of a batch: dropping it never waits for the GIL; if it is the last reference, the exports end a moment later.
pub struct KeptLoan(Option<Arc<Loan>>);

impl KeptLoan {
    pub fn new(loan: Arc<Loan>) -> Self {
        Self(Some(loan))
    }
}

impl Drop for KeptLoan {
    fn drop(&mut self) {
        if let Some(loan) = self.0.take() {
            let_go(LetGo::Loan(loan));
        }
    }
}
