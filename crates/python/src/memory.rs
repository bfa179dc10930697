//! `forebay._core.Arena` and `Buffer`: the memory crate for Python.
#![allow(clippy::doc_markdown)] // the comments are Python docstrings
mod sys;

use std::os::fd::{IntoRawFd, RawFd};

use forebay_memory::{Backing, Config, Reference, Region};
use forebay_transport::stream::shm;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView};

use crate::error::{Result, config};
use crate::fields::set_items;
pub(crate) use sys::{Buffer, Rows, Window};

/// Add the classes to the extension module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Arena>()?;
    module.add_class::<Buffer>()?;
    module.add_class::<Window>()?;
    module.add_class::<Rows>()
}

/// Memory that this process owns and other processes may map for reading. Base of `forebay.memory.Arena`.
#[pyclass(frozen, subclass, weakref, module = "forebay._core")]
pub(crate) struct Arena {
    region: Region,
}

impl Arena {
    /// The core's handle.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }
}

#[pymethods]
impl Arena {
    #[new]
    fn new(limit_bytes: u64, name: &str, backing: &str, populate: bool) -> Result<Self> {
        let backing = Backing::named(backing).ok_or_else(|| {
            config(format!(
                "arena {name:?}: unknown backing {backing:?}; use one of auto, hugetlb, transparent, pages"
            ))
        })?;
        let config = Config::new(name, limit_bytes)
            .backing(backing)
            .populate(populate);
        let region = Region::new(config)?;
        Ok(Self { region })
    }

    /// Allocate `n_bytes` bytes; what they hold is undefined.
    ///
    /// Aligned to 64 bytes, from 64 KiB up to 4096 bytes.
    /// The memory goes back when the buffer and everything made from it are gone, or with `Buffer.free`.
    ///
    /// Args:
    ///     n_bytes: the size, 0 or more.
    ///
    /// Raises:
    ///     LimitError: `arena_bytes_max` leaves no room; `.limit` is the limit, `.value` the size asked for.
    ///         Or more than a quarter of it (`quarantine_bytes_max`) is in quarantine; `.value` is how much.
    ///     ConfigError: the size is negative.
    ///     ClosedError: the arena is closed.
    ///     StaleError: this is a forked child of the arena's owner.
    ///     BrokenError: the kernel gave no memory, no descriptor, or none of the pages that `backing` asks for.
    ///
    /// Threads: any. Cost: below a microsecond; some system calls when a chunk is mapped.
    fn allocate(&self, py: Python<'_>, n_bytes: isize) -> Result<Buffer> {
        let Ok(bytes) = usize::try_from(n_bytes) else {
            let name = self.region.name();
            return Err(config(format!(
                "arena {name:?}: cannot allocate {n_bytes} bytes"
            )));
        };
        // What is lent to peers, of open connections too, may have come back meanwhile.
        let lease = py.detach(|| match self.region.allocate(bytes) {
            Err(forebay_memory::Error::Full { .. }) if shm::reclaim() => {
                self.region.allocate(bytes)
            }
            outcome => outcome,
        });
        Ok(Buffer::new(lease?))
    }

    /// Take a further lease of the block that `reference` names.
    ///
    /// Args:
    ///     reference: what `Buffer.reference` gave, or the same five numbers as a tuple.
    ///
    /// Returns:
    ///     A buffer over the same memory; the block lives until all of its buffers are gone or freed.
    ///
    /// Raises:
    ///     StaleError: the block was freed since, even if another one lies there now.
    ///     ConfigError: the reference is of another arena.
    ///     ClosedError: the arena is closed.
    ///
    /// Threads: any.
    fn view(&self, py: Python<'_>, reference: (u64, u32, u64, u64, u64)) -> Result<Buffer> {
        let (region, chunk, offset, length, generation) = reference;
        let reference = Reference {
            region,
            chunk,
            offset,
            length,
            generation,
        };
        let lease = py.detach(|| self.region.lease(&reference))?;
        Ok(Buffer::new(lease))
    }

