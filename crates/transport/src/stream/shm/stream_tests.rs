//! Two ends in one process, against a queue of bytes.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use forebay_memory::{ChunkMemory, Config, Region, Registrar};
use proptest::prelude::*;
use rustix::io::Errno;

use super::stream::SharedStream;
use super::{NAME_BYTES, reclaim};
use crate::limit::{RING_BYTES, SHARE_BYTES_MIN};
use crate::stream::unix::pair;
use crate::stream::{Stream, StreamFault};
use crate::sys::shared::Staged;

fn ends() -> (SharedStream, SharedStream) {
    let (left, right) = pair().expect("sockets");
    let mut one = SharedStream::new(left).expect("memory");
    let mut other = SharedStream::new(right).expect("memory");
    one.woken().expect("a hello");
    other.woken().expect("a hello");
    (one, other)
}

fn receive(stream: &mut SharedStream, room: usize) -> Result<Vec<u8>, StreamFault> {
    let mut into = vec![MaybeUninit::uninit(); room];
    stream.receive(&mut into).map(|filled| filled.to_vec())
}

fn pattern(from: usize, count: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from(at * 31 % 251).unwrap_or(0);
    (from..from + count).map(byte).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Bytes arrive in order and once, whatever the sizes and however the ring wraps; a full ring takes nothing.
    #[test]
    fn the_ring_is_a_queue(steps in proptest::collection::vec((any::<bool>(), 1..RING_BYTES * 3 / 2, 0..64_usize), 1..40)) {
        let (mut one, mut other) = ends();
        let mut model: VecDeque<u8> = VecDeque::new();
        let mut sent = 0;
        for (sends, size, cut) in steps {
            if sends {
                let bytes = pattern(sent, size);
                let (first, second) = bytes.split_at(cut.min(size));
                let outcome = one.send(&[IoSlice::new(first), IoSlice::new(second)]);
                let room = RING_BYTES - model.len();
                match outcome {
                    Ok(count) => prop_assert_eq!(count, size.min(room)),
                    Err(StreamFault::Errno(Errno::AGAIN)) => prop_assert_eq!(room, 0),
                    Err(fault) => return Err(TestCaseError::fail(fault.to_string())),
                }
                let count = size.min(room);
                model.extend(&bytes[..count]);
                sent += count;
            } else {
                prop_assert_eq!(other.holds_received(), !model.is_empty());
                let expected: Vec<u8> = model.drain(..size.min(model.len())).collect();
                match receive(&mut other, size) {
                    Ok(got) => prop_assert!(got == expected && !got.is_empty()),
                    Err(StreamFault::Errno(Errno::AGAIN)) => prop_assert!(expected.is_empty()),
                    Err(fault) => return Err(TestCaseError::fail(fault.to_string())),
                }
            }
        }
    }
}

#[test]
fn a_frame_is_named_opened_and_given_back() {
    let (mut one, mut other) = ends();
    let bytes = pattern(0, SHARE_BYTES_MIN);
    let name = one.share(&bytes, None).expect("room");
    let frame = other.open(&name).expect("it is there");
    assert_eq!(frame.as_slice(), bytes);
    assert!(frame.is_shared());
    assert_eq!(one.lent(), 1);
    drop(frame);
    assert_eq!(one.lent(), 0);
}

fn lend_block(stream: &mut SharedStream, arena: &Region) -> [u8; NAME_BYTES] {
    let bytes = pattern(0, SHARE_BYTES_MIN);
    let lease = arena.allocate(bytes.len()).expect("room");
    let reference = lease.reference();
    let staged = Staged::new(lease, &bytes).expect("the only lease");
    let block = arena.lease(&reference).expect("it is live");
    stream.share(staged.as_ref(), Some(&block)).expect("room")
}

fn blocks(arena: &Region) -> u64 {
    arena.stats().expect("its process").blocks
}

#[test]
fn an_arena_has_back_what_a_closed_receiver_never_received() {
    let arena = Region::new(Config::new("arena", 4 << 20)).expect("a region");
    let (mut one, mut other) = ends();
    let name = lend_block(&mut one, &arena);
    lend_block(&mut one, &arena);
    let frame = other.open(&name).expect("it is there");
    drop(one);
    assert_eq!(blocks(&arena), 2, "the receiver may open the other");
    drop(other);
    assert_eq!(blocks(&arena), 1, "the receiver reads one");
    drop(frame);
    reclaim();
    assert_eq!(blocks(&arena), 0);
}

#[test]
fn an_arena_has_back_what_the_peer_of_an_open_connection_has_released() {
    let arena = Region::new(Config::new("arena", 4 << 20)).expect("a region");
    let (mut one, mut other) = ends();
    let name = lend_block(&mut one, &arena);
    let frame = other.open(&name).expect("it is there");
    reclaim();
    assert_eq!(blocks(&arena), 1);
    drop(frame);
    reclaim();
    assert_eq!(blocks(&arena), 0);
}

const SOON: Duration = Duration::from_secs(10);

/// Takes back what peers have released when a chunk goes, and says whether it could: in another thread, since this one
/// may have a lock.
#[derive(Debug)]
struct Reclaimer(mpsc::Sender<bool>);

impl Registrar for Reclaimer {
    fn added(&self, _: &ChunkMemory) {}

    fn removed(&self, _: &ChunkMemory) {
        let (sender, reclaimed) = mpsc::channel();
        let named = std::thread::Builder::new().name("reclaimer".to_owned());
        let spawned = named.spawn(move || sender.send(reclaim()));
        spawned.expect("a thread");
        let _ = self.0.send(reclaimed.recv_timeout(SOON).is_ok());
    }
}

/// A frame in the only block of an arena that is closed, so that the block's chunk goes with it.
fn lend_last_block(one: &mut SharedStream) -> ([u8; NAME_BYTES], mpsc::Receiver<bool>) {
    let arena = Region::new(Config::new("arena", 4 << 20)).expect("a region");
    let (sender, reclaimed) = mpsc::channel();
    arena.attach(Arc::new(Reclaimer(sender))).expect("attached");
    (lend_block(one, &arena), reclaimed)
}

#[test]
fn a_chunk_goes_without_the_locks_of_what_is_lent() {
    let (mut one, mut other) = ends();
    let (name, by_settling) = lend_last_block(&mut one);
    drop(other.open(&name).expect("it is there"));
    assert_eq!(one.lent(), 0);
    assert_eq!(by_settling.recv_timeout(2 * SOON), Ok(true));
    let (name, by_sweeping) = lend_last_block(&mut one);
    drop(other.open(&name).expect("it is there"));
    reclaim();
    assert_eq!(by_sweeping.recv_timeout(2 * SOON), Ok(true));
    let (name, by_closing) = lend_last_block(&mut one);
    let frame = other.open(&name).expect("it is there");
    drop(one);
    drop(frame);
    drop(other);
    assert_eq!(by_closing.recv_timeout(2 * SOON), Ok(true));
}

#[test]
fn what_was_written_before_the_end_is_read_before_it() {
    let (mut one, mut other) = ends();
    one.send(&[IoSlice::new(b"last")]).expect("room");
    drop(one);
    other.woken().expect("the end of the lifeline");
    assert_eq!(receive(&mut other, 10), Ok(b"last".to_vec()));
    assert_eq!(receive(&mut other, 10), Ok(Vec::new()));
    assert!(other.hung_up());
    let refused = other.send(&[IoSlice::new(b"x")]);
    assert_eq!(refused, Err(StreamFault::Errno(Errno::PIPE)));
}
