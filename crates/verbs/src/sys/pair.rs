//! A queue pair of a reliable connection: its states, and what is posted on it.
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

/// Reads of the peer's memory that may be under way at once.
const READS_MAX: u8 = 16;
/// 4.096 us times 2^18: about a second until something is sent again, seven times.
const TIMEOUT: u8 = 18;
const RETRIES: u8 = 7;
/// For ever: what keeps the peer from posting receives is its own affair, and the lifeline's.
const NOT_READY_RETRIES: u8 = 7;
/// 0.64 ms until the peer tries again.
const NOT_READY_TIMER: u8 = 12;
const HOPS_MAX: u8 = 64;
const SEQUENCE_BITS: u32 = 0x00ff_ffff;

/// Where a queue pair is, and at which packet number it begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    pub(crate) number: u32,
    pub(crate) sequence: u32,
    /// The library's number of the port's packet size.
    pub(crate) mtu: u32,
}

/// Memory of the peer, by a key that it gave us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemotePart {
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// Memory of ours, in a registration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalPart {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) key: u32,
}

/// A queue pair. Destroyed, it lets nobody write any more.
#[derive(Debug)]
pub(crate) struct Pair {
    handle: NonNull<QueuePair>,
    /// After the pair: it is destroyed first.
    pub(crate) queue: Queue,
    domain: Arc<Domain>,
}

// SAFETY: libibverbs' objects may be used by any thread.
unsafe impl Send for Pair {}

impl Pair {
    /// A pair that may have so much posted, and completes all of it in a queue of its own.
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

    /// Let receives be posted, and the peer do what its keys allow.
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

    /// Connect to the peer, and receive.
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

    /// Send.
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

    /// Have all that is posted end, and nothing of the peer's land any more.
    pub(crate) fn fail(&mut self) -> io::Result<()> {
        let attributes = PairAttributes {
            state: state::ERROR,
            ..PairAttributes::default()
        };
        self.change(attributes, attribute::STATE)
    }

    fn change(&mut self, mut attributes: PairAttributes, changed: i32) -> io::Result<()> {
        if self.domain.is_foreign() {
            return Err(io::ErrorKind::PermissionDenied.into()); // it is the parent's
        }
        // SAFETY: the pair lives; the attributes are read during the call.
        checked(unsafe {
            (self.domain.library.ibv_modify_qp)(self.handle.as_ptr(), &raw mut attributes, changed)
        })
    }

    /// Write to the peer; with immediate data it gets a completion of it.
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

    /// Give the peer a key on a part of a registration: the one of the window's that is to be told to it.
    /// What is posted later is done later. Both must live until the binding is taken back.
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

    /// Take a key back: once this has completed, nothing that names it lands any more.
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

    /// Take one more write with immediate data of the peer's.
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
