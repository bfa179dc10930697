//! What a peer that lies can make a shard keep, counted on the heap. One test, because all threads share that.
mod sys;

use std::time::Instant;

use forebay_tensor::{
    Class, Description, Dtype, FileRows, Number, PeerId, Shard, ShardLimits, Span,
};
use sys::{Counted, lend, taken_bytes};

#[global_allocator]
static HEAP: Counted = Counted;

const SLOTS: u32 = 1024;
const GRANT_BYTES: usize = 64 << 10;
const ROWS: u64 = 1024;
/// Of what a peer may make the shard keep: lists for later requests, and a few times the grant.
const HELD_BYTES_MAX: usize = 2 << 20;

const PULL: u8 = 1;
const PUSH: u8 = 2;
const NAMES: u8 = 3;

/// The header of a request.
fn header(kind: u8, entries: u16, slot: u32, bytes: usize) -> Vec<u8> {
    let mut frame = vec![kind, 0];
    frame.extend(entries.to_le_bytes());
    frame.extend(slot.to_le_bytes());
    frame.extend((bytes as u64).to_le_bytes());
    frame
}

/// An entry of generation 1, from row 0 on or by the numbers that follow.
fn entry(tensor: u32, is_indexed: bool, rows: usize, tag: u32) -> Vec<u8> {
    let mut bytes = (tensor | u32::from(is_indexed) << 31)
        .to_le_bytes()
        .to_vec();
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    bytes.extend(u32::try_from(rows).expect("few").to_le_bytes());
    bytes.extend(tag.to_le_bytes());
    bytes
}

fn description(item_bytes: u32, text: String) -> Description {
    Description {
        dtype: Dtype {
            number: Number::Opaque,
            item_bytes,
            text,
        },
        shape: vec![ROWS],
    }
}

/// A shard with a tensor, one that is gone, and rows of a file that nobody reads.
fn shard(memory: &mut [u8]) -> (Shard<()>, PeerId) {
    let limits = ShardLimits {
        slots: SLOTS,
        grant_bytes: GRANT_BYTES as u64,
        ..ShardLimits::default()
    };
    let mut shard = Shard::new(limits).expect("the limits can be");
    let span = lend(memory);
    for name in ["here", "gone"] {
        let published = shard.publish(name, description(4, "x".repeat(1024)), span, ());
        published.expect("it can be published");
    }
    shard.drop_tensor("gone").expect("it is there");
    let rows = FileRows {
        offset: 0,
        stride_bytes: 8,
        first: 0,
        checksums: false,
    };
    let published = shard.publish_file("file", description(8, "V8".into()), rows, 0);
    assert_eq!(published.expect("it can be published").id, 2);
    let peer = shard
        .connect(SLOTS, Instant::now())
        .expect("it is the first");
    (shard, peer)
}

/// Feed it a request for each slot; nothing that is answered is ever taken.
fn ask_with_every_slot(frame: &mut [u8]) -> usize {
    let mut memory = vec![0; 4 * 1024];
    let (mut shard, peer) = shard(&mut memory);
    let (now, before) = (Instant::now(), taken_bytes());
    let mut held = 0;
    for slot in 0..SLOTS {
        frame[4..8].copy_from_slice(&slot.to_le_bytes());
        let fed = shard.feed(peer, frame, now);
        fed.expect("it keeps to the protocol");
        shard.outgoing(peer, &mut [Span::EMPTY; 8]);
        held = held.max(taken_bytes().saturating_sub(before));
    }
    held
}

/// Row numbers of a push are needed until it has been applied.
fn large_pushes() {
    let rows = 2 * GRANT_BYTES / 12;
    let mut frame = header(PUSH, 1, 0, 24 + 12 * rows);
    frame.extend(entry(0, true, rows, 7));
    frame.extend(vec![0; 12 * rows]);
    let held = ask_with_every_slot(&mut frame);
    assert!(held < HELD_BYTES_MAX, "pushes had it keep {held} bytes");
}

/// Those of a pull that is refused are needed by nobody, while another answer of the request waits for a disk.
fn pulls_behind_a_disk() {
    let rows = (GRANT_BYTES - SLOTS as usize * 8) / 8;
    let mut frame = header(PULL, 2, 0, 48 + 8 * rows);
    frame.extend(entry(1, true, rows, 7));
    frame.extend(entry(2, false, 1, 8));
    frame.extend(vec![0; 8 * rows]);
    let held = ask_with_every_slot(&mut frame);
    assert!(held < HELD_BYTES_MAX, "pulls had it keep {held} bytes");
}

/// Answers to names take of the grant: what is beyond it breaks the protocol.
fn names() {
    let mut memory = vec![0; 4 * 1024];
    let (mut shard, peer) = shard(&mut memory);
    let (now, before) = (Instant::now(), taken_bytes());
    let mut list = 7_u32.to_le_bytes().to_vec();
    for _ in 0..256 {
        list.extend([4, 0]);
        list.extend(b"here");
    }
    let mut asked = 0;
    let refused = (0..SLOTS).find_map(|slot| {
        let frame = [header(NAMES, 256, slot, list.len()), list.clone()].concat();
        asked += 1;
        shard.feed(peer, &frame, now).err()
    });
    let held = taken_bytes().saturating_sub(before);
    let refused = refused.unwrap_or_else(|| panic!("it answers all, and keeps {held} bytes"));
    assert_eq!((asked, refused.class()), (2, Class::Protocol), "{refused}");
    assert!(held < HELD_BYTES_MAX, "names had it keep {held} bytes");
}

#[test]
fn what_a_peer_makes_a_shard_keep_is_bounded() {
    large_pushes();
    pulls_behind_a_disk();
    names();
}
