//! The settings that a dispatcher starts with.

use std::num::NonZeroI32;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use forebay_base::host::Host;

use crate::dispatcher::handover::MovedWorker;
use crate::dispatcher::limit::ARGUMENTS_BYTES_MAX;
use crate::gauge::{Limits, Memory};
use crate::limit::LOG_BYTES_MAX;
use crate::machine::Policy;
use crate::store::StoreConfig;

/// The settings that a dispatcher starts with.
#[derive(Debug)]
pub struct Settings {
    pub policy: Policy,
    /// The store; without it requests end with the process, and `policy.durable` is false.
    pub store: Option<StoreConfig>,
    /// The path of the clients' socket; without it no client can connect.
    pub socket: Option<PathBuf>,
    /// That socket and its lock, where another process has passed them on; see [`crate::dispatcher::Dispatcher::give`].
    pub passed: Option<[OwnedFd; 2]>,
    /// Workers of the server that has passed them on, which runs them until their runs have ended.
    pub moved: Vec<MovedWorker>,
    /// The process of the gateway, if there is one that was another server's.
    pub gateway: Option<NonZeroI32>,
    /// The path of the workers' side socket; without it there are no logs, no progress and no interrupts.
    pub side_socket: Option<PathBuf>,
    /// Output of one request that is kept, in the store's directory.
    pub log_bytes_max: u64,
    /// Bytes of one submission's arguments.
    pub arguments_bytes_max: usize,
    /// The workers are on other machines: this one's memory does not bound them, and that of their runs is not measured.
    pub elsewhere: bool,
    /// After a source file changed, dispatch nothing until the new code is installed.
    pub reload: bool,
    /// How long the server is idle before the supervisor is notified; `None`: never.
    pub idle_end: Option<Duration>,
}

impl Settings {
    /// The policy, with what follows from the other settings.
    pub fn whole_policy(&self) -> Policy {
        let mut policy = self.policy.clone();
        if self.elsewhere {
            // Nothing would be learnt from a long run that is alone first.
            let [short, long, _] = &mut policy.unknown_bytes;
            *long = *short;
        }
        if let Some(store) = &self.store {
            policy.result_bytes_max = store.result_bytes_max;
        }
        policy
    }

    /// The memory that the workers have.
    pub fn memory(&self) -> Memory {
        let mut memory = Memory::find(&Host::default());
        if let Some(limit) = self.policy.memory_limit {
            memory = memory.limited(limit);
        }
        if self.elsewhere {
            memory = memory.elsewhere();
        }
        memory
    }
}

impl Default for Settings {
    /// What this machine has, no store, and no sockets.
    fn default() -> Self {
        let found = Limits::find();
        let policy = Policy::default();
        let tight = found.ends_as_group;
        Self {
            policy: Policy {
                cores_milli: found.cores_milli,
                memory_limit: Some(found.memory_bytes),
                memory_free_fraction: if tight {
                    0.10
                } else {
                    policy.memory_free_fraction
                },
                guard_fraction: if tight { 0.95 } else { policy.guard_fraction },
                low_resource: found.low_resource,
                durable: false,
                ..policy
            },
            store: None,
            socket: None,
            passed: None,
            moved: Vec::new(),
            gateway: None,
            side_socket: None,
            log_bytes_max: LOG_BYTES_MAX,
            arguments_bytes_max: ARGUMENTS_BYTES_MAX,
            elsewhere: false,
            reload: false,
            idle_end: None,
        }
    }
}
