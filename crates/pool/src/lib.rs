//! The pool machine, and the keeper that owns processes.
