//! A queue pair of a reliable connection: its states and operations.
use std::io;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::completion::Queue;
use super::device::{Domain, entry, none};
use super::layout::{
    Capacity, Gid, PairAttributes, PairRequest, Piece, QueuePair, RELIABLE_CONNECTION,
    ReceiveRequest, Route, SIGNALED, SendRequest, access, attribute, operation, state,
};
use super::library::{checked, given};
use super::registration::Registration;
use super::window::Window;

/// Reads of the peer's memory that may be in flight.
const READS_MAX: u8 = 16;
/// 4.096 us times 2^18: about a second until a retransmission, of which there are seven.
const TIMEOUT: u8 = 18;
const RETRIES: u8 = 7;
/// 7 means for ever: the lifeline, not this counter, detects a peer that no longer posts receives.
const NOT_READY_RETRIES: u8 = 7;
/// 0.64 ms until the peer retries.
const NOT_READY_TIMER: u8 = 12;
const HOPS_MAX: u8 = 64;
const SEQUENCE_BITS: u32 = 0x00ff_ffff;

/// The address of a queue pair, and its first packet number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    pub(crate) number: u32,
    pub(crate) sequence: u32,
    /// The library's code of the port's packet size.
    pub(crate) mtu: u32,
}

/// Memory of the peer, with the key that the peer granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemotePart {
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// Local memory, in a registration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalPart {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) key: u32,
}

/// A queue pair. Once it is destroyed its peer can write nothing.
#[derive(Debug)]
pub(crate) struct Pair {
    handle: NonNull<QueuePair>,
    /// Dropped after the pair, which is destroyed first.
    pub(crate) queue: Queue,
    domain: Arc<Domain>,
}

// SAFETY: libibverbs' objects may be used by any thread.
unsafe impl Send for Pair {}

impl Pair {
    /// A pair for at most so many posted sends and receives, with its own completion queue.
    pub(crate) fn new(domain: &Arc<Domain>, sends: u32, receives: u32) -> io::Result<Self> {
        let queue = Queue::new(domain, sends + receives)?;
        let mut request = PairRequest {
            mark: none(),
            send_queue: queue.as_ptr(),
            receive_queue: queue.as_ptr(),
            shared_receives: none(),
            capacity: Capacity {
                sends,
                receives,
                send_pieces: 1,
                receive_pieces: 1,
                inline_bytes: 0,
            },
            kind: RELIABLE_CONNECTION,
            signal_all: 0,
        };
        // SAFETY: the domain and the queue are held; the library writes what it granted into the request.
        let pair =
            given(unsafe { (domain.library.ibv_create_qp)(domain.as_ptr(), &raw mut request) })?;
        Ok(Self {
            handle: pair,
            queue,
            domain: Arc::clone(domain),
        })
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: filled by the library, constant.
        unsafe { (*self.handle.as_ptr()).number }
    }

    /// Move to INIT: receives may be posted, and the peer may use its keys.
    pub(crate) fn initialise(&mut self, port: u8) -> io::Result<()> {
        let attributes = PairAttributes {
            state: state::INIT,
            port,
            access: access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_READ,
            ..PairAttributes::default()
        };
        let changed = attribute::STATE | attribute::PARTITION | attribute::PORT | attribute::ACCESS;
        self.change(attributes, changed)
    }

    /// Move to ready-to-receive: connect to the peer.
    pub(crate) fn connect(
        &mut self,
        port: u8,
        gid_index: u8,
        ours: &Address,
        peer: &Address,
    ) -> io::Result<()> {
        let attributes = PairAttributes {
            state: state::READY_TO_RECEIVE,
            path_mtu: ours.mtu.min(peer.mtu),
            destination: peer.number,
            receive_psn: peer.sequence & SEQUENCE_BITS,
            reads_served_max: READS_MAX,
            not_ready_timer: NOT_READY_TIMER,
            route: Route {
                destination: peer.gid,
                source_index: gid_index,
                hops_max: HOPS_MAX,
                lid: peer.lid,
                is_global: 1,
                port,
                ..Route::default()
            },
            ..PairAttributes::default()
        };
        let changed = attribute::STATE
            | attribute::ROUTE
            | attribute::PATH_MTU
            | attribute::DESTINATION
            | attribute::RECEIVE_PSN
            | attribute::READS_SERVED
            | attribute::NOT_READY_TIMER;
        self.change(attributes, changed)
    }

    /// Move to ready-to-send.
    pub(crate) fn start(&mut self, ours: &Address) -> io::Result<()> {
        let attributes = PairAttributes {
            state: state::READY_TO_SEND,
            send_psn: ours.sequence & SEQUENCE_BITS,
            timeout: TIMEOUT,
            retries: RETRIES,
            not_ready_retries: NOT_READY_RETRIES,
            reads_max: READS_MAX,
            ..PairAttributes::default()
        };
        let changed = attribute::STATE
            | attribute::TIMEOUT
            | attribute::RETRIES
            | attribute::NOT_READY_RETRIES
            | attribute::SEND_PSN
            | attribute::READS;
        self.change(attributes, changed)
    }

