//! Devices and their opened contexts, each with the protection domain that all other objects belong to.
use std::ffi::c_int;
use std::fs;
use std::io;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::layout::{
    Context, DeviceAttributes, Gid, Opaque, PORT_ACTIVE, PortAttributes, WINDOWS_2B,
};
use super::library::{Library, checked, given, text};

/// Where the kernel lists devices.
const DEVICES: &str = "/sys/class/infiniband";

/// Names of the devices; at least one.
///
/// # Errors
///
/// Why there is none: the kernel has no device, or the library no provider for them.
pub(crate) fn names() -> Result<Vec<String>, String> {
    // The library would load the drivers of all possible devices before it reports that there is none: half a second.
    let kernels = of_kernel(Path::new(DEVICES));
    if kernels.is_empty() {
        return Err(format!(
            "the kernel has no RDMA device ({DEVICES} is empty)"
        ));
    }
    let list = List::new(Library::get()?)
        .map_err(|error| format!("the devices cannot be listed: {error}"))?;
    named(list.devices().map(|device| list.name(device)), &kernels)
}

fn of_kernel(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    (entries.filter_map(|entry| entry.file_name().into_string().ok())).collect()
}

/// The library lists only devices that it has a provider for.
pub(super) fn named(
    listed: impl Iterator<Item = String>,
    kernels: &[String],
) -> Result<Vec<String>, String> {
    let names: Vec<_> = listed.collect();
    if names.is_empty() {
        return Err(format!(
            "libibverbs has no provider for {} (Debian's package ibverbs-providers)",
            kernels.join(", ")
        ));
    }
    Ok(names)
}

/// The library's list of devices, freed with it.
struct List {
    library: &'static Library,
    first: NonNull<*mut Opaque>,
    count: usize,
}

impl List {
    fn new(library: &'static Library) -> io::Result<Self> {
        let mut count: c_int = 0;
        // SAFETY: the number is ours; the list is freed by `drop`.
        let first = given(unsafe { (library.ibv_get_device_list)(&raw mut count) })?;
        Ok(Self {
            library,
            first,
            count: usize::try_from(count).unwrap_or(0),
        })
    }

    fn devices(&self) -> impl Iterator<Item = *mut Opaque> {
        // SAFETY: the library says that so many pointers are there.
        (0..self.count).map(|at| unsafe { self.first.add(at).read() })
    }

    fn name(&self, device: *mut Opaque) -> String {
        // SAFETY: a device of the list, which outlives the text that is copied.
        unsafe { text((self.library.ibv_get_device_name)(device)) }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: given by the library, freed once. Devices that were opened stay.
        unsafe { (self.library.ibv_free_device_list)(self.first.as_ptr()) };
    }
}

/// Attributes of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) is_active: bool,
    /// The library's number: 1 for 256 bytes to 5 for 4096.
    pub(crate) mtu: u32,
    pub(crate) lid: u16,
}

/// An opened device with a protection domain. Closed once all objects made of it are dropped.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) library: &'static Library,
    context: NonNull<Context>,
    protection: NonNull<Opaque>,
    /// The fork epoch of the process that opened it.
    epoch: u64,
}

// SAFETY: libibverbs' objects may be used by any thread, several at once.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// Open the device of this name.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is none, else the error of the library or the kernel.
    pub(crate) fn open(name: &str) -> io::Result<Arc<Self>> {
        let library = Library::get().map_err(io::Error::other)?;
        let list = List::new(library)?;
        let device = list
            .devices()
            .find(|device| list.name(*device) == name)
            .ok_or(io::ErrorKind::NotFound)?;
        // SAFETY: a device of the list.
        let context = given(unsafe { (library.ibv_open_device)(device) })?;
        // SAFETY: the context is open.
        let domain =
            given(unsafe { (library.ibv_alloc_pd)(context.as_ptr()) }).inspect_err(|_| {
                // SAFETY: nothing was made of it.
                unsafe { (library.ibv_close_device)(context.as_ptr()) };
            })?;
        Ok(Arc::new(Self {
            library,
            context,
            protection: domain,
            epoch: forebay_memory::epoch(),
        }))
    }

    /// Whether a parent of this process opened it. A forked child shares the descriptor, and destroying objects
    /// through it would destroy the parent's: so a child destroys and changes nothing.
    pub(crate) fn is_foreign(&self) -> bool {
        self.epoch != forebay_memory::epoch()
    }

    pub(crate) fn context(&self) -> *mut Context {
        self.context.as_ptr()
    }

    pub(crate) fn as_ptr(&self) -> *mut Opaque {
        self.protection.as_ptr()
    }

    /// Whether keys on parts of a registration can be granted and revoked (windows of type 2B).
    pub(crate) fn has_windows(&self) -> io::Result<bool> {
        let mut attributes = DeviceAttributes::default();
        // SAFETY: the context is open, and there is more room than the library fills.
        checked(unsafe { (self.library.ibv_query_device)(self.context(), &raw mut attributes) })?;
        Ok(attributes.capabilities & WINDOWS_2B != 0)
    }

    pub(crate) fn port(&self, number: u8) -> io::Result<Port> {
        let mut attributes = PortAttributes::default();
        // SAFETY: as above.
        checked(unsafe {
            (self.library.ibv_query_port)(self.context(), number, &raw mut attributes)
        })?;
        Ok(Port {
            is_active: attributes.state == PORT_ACTIVE,
            mtu: attributes.mtu,
            lid: attributes.lid,
        })
    }

    pub(crate) fn gid(&self, port: u8, index: u8) -> io::Result<Gid> {
        let mut gid = [0; 16];
        // SAFETY: the context is open, and the address has 16 bytes.
        checked(unsafe {
            (self.library.ibv_query_gid)(self.context(), port, c_int::from(index), &raw mut gid)
        })?;
        Ok(gid)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        if self.is_foreign() {
            return;
        }
        // SAFETY: all objects made of them hold this domain, so none is left.
        unsafe {
            (self.library.ibv_dealloc_pd)(self.protection.as_ptr());
            (self.library.ibv_close_device)(self.context.as_ptr());
        }
    }
}

/// An entry of the context's table, which drivers fill.
pub(crate) fn entry<T>(found: Option<T>) -> io::Result<T> {
    found.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))
}

/// A null pointer.
pub(crate) fn none<T>() -> *mut T {
    ptr::null_mut()
}
