//! Memory that is made known to `io_uring` for one use.
#![allow(unsafe_code)]
use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr;

use rustix::io_uring::{
    IoringRegisterOp, io_uring_params, io_uring_register, io_uring_setup, iovec,
};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// A ring that nothing is submitted to.
pub struct Ring(OwnedFd);

impl Ring {
    pub fn new() -> io::Result<Self> {
        let mut params = io_uring_params::default();
        // SAFETY: the parameters live over the call.
        Ok(Self(unsafe { io_uring_setup(8, &mut params)? }))
    }
}

/// Map `bytes`, register them, unregister them, unmap them.
pub fn map_register_unmap(ring: &Ring, bytes: usize) -> io::Result<()> {
    let writable = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: fresh memory at an address that the kernel picks; nobody else knows it until it is unmapped below.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, writable, MapFlags::PRIVATE)? };
    let registered = register(ring, start, bytes);
    // SAFETY: as it was mapped above; the kernel has let go of it.
    unsafe { munmap(start, bytes)? };
    registered
}

fn register(ring: &Ring, start: *mut c_void, bytes: usize) -> io::Result<()> {
    let buffer = iovec {
        iov_base: start,
        iov_len: bytes,
    };
    let (take, give) = (
        IoringRegisterOp::RegisterBuffers,
        IoringRegisterOp::UnregisterBuffers,
    );
    // SAFETY: one buffer, described over the call; it stays mapped until it is unregistered.
    unsafe { io_uring_register(&ring.0, take, (&raw const buffer).cast(), 1)? };
    // SAFETY: takes no argument; nothing is in flight.
    unsafe { io_uring_register(&ring.0, give, ptr::null(), 0)? };
    Ok(())
}
