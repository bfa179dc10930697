//! An operation as the kernel reads it: a submission queue entry.
use std::os::fd::RawFd;

use rustix::io_uring::{
    IoringAsyncCancelFlags, IoringFsyncFlags, IoringOp, IoringPollFlags, IoringSqeFlags,
    addr_or_splice_off_in_union, buf_union, io_uring_ptr, io_uring_sqe, io_uring_user_data,
    len_union, off_or_addr2_union, op_flags_union,
};

use crate::flight::Issue;
use crate::operation::Kind;

/// POLLIN of poll(2).
const READABLE: u32 = 1;

/// The file of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// A slot in the ring's table of files.
    Registered(u32),
    /// A descriptor.
    Descriptor(RawFd),
}

impl Target {
    fn into_parts(self) -> (RawFd, IoringSqeFlags) {
        match self {
            Self::Registered(slot) => (slot.cast_signed(), IoringSqeFlags::FIXED_FILE),
            Self::Descriptor(descriptor) => (descriptor, IoringSqeFlags::empty()),
        }
    }
}

/// The entry of a read, a write or a sync.
pub(crate) fn transfer(issue: &Issue<'_>, target: Target) -> io_uring_sqe {
    let (fd, flags) = target.into_parts();
    let mut entry = io_uring_sqe {
        opcode: opcode(issue.kind, issue.buffer.is_some()),
        flags,
        fd,
        user_data: io_uring_user_data::from_u64(u64::from(issue.slot)),
        ..io_uring_sqe::default()
    };
    match issue.kind {
        Kind::Read | Kind::Write => {
            // Only the kernel follows it; the lender of the memory exposed its address.
            #[allow(clippy::cast_possible_truncation)] // it was a pointer
            let address = std::ptr::with_exposed_provenance_mut(issue.address as usize);
            entry.off_or_addr2 = off_or_addr2_union { off: issue.offset };
            entry.addr_or_splice_off_in = addr_or_splice_off_in_union {
                addr: io_uring_ptr::new(address),
            };
            entry.len = len_union { len: issue.length };
            entry.buf = buf_union {
                buf_index: issue.buffer.unwrap_or(0),
            };
        }
        Kind::Fsync => {}
        Kind::Fdatasync => {
            entry.op_flags = op_flags_union {
                fsync_flags: IoringFsyncFlags::DATASYNC,
            };
        }
    }
    entry
}

fn opcode(kind: Kind, registered: bool) -> IoringOp {
    match (kind, registered) {
        (Kind::Read, false) => IoringOp::Read,
        (Kind::Read, true) => IoringOp::ReadFixed,
        (Kind::Write, false) => IoringOp::Write,
        (Kind::Write, true) => IoringOp::WriteFixed,
        (Kind::Fsync | Kind::Fdatasync, _) => IoringOp::Fsync,
    }
}

/// An entry that does nothing but complete.
pub(crate) fn nothing(name: u64) -> io_uring_sqe {
    named(IoringOp::Nop, name)
}

/// An entry that completes each time `descriptor` is readable.
pub(crate) fn watch(descriptor: RawFd, name: u64) -> io_uring_sqe {
    io_uring_sqe {
        fd: descriptor,
        len: len_union {
            poll_flags: IoringPollFlags::ADD_MULTI,
        },
        op_flags: op_flags_union {
            poll32_events: READABLE,
        },
        ..named(IoringOp::PollAdd, name)
    }
}

/// An entry that asks for whatever is in flight to be cancelled. A disk does not listen; a pipe does.
pub(crate) fn cancel_all(name: u64) -> io_uring_sqe {
    io_uring_sqe {
        fd: -1,
        op_flags: op_flags_union {
            cancel_flags: IoringAsyncCancelFlags::ANY | IoringAsyncCancelFlags::ALL,
        },
        ..named(IoringOp::AsyncCancel, name)
    }
}

fn named(opcode: IoringOp, name: u64) -> io_uring_sqe {
    io_uring_sqe {
        opcode,
        user_data: io_uring_user_data::from_u64(name),
        ..io_uring_sqe::default()
    }
}
