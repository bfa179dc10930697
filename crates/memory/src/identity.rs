//! A region's identity: what all threads know of it without its lock.
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::Config;
use crate::error::Error;
use forebay_base::process;

#[derive(Debug)]
pub(crate) struct Identity {
    config: Config,
    id: u64,
    /// The next allocation's number, from 1.
    generations: AtomicU64,
    /// The process that made it, and its epoch.
    owner: u32,
    epoch: u64,
}

impl Identity {
    /// Of a region that this process makes.
    pub(crate) fn new(config: Config, id: u64) -> Self {
        Self {
            config,
            id,
            generations: AtomicU64::new(1),
            owner: process::id(),
            epoch: process::epoch(),
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The name that messages use.
    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// The number that references carry.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Take the numbers of the next `count` allocations; returns the first of them.
    pub(crate) fn take_generations(&self, count: u64) -> u64 {
        self.generations.fetch_add(count, Ordering::Relaxed)
    }

    /// Check that this is the process that made it, not a forked child.
    pub(crate) fn check_owner(&self) -> Result<(), Error> {
        if self.epoch == process::epoch() {
            return Ok(());
        }
        Err(self.forked())
    }

    /// The refusal in a forked child.
    pub(crate) fn forked(&self) -> Error {
        Error::Forked {
            arena: self.config.name.clone(),
            owner: self.owner,
            child: process::id(),
        }
    }
}
