//! The runs of requests, from dispatch to end.

mod ahead;
pub(super) mod cancel;
pub(super) mod commit;
pub(super) mod dispatch;
mod filing;
pub(super) mod ledger;
mod outcome;
pub(super) mod restore;