    /// A descriptor of a chunk, the caller's to close, for another process to map for reading.
    ///
    /// Args:
    ///     chunk: its number, from `Buffer.reference`.
    ///
    /// Raises:
    ///     BrokenError: there is no such chunk, or no descriptor is left.
    ///     ClosedError: the arena is closed.
    fn share(&self, chunk: u32) -> Result<RawFd> {
        let descriptor = self.region.share_chunk(chunk)?;
        Ok(descriptor.into_raw_fd())
    }

    /// Unmap the chunks in which nothing is allocated.
    ///
    /// Returns:
    ///     How many bytes that gave back.
    ///
    /// Raises:
    ///     ClosedError: the arena is closed, and has given back all it can.
    fn trim(&self, py: Python<'_>) -> Result<u64> {
        Ok(py.detach(|| self.region.trim())?)
    }

    /// Refuse further allocations and views, and unmap what is not in use. Idempotent.
    ///
    /// Returns:
    ///     How many blocks are still held by buffers, arrays or views.
    ///     Their memory stays mapped until they go; that is no error.
    fn close(&self, py: Python<'_>) -> Result<u64> {
        Ok(py.detach(|| self.region.close())?)
    }

    /// Return what the arena holds at this moment, all sizes in bytes.
    ///
    /// Returns:
    ///     `limit_bytes` (on `mapped_bytes`), `live_bytes` (asked for by live blocks) and `live_bytes_peak`,
    ///     `mapped_bytes` (size of all chunks) and `mapped_bytes_peak`; of it `hugetlb_bytes` in huge pages of the pool and
    ///     `transparent_bytes` in pages that the kernel may join; `waste_bytes` (mapped and not asked for), and of it
    ///     `shelved_bytes` in `shelved_blocks`, which threads keep for their next allocations;
    ///     `blocks`, `chunks`, `allocations` (since the arena was made);
    ///     `quarantined_blocks` and `quarantined_bytes` of them are live blocks that the kernel or a peer may still write,
    ///     although the caller that asked for it has given up.
    fn stats<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let stats = self.region.stats()?;
        let dict = PyDict::new(py);
        set_items!(
            dict, stats;
            limit_bytes live_bytes live_bytes_peak mapped_bytes mapped_bytes_peak
            hugetlb_bytes transparent_bytes waste_bytes shelved_blocks shelved_bytes
            blocks quarantined_blocks quarantined_bytes chunks allocations
        );
        Ok(dict)
    }

    /// The name that messages and the system's memory maps show.
    #[getter]
    fn name(&self) -> &str {
        self.region.name()
    }

    /// The limit `arena_bytes_max`.
    #[getter]
    fn limit_bytes(&self) -> u64 {
        self.region.limit_bytes()
    }

    /// The number that references carry, drawn at random.
    #[getter(region)]
    fn region_id(&self) -> u64 {
        self.region.id()
    }

    /// Whether the arena was closed.
    #[getter]
    fn closed(&self) -> Result<bool> {
        Ok(self.region.is_closed()?)
    }

    /// What the last chunk is made of, "hugetlb", "transparent" or "pages", with the reason where `backing="auto"`
    /// found nothing better; None before there is a chunk.
    #[getter]
    fn backing(&self) -> Result<Option<String>> {
        let backed = self.region.backed()?;
        Ok(backed.map(|backed| backed.to_string()))
    }

    fn __repr__(&self) -> String {
        let backing = match self.region.backed() {
            Ok(Some(backed)) => format!(", backing {backed}"),
            // Nothing is mapped, or this is a forked child, which may look at what it inherited.
            Ok(None) | Err(_) => String::new(),
        };
        format!(
            "<forebay.Arena {:?}, at most {} bytes{backing}>",
            self.region.name(),
            self.region.limit_bytes()
        )
    }
}

/// How far `base` and `obj` are followed from an array to the memory it shows.
const BASES_MAX: usize = 16;

/// The arena's buffer below a view or an array.
pub(crate) fn block_under<'py>(memory: &Bound<'py, PyAny>) -> Option<Bound<'py, Buffer>> {
    let mut below = memory.clone();
    for _ in 0..BASES_MAX {
        if let Ok(buffer) = below.cast::<Buffer>() {
            return Some(buffer.clone());
        }
        let name = if below.is_instance_of::<PyMemoryView>() {
            "obj"
        } else {
            "base"
        };
        below = below.getattr(name).ok()?;
    }
    None
}
