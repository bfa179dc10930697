//! libibverbs, loaded on first use, so that machines without it need nothing of it.
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::mem;
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::layout::{
    Channel, CompletionQueue, Context, DeviceAttributes, Gid, MemoryRegion, Opaque, PairAttributes,
    PairRequest, PortAttributes, QueuePair,
};

const NAME: &CStr = c"libibverbs.so.1";

/// Declares the structure of function pointers, and how it is filled from the symbols of the same names.
macro_rules! symbols {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library that are used here.
        #[derive(Debug)]
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Library {
            fn find(handle: NonNull<c_void>) -> Result<Self, String> {
                Ok(Self {
                    // SAFETY: a symbol of this name has had this type since libibverbs 1.1.
                    $($name: unsafe {
                        mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            symbol(handle, concat!(stringify!($name), "\0"))?,
                        )
                    },)*
                })
            }
        }
    };
}

symbols! {
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut Opaque;
    ibv_free_device_list: fn(*mut *mut Opaque);
    ibv_get_device_name: fn(*mut Opaque) -> *const c_char;
    ibv_open_device: fn(*mut Opaque) -> *mut Context;
    ibv_close_device: fn(*mut Context) -> c_int;
    ibv_query_device: fn(*mut Context, *mut DeviceAttributes) -> c_int;
    ibv_query_port: fn(*mut Context, u8, *mut PortAttributes) -> c_int;
    ibv_query_gid: fn(*mut Context, u8, c_int, *mut Gid) -> c_int;
    ibv_alloc_pd: fn(*mut Context) -> *mut Opaque;
    ibv_dealloc_pd: fn(*mut Opaque) -> c_int;
    ibv_reg_mr: fn(*mut Opaque, *mut c_void, usize, c_int) -> *mut MemoryRegion;
    ibv_dereg_mr: fn(*mut MemoryRegion) -> c_int;
    ibv_create_comp_channel: fn(*mut Context) -> *mut Channel;
    ibv_destroy_comp_channel: fn(*mut Channel) -> c_int;
    ibv_create_cq: fn(*mut Context, c_int, *mut c_void, *mut Channel, c_int) -> *mut CompletionQueue;
    ibv_destroy_cq: fn(*mut CompletionQueue) -> c_int;
    ibv_get_cq_event: fn(*mut Channel, *mut *mut CompletionQueue, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: fn(*mut CompletionQueue, c_uint);
    ibv_create_qp: fn(*mut Opaque, *mut PairRequest) -> *mut QueuePair;
    ibv_modify_qp: fn(*mut QueuePair, *mut PairAttributes, c_int) -> c_int;
    ibv_destroy_qp: fn(*mut QueuePair) -> c_int;
    ibv_wc_status_str: fn(c_uint) -> *const c_char;
}

impl Library {
    /// The library, loaded once for the process and never unloaded: its threads and drivers would not survive that.
    ///
    /// # Errors
    ///
    /// Why it cannot be loaded.
    pub(crate) fn get() -> Result<&'static Self, String> {
        static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
        LOADED
            .get_or_init(Self::load)
            .as_ref()
            .map_err(Clone::clone)
    }

    fn load() -> Result<Self, String> {
        // SAFETY: a name that ends with a zero; the library's constructors do nothing but set up its own state.
        let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle)
            .ok_or_else(|| format!("{}; Debian's package libibverbs1 has it", failure()))?;
        Self::find(handle)
    }

    /// The library's text for a completion status.
    pub(crate) fn status_text(&self, status: u32) -> String {
        // SAFETY: answers any number with a text that is never freed.
        unsafe { text((self.ibv_wc_status_str)(status)) }
    }
}

fn symbol(handle: NonNull<c_void>, name: &str) -> Result<*mut c_void, String> {
    // SAFETY: the handle is of a library that stays loaded, and the name ends with a zero.
    let found = unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr().cast()) };
    if found.is_null() {
        return Err(format!("{NAME:?} is too old: {}", failure()));
    }
    Ok(found)
}

/// The loader's text for its last failure in this thread.
fn failure() -> String {
    // SAFETY: the text is valid until this thread's next call of the loader.
    unsafe { text(libc::dlerror()) }
}

/// Copy a C string.
///
/// # Safety
///
/// `start` is null, or a string that ends with a zero and does not change meanwhile.
pub(crate) unsafe fn text(start: *const c_char) -> String {
    if start.is_null() {
        return "no reason was given".to_owned();
    }
    // SAFETY: as promised by the caller.
    unsafe { CStr::from_ptr(start) }
        .to_string_lossy()
        .into_owned()
}

/// Check a returned pointer.
///
/// # Errors
///
/// The error in `errno` if it is null.
pub(crate) fn given<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

/// Check a returned number: 0, an error number, or -1 with the error in `errno`.
pub(crate) fn checked(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        number => Err(io::Error::from_raw_os_error(number.abs())),
    }
}
