//! Every limit of the transport, with its reason.

use forebay_base::spin::SPIN;

/// Largest frame, head and segments together. A length above it is refused before allocation.
pub const FRAME_BYTES_MAX: u64 = 1 << 30;
/// Most segments of one frame; equals the kernel's limit on the pieces of one `sendmsg`.
pub const SEGMENTS_MAX: u16 = 1024;
/// Received and not yet taken: reading stops here and goes on at half.
pub const INBOX_BYTES_MAX: usize = 4 << 20;
/// What an empty call counts in the inbox, so that calls without bytes are bounded too.
pub const CALL_BYTES_MIN: usize = 128;
/// What each frame of a message counts in the inbox besides its bytes.
pub const MESSAGE_BYTES_MIN: usize = 64;
/// A connection reports what it holds in steps of this: below one it costs nothing, and is never held back.
pub const BUDGET_STEP: usize = 64 << 10;
/// By default the queues of a process hold at most this fraction (one part in so many) of its memory.
pub const BUDGET_MEMORY_SHARE: usize = 4;
/// Descriptors that connections leave to the program.
pub const DESCRIPTORS_KEPT: usize = 128;
/// The least progress, within the time allowed, of half a message or of output that waits: below it the peer has stalled.
pub const STALL_BYTES_MIN: u64 = 32 << 10;
/// Checks in a row that must have found no progress.
pub const STALL_LOOKS_MIN: u32 = 3;
/// Items of a stream that its caller allows at once, at most.
pub const STREAM_CREDIT_MAX: u32 = 1 << 16;
/// A server sends no further item of a stream while so many bytes of it are not consumed; half of
/// `INBOX_BYTES_MAX`, so that no stream alone fills what a connection holds.
pub const STREAM_BYTES: usize = INBOX_BYTES_MAX / 2;
/// Items after which a serving thread that has credit left checks whether its caller has cancelled.
pub const STREAM_LOOK_ITEMS: u32 = 16;
/// And the time after which it checks, for items that take long to make.
pub const STREAM_LOOK_MS: u64 = 1;
/// Longest token of a handshake.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// Largest frame of a peer that has not shown the required token.
pub const HANDSHAKE_BYTES_MAX: u64 = 64 << 10;
/// Smallest `frame_bytes_max` that a peer of calls may announce: below it nothing could be answered.
pub const PEER_FRAME_BYTES_MIN: u64 = HANDSHAKE_BYTES_MAX;
/// Queued for sending: senders wait above it.
pub const OUTBOX_BYTES_HIGH: usize = 512 << 10;
/// Answers to calls that were not started, queued for sending: reading stops above it, also where streams are open.
///
/// One receive may go beyond it: every 24 bytes of a call without a body, at most `RECEIVE_BYTES`, make 24 of these.
pub const REFUSALS_BYTES_MAX: usize = 64 << 10;
/// Waiting senders go on below it.
pub const OUTBOX_BYTES_LOW: usize = 128 << 10;
/// Queued bytes of messages above which nothing more is taken.
pub const OUTBOX_BYTES_MAX: usize = 1 << 30;
/// What waits for the flush of a corked connection; beyond it is handed to the kernel at once.
pub const CORKED_BYTES_MAX: usize = 128 << 10;
/// The receive buffer, one per thread.
pub const RECEIVE_BYTES: usize = 256 << 10;
/// Receives in one turn, so that one connection cannot starve a loop.
pub const TURN_RECEIVES: usize = 64;
/// Bytes in one turn; at memory speed about 200 us under the GIL.
pub const TURN_BYTES: usize = 1 << 20;
/// From an untrusted peer, buffers above this grow as bytes arrive.
pub const GROW_BYTES: usize = 1 << 20;
/// Freed blocks of received bytes that are kept for the next frame of their size: how long each, and all together.
pub const SHELF_BLOCK_BYTES_MIN: usize = 128 << 10;
pub const SHELF_BLOCK_BYTES_MAX: usize = 16 << 20;
pub const SHELF_BYTES_MAX: usize = 32 << 20;
/// From here on the kernel writes into the frame's own buffer; below, one copy is cheaper than one call.
pub const DIRECT_BYTES_MIN: usize = 64 << 10;
/// Memory that the caller allocates is wanted for so many bytes of a message at a time, once its frames before have come:
/// what is freed meanwhile, as by an answer that leaves, serves again. All of it at once took twice the memory.
pub const WANTED_BYTES: usize = 4 << 20;
/// Up to here bytes that the kernel did not take are copied, above they are referenced.
pub const COPY_BYTES_MAX: usize = 64 << 10;
/// Most pieces given to one `sendmsg` (`IOV_MAX` is 1,024).
pub const PIECES_MAX: usize = 64;
/// A reading thread polls and yields for this long before it sleeps; [`SPIN`] has the measurements.
#[expect(clippy::cast_possible_truncation, reason = "some microseconds")]
pub const SPIN_US: u64 = SPIN.as_micros() as u64;
/// If spinning does not pay off, a loop yields its core once and polls, for this long.
pub const YIELD_US: u64 = 1;
/// Spins in a row that found nothing, after which a thread sleeps at once.
pub const LOOK_MISSES_MAX: u32 = 4;
/// Sleeps after which it spins again, once.
pub const LOOK_AGAIN: u32 = 16;
/// A sleep at least this long counts as idleness, not as a spin that found nothing.
pub const LOOK_IDLE_MS: u64 = 2;
/// A thread that waits for short calls on several connections polls and yields for this long first.
///
/// Eight processes that step an environment each on two cores: 270 us a round, 310 us without. The
/// core of the waiting thread does not halt, and a halted virtual core is slow to wake. The caller
/// asks for it, since a yield does not always give the core away: in rounds of longer calls it held
/// up the processes that shared the core.
pub const GATHER_LOOK_US: u64 = 200;
/// Waits without such a spin after one that found nothing in time; twice as many each time, up to the
/// second number.
pub const LONG_LOOK_SKIP_MIN: u32 = 32;
pub const LONG_LOOK_SKIP_MAX: u32 = 4096;
/// For this long it sleeps only on the last of its calls; then any answer wakes it.
///
/// Many processes that share few cores answer faster if the caller does not wake in between, and a
/// wait longer than this does not notice a few wake-ups.
pub const GATHER_PATIENCE_US: u64 = 1_000;

