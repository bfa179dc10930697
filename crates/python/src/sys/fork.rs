//! Python's own hooks around a fork.

use forebay_pool::sys::Hooks;
use pyo3::ffi;

/// What `CPython` wants called around a fork (`PyOS_BeforeFork` and its siblings, in the stable ABI).
pub const HOOKS: Hooks = Hooks {
    before,
    parent,
    child,
};

fn before() {
    // SAFETY: called by the template's only thread, which holds the GIL.
    unsafe { ffi::PyOS_BeforeFork() }
}

fn parent() {
    // SAFETY: as above, after `before`.
    unsafe { ffi::PyOS_AfterFork_Parent() }
}

fn child() {
    // SAFETY: as above, in the child, after `before`.
    unsafe { ffi::PyOS_AfterFork_Child() }
}
