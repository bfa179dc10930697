//! What a dispatcher is started with.

use std::path::PathBuf;

use crate::machine::Policy;
use crate::store::StoreConfig;

/// What a dispatcher is started with.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub policy: Policy,
    /// Where requests are kept; without it they are lost with the process, and `policy.durable` is false.
    pub store: Option<StoreConfig>,
    /// Where clients connect; without it nobody can call.
    pub socket: Option<PathBuf>,
}
