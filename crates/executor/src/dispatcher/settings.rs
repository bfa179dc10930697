//! What a dispatcher is started with.

use std::path::PathBuf;

use crate::machine::Policy;

/// What a dispatcher is started with.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub policy: Policy,
    /// Where clients connect; without it nobody can call.
    pub socket: Option<PathBuf>,
}
