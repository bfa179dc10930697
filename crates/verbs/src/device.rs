//! The device of this process, opened once, and what it knows of the process's memory.
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_memory::{Backing, Config, Lease, Region, Registrar};
use forebay_tensor::Error;
use forebay_transport::PerProcess;

use crate::discovery::{Adapter, Found};
use crate::registry::Registry;

/// Room for the requests of all connections: 64 bytes for each slot at each end.
const REQUESTS_BYTES_MAX: u64 = 1 << 30;
const REQUESTS_CHUNK_BYTES: u64 = 1 << 20;

/// A device, the registry of its memory, and memory of its own for requests.
#[derive(Debug)]
pub struct Device {
    pub(super) adapter: Adapter,
    pub(super) registry: Arc<Registry>,
    /// Not the caller's: what is there for requests is nobody's tensor.
    pub(super) requests: Region,
    /// Regions that the registry is attached to.
    attached: Mutex<HashSet<u64>>,
}

/// The device that was opened.
static OPENED: PerProcess<Mutex<Option<Arc<Device>>>> = PerProcess::empty();

impl Device {
    /// The first device that can be used, opened by the first call and kept for the process.
    ///
    /// A forked child opens it anew, and lets what its parent opened alone.
    ///
    /// # Errors
    ///
    /// Why there is none, in words for people.
    pub fn get() -> Result<Arc<Self>, String> {
        let mut opened = OPENED.get().lock().unwrap_or_else(PoisonError::into_inner);
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
                "RDMA device {name} cannot take keys back (no windows of type 2B)"
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

    /// Have the device know the region's memory: chunk by chunk, those that are there and those that come. Idempotent.
    ///
    /// A chunk that the kernel refuses to pin is not used; [`Registry::reason`] has the words for it.
    ///
    /// # Errors
    ///
    /// [`Error::Broken`] where the region is closed, or a parent's.
    pub fn attach(&self, region: &Region) -> Result<(), Error> {
        let mut attached = self.attached.lock().unwrap_or_else(PoisonError::into_inner);
        if attached.contains(&region.id()) {
            return Ok(());
        }
        let registrar = Arc::clone(&self.registry) as Arc<dyn Registrar>;
        region.attach(registrar).map_err(|error| Error::Broken {
            why: format!("the arena cannot be registered: {error}"),
        })?;
        attached.insert(region.id()); // ids are random and never used again
        Ok(())
    }

    /// What it is.
    pub fn found(&self) -> &Found {
        self.adapter.found()
    }

    /// Check that the device knows the memory of a block.
    ///
    /// # Errors
    ///
    /// Why it does not: its region was not attached, or the kernel refused to pin its chunk.
    pub fn check(&self, block: &Lease) -> Result<(), Error> {
        self.registry.find(block).map(drop)
    }

    /// What it knows of memory.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}
