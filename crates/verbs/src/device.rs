//! The device of this process, opened once, and its registered memory.
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_base::PerProcess;
use forebay_memory::{Backing, Config, Lease, Region, Registrar};
use forebay_tensor::Error;

use crate::discovery::{Adapter, Found};
use crate::registry::Registry;

/// Memory for the requests of all connections: 64 bytes per slot and end.
const REQUESTS_BYTES_MAX: u64 = 1 << 30;
const REQUESTS_CHUNK_BYTES: u64 = 1 << 20;

/// A device, the registry of its memory, and separate memory for requests.
#[derive(Debug)]
pub struct Device {
    pub(super) adapter: Adapter,
    pub(super) registry: Arc<Registry>,
    /// Not the caller's region: memory for requests must never hold tensors.
    pub(super) requests: Region,
    /// Regions that the registry is attached to.
    attached: Mutex<HashSet<u64>>,
}

/// The opened device.
static OPENED: PerProcess<Mutex<Option<Arc<Device>>>> = PerProcess::new();

impl Device {
    /// The first usable device, opened by the first call and kept for the process.
    ///
    /// A forked child opens its own, and does not touch its parent's.
    ///
    /// # Errors
    ///
    /// Why no device is usable, as a message.
    pub fn get() -> Result<Arc<Self>, String> {
        let mut opened = OPENED
            .get_or_init(Mutex::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = &*opened {
            return Ok(Arc::clone(device));
        }
        let device = Arc::new(Self::open()?);
        *opened = Some(Arc::clone(&device));
        Ok(device)
    }

    fn open() -> Result<Self, String> {
        let adapter = Adapter::open(None).map_err(|error| match error {
            Error::Broken { why } => why,
            other => other.to_string(),
        })?;
        if !adapter.found().has_windows {
            let name = &adapter.found().device;
            return Err(format!(
                "RDMA device {name} cannot revoke keys (no windows of type 2B)"
            ));
        }
        let registry = Registry::new(&adapter);
        let config = Config::new("verbs requests", REQUESTS_BYTES_MAX)
            .chunk_bytes(REQUESTS_CHUNK_BYTES)
            .backing(Backing::Pages);
        let requests = Region::new(config).map_err(|error| error.to_string())?;
        let device = Self {
            adapter,
            registry,
            requests,
            attached: Mutex::default(),
        };
        device
            .attach(&device.requests)
            .map_err(|error| error.to_string())?;
        Ok(device)
    }

    /// Register a region's memory with the device, chunk by chunk, later chunks included. Idempotent.
    ///
    /// A chunk that the kernel refuses to pin is not used; [`Registry::reason`] has the reason.
    ///
    /// # Errors
    ///
    /// [`Error::Broken`] if the region is closed, or belongs to the parent process.
    pub fn attach(&self, region: &Region) -> Result<(), Error> {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        if attached.contains(&region.id()) {
            return Ok(());
        }
        let registrar = Arc::clone(&self.registry) as Arc<dyn Registrar>;
        region.attach(registrar).map_err(|error| Error::Broken {
            why: format!("the arena cannot be registered: {error}"),
        })?;
        attached.insert(region.id()); // ids are random and never reused
        Ok(())
    }

    /// Its description.
    pub fn found(&self) -> &Found {
        self.adapter.found()
    }

    /// Check that the device knows the memory of a block.
    ///
    /// # Errors
    ///
    /// Why not: its region was not attached, or the kernel refused to pin its chunk.
    pub fn check(&self, block: &Lease) -> Result<(), Error> {
        self.registry.find(block).map(drop)
    }

    /// The registry of its memory.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}