    /// Move to the error state: posted operations end, and the peer can write nothing.
    pub(crate) fn fail(&mut self) -> io::Result<()> {
        let attributes = PairAttributes {
            state: state::ERROR,
            ..PairAttributes::default()
        };
        self.change(attributes, attribute::STATE)
    }

    fn change(&mut self, mut attributes: PairAttributes, changed: i32) -> io::Result<()> {
        if self.domain.is_foreign() {
            return Err(io::ErrorKind::PermissionDenied.into()); // it belongs to the parent process
        }
        // SAFETY: the pair lives; the attributes are read during the call.
        checked(unsafe {
            (self.domain.library.ibv_modify_qp)(self.handle.as_ptr(), &raw mut attributes, changed)
        })
    }

    /// Write to the peer, which gets a completion if there is immediate data.
    pub(crate) fn write(
        &mut self,
        id: u64,
        from: LocalPart,
        to: RemotePart,
        immediate: Option<u32>,
    ) -> io::Result<()> {
        let opcode = match immediate {
            Some(_) => operation::WRITE_WITH_IMMEDIATE,
            None => operation::WRITE,
        };
        let immediate = immediate.unwrap_or(0).to_be();
        self.transfer(id, opcode, from, to, immediate)
    }

    /// Read from the peer.
    pub(crate) fn read(&mut self, id: u64, from: RemotePart, to: LocalPart) -> io::Result<()> {
        self.transfer(id, operation::READ, to, from, 0)
    }

    fn transfer(
        &mut self,
        id: u64,
        opcode: u32,
        local: LocalPart,
        remote: RemotePart,
        immediate: u32,
    ) -> io::Result<()> {
        let mut piece = Piece {
            address: local.address,
            bytes: local.bytes,
            lkey: local.key,
        };
        self.post(SendRequest {
            pieces: &raw mut piece,
            pieces_count: i32::from(local.bytes > 0),
            immediate,
            remote_address: remote.address,
            remote_key: remote.key,
            ..request(id, opcode)
        })
    }

    /// Grant the peer a key on a part of a registration; returns the key, to be sent to the peer by a later operation.
    /// Window and registration must live until the key is revoked.
    pub(crate) fn bind(
        &mut self,
        id: u64,
        window: &mut Window,
        registration: &Registration,
        address: u64,
        bytes: u64,
        allowed: u32,
    ) -> io::Result<u32> {
        let key = window.next_key();
        self.post(SendRequest {
            window: window.as_ptr(),
            window_key: key,
            bind_region: registration.as_ptr(),
            bind_address: address,
            bind_bytes: bytes,
            bind_access: allowed,
            ..request(id, operation::BIND)
        })?;
        window.set_key(key);
        Ok(key)
    }

    /// Revoke a key: once this has completed, accesses with it are refused.
    pub(crate) fn invalidate(&mut self, id: u64, key: u32) -> io::Result<()> {
        self.post(SendRequest {
            immediate: key,
            ..request(id, operation::INVALIDATE)
        })
    }

    fn post(&mut self, mut request: SendRequest) -> io::Result<()> {
        let mut refused = ptr::null_mut();
        // SAFETY: an entry of an open context.
        let post = entry(unsafe { (*self.domain.context()).post_send })?;
        // SAFETY: the pair lives; the request and its piece are copied during the call.
        checked(unsafe { post(self.handle.as_ptr(), &raw mut request, &raw mut refused) })
    }

    /// Accept one more write with immediate data from the peer.
    pub(crate) fn post_receive(&mut self) -> io::Result<()> {
        let mut request = ReceiveRequest {
            id: u64::MAX,
            next: none(),
            pieces: none(),
            pieces_count: 0,
        };
        let mut refused = ptr::null_mut();
        // SAFETY: an entry of an open context.
        let post = entry(unsafe { (*self.domain.context()).post_recv })?;
        // SAFETY: the pair lives; the request is copied during the call.
        checked(unsafe { post(self.handle.as_ptr(), &raw mut request, &raw mut refused) })
    }
}

fn request(id: u64, opcode: u32) -> SendRequest {
    // SAFETY: numbers and pointers, of which all zeros are valid values.
    let empty: SendRequest = unsafe { mem::zeroed() };
    SendRequest {
        id,
        opcode,
        flags: SIGNALED,
        ..empty
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if self.domain.is_foreign() {
            return;
        }
        // SAFETY: destroyed once, before its queue.
        unsafe { (self.domain.library.ibv_destroy_qp)(self.handle.as_ptr()) };
    }
}
