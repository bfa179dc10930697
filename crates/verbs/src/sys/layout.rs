//! libibverbs' structures as far as we use them: a binary interface that has not changed since 2012.
//!
//! Sources: `infiniband/verbs.h` of rdma-core 44; the test beside this holds every offset to the header.
use std::ffi::{c_int, c_uint, c_void};

/// A port's address.
pub(crate) type Gid = [u8; 16];

/// Structures of which we hold pointers alone.
#[repr(C)]
pub(crate) struct Opaque {
    _private: [u8; 0],
}

/// `struct ibv_context`: calls that the library does not export stand in its table.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut Opaque,
    pub(crate) before_windows: [*mut c_void; 7],
    pub(crate) alloc_mw: Option<unsafe extern "C" fn(*mut Opaque, c_int) -> *mut MemoryWindow>,
    pub(crate) bind_mw: *mut c_void,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(*mut MemoryWindow) -> c_int>,
    pub(crate) create_cq: *mut c_void,
    pub(crate) poll_cq:
        Option<unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut WorkCompletion) -> c_int>,
    pub(crate) req_notify_cq: Option<unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int>,
    pub(crate) before_posting: [*mut c_void; 12],
    pub(crate) post_send: Option<
        unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int,
    >,
    pub(crate) post_recv: Option<
        unsafe extern "C" fn(
            *mut QueuePair,
            *mut ReceiveRequest,
            *mut *mut ReceiveRequest,
        ) -> c_int,
    >,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct MemoryRegion {
    pub(crate) context: *mut Context,
    pub(crate) domain: *mut Opaque,
    pub(crate) address: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `struct ibv_mw`.
#[repr(C)]
pub(crate) struct MemoryWindow {
    pub(crate) context: *mut Context,
    pub(crate) domain: *mut Opaque,
    pub(crate) rkey: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(crate) struct Channel {
    pub(crate) context: *mut Context,
    pub(crate) fd: c_int,
}

/// `struct ibv_cq`.
#[repr(C)]
pub(crate) struct CompletionQueue {
    pub(crate) context: *mut Context,
}

/// `struct ibv_qp`.
#[repr(C)]
pub(crate) struct QueuePair {
    pub(crate) context: *mut Context,
    pub(crate) before_handle: [*mut c_void; 5],
    pub(crate) handle: u32,
    pub(crate) number: u32,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkCompletion {
    pub(crate) id: u64,
    pub(crate) status: c_uint,
    pub(crate) opcode: c_uint,
    pub(crate) vendor_error: u32,
    pub(crate) bytes: u32,
    pub(crate) immediate: u32,
    pub(crate) pair: u32,
    pub(crate) source_pair: u32,
    pub(crate) flags: c_uint,
    pub(crate) partition_index: u16,
    pub(crate) source_lid: u16,
    pub(crate) service_level: u8,
    pub(crate) path_bits: u8,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) lkey: u32,
}

/// `struct ibv_send_wr`; the union of the parts that depend on the operation is laid out for what we post.
#[repr(C)]
pub(crate) struct SendRequest {
    pub(crate) id: u64,
    pub(crate) next: *mut SendRequest,
    pub(crate) pieces: *mut Piece,
    pub(crate) pieces_count: c_int,
    pub(crate) opcode: c_uint,
    pub(crate) flags: c_uint,
    /// Immediate data in network order, or the key to invalidate.
    pub(crate) immediate: u32,
    pub(crate) remote_address: u64,
    pub(crate) remote_key: u32,
    pub(crate) rest: [u64; 3],
    pub(crate) window: *mut MemoryWindow,
    pub(crate) window_key: u32,
    pub(crate) bind_region: *mut MemoryRegion,
    pub(crate) bind_address: u64,
    pub(crate) bind_bytes: u64,
    pub(crate) bind_access: c_uint,
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(crate) struct ReceiveRequest {
    pub(crate) id: u64,
    pub(crate) next: *mut ReceiveRequest,
    pub(crate) pieces: *mut Piece,
    pub(crate) pieces_count: c_int,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capacity {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    pub(crate) send_pieces: u32,
    pub(crate) receive_pieces: u32,
    pub(crate) inline_bytes: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct PairRequest {
    pub(crate) mark: *mut c_void,
    pub(crate) send_queue: *mut CompletionQueue,
    pub(crate) receive_queue: *mut CompletionQueue,
    pub(crate) shared_receives: *mut c_void,
    pub(crate) capacity: Capacity,
    pub(crate) kind: c_uint,
    pub(crate) signal_all: c_int,
}

/// `struct ibv_ah_attr`, with `struct ibv_global_route` in front; aligned as the union that the address is in.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Route {
    pub(crate) destination: Gid,
    pub(crate) flow_label: u32,
    pub(crate) source_index: u8,
    pub(crate) hops_max: u8,
    pub(crate) traffic_class: u8,
    pub(crate) lid: u16,
    pub(crate) service_level: u8,
    pub(crate) path_bits: u8,
    pub(crate) rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PairAttributes {
    pub(crate) state: c_uint,
    pub(crate) state_now: c_uint,
    pub(crate) path_mtu: c_uint,
    pub(crate) migration: c_uint,
    pub(crate) queue_key: u32,
    pub(crate) receive_psn: u32,
    pub(crate) send_psn: u32,
    pub(crate) destination: u32,
    pub(crate) access: c_uint,
    pub(crate) capacity: Capacity,
    pub(crate) route: Route,
    pub(crate) other_route: Route,
    pub(crate) partition_index: u16,
    pub(crate) other_partition_index: u16,
    pub(crate) notify_drained: u8,
    pub(crate) draining: u8,
    pub(crate) reads_max: u8,
    pub(crate) reads_served_max: u8,
    pub(crate) not_ready_timer: u8,
    pub(crate) port: u8,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) not_ready_retries: u8,
    pub(crate) other_port: u8,
    pub(crate) other_timeout: u8,
    pub(crate) rate_limit: u32,
}

/// The front of `struct ibv_device_attr`, with room for the rest.
#[repr(C)]
#[derive(Default)]
pub(crate) struct DeviceAttributes {
    pub(crate) before_capabilities: [u32; 27],
    pub(crate) pairs_max: c_int,
    pub(crate) requests_max: c_int,
    pub(crate) capabilities: c_uint,
    pub(crate) rest: [u64; 24],
}

/// The front of `struct ibv_port_attr`, with room for the rest.
#[repr(C)]
#[derive(Default)]
pub(crate) struct PortAttributes {
    pub(crate) state: c_uint,
    pub(crate) mtu_max: c_uint,
    pub(crate) mtu: c_uint,
    pub(crate) before_lid: [u32; 5],
    pub(crate) partitions: u16,
    pub(crate) lid: u16,
    pub(crate) rest: [u64; 8],
}

/// Operations of a send queue (`enum ibv_wr_opcode`).
pub(crate) mod operation {
    pub(crate) const WRITE: u32 = 0;
    pub(crate) const WRITE_WITH_IMMEDIATE: u32 = 1;
    pub(crate) const READ: u32 = 4;
    pub(crate) const INVALIDATE: u32 = 7;
    pub(crate) const BIND: u32 = 8;
}

/// What a completion is of (`enum ibv_wc_opcode`): the one that the peer caused.
pub(crate) const RECEIVED_WITH_IMMEDIATE: u32 = 129;

/// Ask for a completion (`enum ibv_send_flags`).
pub(crate) const SIGNALED: u32 = 2;

/// What a key allows (`enum ibv_access_flags`).
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1;
    pub(crate) const REMOTE_WRITE: u32 = 2;
    pub(crate) const REMOTE_READ: u32 = 4;
    pub(crate) const BIND: u32 = 16;
}

/// States of a queue pair (`enum ibv_qp_state`).
pub(crate) mod state {
    pub(crate) const INIT: u32 = 1;
    pub(crate) const READY_TO_RECEIVE: u32 = 2;
    pub(crate) const READY_TO_SEND: u32 = 3;
    pub(crate) const ERROR: u32 = 6;
}

/// Which attributes a change is of (`enum ibv_qp_attr_mask`).
pub(crate) mod attribute {
    pub(crate) const STATE: i32 = 1;
    pub(crate) const ACCESS: i32 = 1 << 3;
    pub(crate) const PARTITION: i32 = 1 << 4;
    pub(crate) const PORT: i32 = 1 << 5;
    pub(crate) const ROUTE: i32 = 1 << 7;
    pub(crate) const PATH_MTU: i32 = 1 << 8;
    pub(crate) const TIMEOUT: i32 = 1 << 9;
    pub(crate) const RETRIES: i32 = 1 << 10;
    pub(crate) const NOT_READY_RETRIES: i32 = 1 << 11;
    pub(crate) const RECEIVE_PSN: i32 = 1 << 12;
    pub(crate) const READS: i32 = 1 << 13;
    pub(crate) const NOT_READY_TIMER: i32 = 1 << 15;
    pub(crate) const SEND_PSN: i32 = 1 << 16;
    pub(crate) const READS_SERVED: i32 = 1 << 17;
    pub(crate) const DESTINATION: i32 = 1 << 20;
}

/// `IBV_QPT_RC`.
pub(crate) const RELIABLE_CONNECTION: u32 = 2;
/// `IBV_MW_TYPE_2`.
pub(crate) const WINDOW_TYPE_2: c_int = 2;
/// `IBV_PORT_ACTIVE`.
pub(crate) const PORT_ACTIVE: u32 = 4;
/// `IBV_DEVICE_MEM_WINDOW_TYPE_2B`.
pub(crate) const WINDOWS_2B: u32 = 1 << 24;