/// Plaintext of one TLS record, RFC 8446 5.1.
pub const RECORD_BYTES: usize = 16 << 10;
/// Plaintext that is sealed at once, between two system calls: it stays in a second-level
/// cache, and is the most ciphertext that one connection queues besides its handshake.
pub const SEAL_BYTES: usize = 128 << 10;

/// TLS sessions that a server or a client remembers, to resume them; about 1 KiB each.
pub const SESSIONS_MAX: usize = 1024;
/// Messages that a native listener answers for one connection in one turn.
pub const NATIVE_TURN_MESSAGES: usize = 256;
/// Connections of one native listener; accepting pauses there. Each holds a descriptor and about 1 KiB.
pub const NATIVE_CONNECTIONS_MAX: usize = 65_536;
/// Connections of a native listener that have not finished their handshake; accepting pauses there.
pub const NATIVE_HANDSHAKES_MAX: usize = 256;
/// Seconds within which half a message, or an answer that the client does not take, must progress by `STALL_BYTES_MIN`.
pub const NATIVE_STALL_S: u64 = 30;
/// Checks within that time.
pub const NATIVE_STALL_LOOKS: u32 = 4;
const _: () = assert!(NATIVE_STALL_LOOKS > STALL_LOOKS_MIN);
/// How long a native listener that closes waits for its answers to be written.
pub const NATIVE_GRACE_MS: u64 = 500;
/// Between two attempts to connect to a Unix socket whose queue is full.
pub const NATIVE_REDIAL_MS: u64 = 5;
/// Bytes of the ring of one direction: two of the largest messages that go through it whole are on their way at once.
pub const RING_BYTES: usize = 256 << 10;
/// Frames from this size on are put into shared memory, and their names are sent.
pub const SHARE_BYTES_MIN: usize = COPY_BYTES_MAX + 1;
/// Frames from this size on are copied without the lock of the connection, and by the binding without the GIL.
pub const STAGE_BYTES_MIN: usize = TURN_BYTES;
/// What one end of a connection shares at most; beyond it frames go through the ring.
pub const REGION_BYTES_MAX: u64 = 256 << 20;
/// What is mapped of it at a time; pages that were never written cost nothing.
pub const REGION_CHUNK_BYTES: u64 = 64 << 20;
/// Frames that the peer may hold at once; beyond it they go through the ring.
pub const LENT_FRAMES_MAX: usize = 1024;
/// Chunks of a peer that are mapped at once; its region has at most four, besides blocks that need their own.
pub const WINDOWS_MAX: usize = 64;
/// Segments of calls from this size on are lent to a peer that borrows.
///
/// A warm call with an array, by bytes over by reference: 1.1 at 64 KiB, 1.2 at 128, 1.5 at 256, 1.9 at 1 MiB.
pub const LEND_BYTES_MIN: usize = 128 << 10;
/// What a process lends to all peers of its calls at once; beyond it segments go as bytes.
pub const LEND_REGION_BYTES_MAX: u64 = 256 << 20;
/// What is mapped of it at a time; a borrower's map counts in its `RLIMIT_DATA`, whether it writes there or not.
pub const LEND_CHUNK_BYTES: u64 = 16 << 20;
/// What one peer may hold at once; beyond it segments go as bytes, and a peer that takes nothing blocks the sender.
///
/// A caller lends a longer segment alone. A server does not: results that a caller keeps are memory of the server.
pub const LENT_BYTES_MAX: u64 = 64 << 20;
/// Descriptors that one send takes along on a stream of calls; the kernel takes 253.
///
/// Packets, which also the pool and the executor use, have a limit of their own: [`forebay_base::packet`].
pub const SEND_DESCRIPTORS_MAX: usize = 16;
/// A borrower that writes this many pages of a segment gets copies instead, for a while.
///
/// A page that is written costs 2.8 us, one that is copied 0.2.
pub const WRITTEN_PAGES_MAX: usize = 16;
/// For this many segments.
pub const COPIES_AFTER_WRITING: u32 = 64;
/// How long a thread waits for another one that sleeps on the same connection, before its caller checks for signals.
pub const FOLLOW_MS: u64 = 50;
/// Longest spin of an event loop before it sleeps, with the GIL held: a tenth of its switch interval.
pub const LOOP_SPIN_US_MAX: u32 = 500;
/// Room for the events of one wait of a loop, where fewer descriptors than that are watched.
pub const EVENTS_MIN: usize = 64;

/// The limits that one connection applies and announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub frame_bytes_max: u64,
    pub segments_max: u16,
    pub inbox_bytes_max: usize,
    pub outbox_bytes_high: usize,
    pub outbox_bytes_low: usize,
    /// Bytes of answers that a caller has not taken; above them a server reads no more of its calls.
    pub answers_bytes_max: usize,
    /// Above this a message is refused; of messages alone.
    pub outbox_bytes_max: usize,
}

impl Limits {
    /// The limits of a connection of messages: a frame of a message is a segment.
    pub fn of_messages() -> Self {
        Self {
            segments_max: u16::MAX,
            ..Self::default()
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes_max: FRAME_BYTES_MAX,
            segments_max: SEGMENTS_MAX,
            inbox_bytes_max: INBOX_BYTES_MAX,
            outbox_bytes_high: OUTBOX_BYTES_HIGH,
            outbox_bytes_low: OUTBOX_BYTES_LOW,
            answers_bytes_max: OUTBOX_BYTES_HIGH,
            outbox_bytes_max: OUTBOX_BYTES_MAX,
        }
    }
}
