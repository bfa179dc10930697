//! What every part works with: the machine that decides, the epoll, the time of the turn, the queues to the program.

use std::sync::Arc;

use crate::dispatcher::poll::Poll;
use crate::dispatcher::supervisor::shared::Shared;
use crate::machine::Machine;
use crate::request::Millis;
use crate::secret::Secrets;

/// The driver lends it to the parts, one event at a time.
pub struct Context {
    pub poll: Poll,
    /// The time of this turn, the same for every event in it.
    pub now: Millis,
    pub machine: Machine,
    pub shared: Arc<Shared>,
    /// What secret arguments are sealed with.
    pub secrets: Secrets,
}
