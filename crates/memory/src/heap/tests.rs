//! The allocator against a model, and its waste under a churn of ragged sizes.
#[path = "../../../transport/tests/counted/mod.rs"]
mod counted;

use proptest::collection::vec;
use proptest::prelude::*;

use super::classes::{NONE, class_of};
use super::{Effort, GRANULE_BYTES, Grant, Heap};

const CHUNK_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        bytes: u64,
        align: u64,
        effort: Effort,
    },
    Free {
        which: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![Just(0), 1..400_u64, 1..20_000_u64, 1..400_000_u64];
    let align = prop_oneof![3 => Just(64_u64), 1 => Just(4096)];
    let effort = prop_oneof![Just(Effort::Quick), Just(Effort::Full)];
    prop_oneof![
        (bytes, align, effort).prop_map(|(bytes, align, effort)| Step::Allocate {
            bytes,
            align,
            effort
        }),
        any::<usize>().prop_map(|which| Step::Free { which }),
    ]
}

/// The model: what is live, and a search of every gap between live pieces.
struct Model {
    chunks: u32,
    live: Vec<Grant>,
    live_max: usize,
}

impl Model {
    fn has_room(&self, bytes: u64, align: u64) -> bool {
        let size = bytes.max(1).next_multiple_of(GRANULE_BYTES);
        (0..self.chunks).any(|chunk| {
            let mut taken: Vec<_> = self
                .live
                .iter()
                .filter(|grant| grant.chunk == chunk)
                .collect();
            taken.sort_by_key(|grant| grant.offset);
            let ends =
                std::iter::once(0).chain(taken.iter().map(|grant| grant.offset + grant.bytes));
            let starts = taken.iter().map(|grant| grant.offset).chain([CHUNK_BYTES]);
            ends.zip(starts)
                .any(|(end, start)| end.next_multiple_of(align) + size <= start)
        })
    }

    fn add(&mut self, grant: Grant, bytes: u64, align: u64) {
        assert!(
            grant.bytes >= bytes && grant.bytes < bytes.max(1) + GRANULE_BYTES,
            "{grant:?} has another size than the {bytes} asked for"
        );
        assert!(
            grant.offset.is_multiple_of(align),
            "{grant:?} for alignment {align}"
        );
        assert!(
            grant.chunk < self.chunks && grant.offset + grant.bytes <= CHUNK_BYTES,
            "{grant:?} is outside"
        );
        for other in self.live.iter().filter(|other| other.chunk == grant.chunk) {
            let apart = grant.offset + grant.bytes <= other.offset
                || other.offset + other.bytes <= grant.offset;
            assert!(apart, "{grant:?} overlaps {other:?}");
        }
        self.live.push(grant);
        self.live_max = self.live_max.max(self.live.len());
    }
}

/// Walk every chunk and check the invariant that the module states; returns how many pieces are free.
fn check_chunks(heap: &Heap, roots: &[u32]) -> usize {
    let mut pieces_free = 0;
    for &root in roots {
        let (mut at, mut before, mut offset, mut was_free) = (root, NONE, 0, false);
        while at != NONE {
            let node = &heap.nodes[at as usize];
            assert!(node.size > 0, "a piece of nothing at {offset}");
            pieces_free += usize::from(node.free);
            assert_eq!(
                (node.before, node.offset),
                (before, offset),
                "a gap, or a wrong neighbour, before node {at}"
            );
            assert!(
                !(was_free && node.free),
                "two free neighbours before {offset}"
            );
            (before, offset, was_free) = (at, offset + node.size, node.free);
            at = node.after;
        }
        assert_eq!(offset * GRANULE_BYTES, CHUNK_BYTES);
    }
    pieces_free
}

/// Walk every list: in it are free pieces of its class, each linked both ways; returns how many.
fn check_lists(heap: &Heap) -> usize {
    let (mut listed, mut class) = (0, 0);
    while let Some(used) = heap.index.next_used(class) {
        assert!(used >= class, "class {used} is below {class}");
        let (mut at, mut previous) = (heap.index.head(used), NONE);
        assert_ne!(at, NONE, "an empty list counts as one with pieces");
        while at != NONE {
            let node = &heap.nodes[at as usize];
            assert!(node.free, "what is in use is offered");
            assert_eq!((class_of(node.size), node.previous), (used, previous));
            (previous, at) = (at, node.next);
            listed += 1;
        }
        class = used + 1;
    }
    listed
}

/// The laws, after each step.
fn check(heap: &Heap, roots: &[u32], model: &Model) {
    let pieces_free = check_chunks(heap, roots);
    assert_eq!(
        pieces_free,
        check_lists(heap),
        "a piece is lost: it is in no list"
    );
    for (chunk, &root) in (0..).zip(roots) {
        let in_use = model.live.iter().any(|grant| grant.chunk == chunk);
        assert_eq!(
            heap.is_empty(root),
            !in_use,
            "a piece is lost: chunk {chunk} is in use or not"
        );
    }
    for grant in &model.live {
        let node = &heap.nodes[grant.node as usize];
        let place = (
            node.chunk,
            node.offset * GRANULE_BYTES,
            node.size * GRANULE_BYTES,
        );
        assert_eq!(
            place,
            (grant.chunk, grant.offset, grant.bytes),
            "{grant:?} overlaps what is behind it, or is cut"
        );
        assert!(!node.free, "{grant:?} is in use");
    }
    // Between two blocks is one free piece at most, so the books are bounded by what was live at once.
    let nodes_max = 2 * model.live_max + roots.len();
    assert!(heap.nodes.len() <= nodes_max, "the books grow for ever");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 300 }, ..ProptestConfig::default() })]

    #[test]
    fn blocks_never_overlap_and_a_freed_heap_is_one_piece_again(steps in vec(step(), 1..if cfg!(miri) { 40 } else { 200 })) {
        let mut heap = Heap::new();
        let roots = [heap.add(0, CHUNK_BYTES), heap.add(1, CHUNK_BYTES)];
        let mut model = Model { chunks: 2, live: Vec::new(), live_max: 0 };
        let _watch = counted::Watch;
        for step in steps {
            counted::step();
            match step {
                Step::Allocate { bytes, align, effort } => match heap.allocate(bytes, align, effort) {
                    Some(grant) => model.add(grant, bytes, align),
                    None if effort == Effort::Quick => {}
                    None => assert!(!model.has_room(bytes, align), "a piece is lost: there is room for {bytes} at {align}"),
                },
                Step::Free { which } if !model.live.is_empty() => {
                    let grant = model.live.swap_remove(which % model.live.len());
                    heap.free(grant.node);
                }
                Step::Free { .. } => {}
            }
            check(&heap, &roots, &model);
        }
        for grant in model.live.drain(..) {
            heap.free(grant.node);
        }
        for root in roots {
            assert!(heap.is_empty(root), "a piece is lost: the freed heap is not whole");
            heap.remove(root);
        }
        assert!(heap.allocate(1, 64, Effort::Full).is_none(), "removed chunks are not handed out");
    }
}

#[test]
#[should_panic(expected = "cannot be removed")]
fn a_chunk_with_a_block_in_it_stays() {
    let mut heap = Heap::new();
    let root = heap.add(0, CHUNK_BYTES);
    heap.allocate(CHUNK_BYTES, 64, Effort::Quick).expect("room");
    heap.remove(root);
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_twice_is_noticed() {
    let mut heap = Heap::new();
    heap.add(0, CHUNK_BYTES);
    let grant = heap.allocate(100, 64, Effort::Quick).expect("room");
    heap.free(grant.node);
    heap.free(grant.node);
}

#[test]
fn of_pieces_that_fit_as_well_the_lowest_is_taken_and_no_smaller_one() {
    let mut heap = Heap::new();
    heap.add(0, CHUNK_BYTES);
    let take = |heap: &mut Heap, granules: u64| {
        heap.allocate(granules * GRANULE_BYTES, 64, Effort::Quick)
            .expect("room")
    };
    // Free pieces of 66, 64 and 65 granules, which share a class, kept apart by blocks in use.
    let pieces = [66, 64, 65].map(|granules| {
        let piece = take(&mut heap, granules);
        take(&mut heap, 1);
        piece
    });
    for piece in pieces {
        heap.free(piece.node);
    }
    assert_eq!(take(&mut heap, 66).offset, pieces[0].offset);
    assert_eq!(take(&mut heap, 64).offset, pieces[1].offset);
}

/// A chunk of free pieces with these granules, each behind a block in use; the rest is in use too.
fn pieces(granules: &[u64]) -> (Heap, Vec<Grant>) {
    let mut heap = Heap::new();
    heap.add(0, CHUNK_BYTES);
    let mut left = CHUNK_BYTES / GRANULE_BYTES;
    let mut take = |heap: &mut Heap, granules: u64| {
        left -= granules;
        heap.allocate(granules * GRANULE_BYTES, 64, Effort::Quick)
            .expect("room")
    };
    let grants: Vec<_> = granules
        .iter()
        .map(|&granules| {
            take(&mut heap, 1);
            take(&mut heap, granules)
        })
        .collect();
    take(&mut heap, 1);
    let rest = heap.allocate(left * GRANULE_BYTES, 64, Effort::Full);
    assert!(rest.is_some(), "the rest is one piece");
    for grant in &grants {
        heap.free(grant.node);
    }
    (heap, grants)
}

#[test]
fn a_full_search_looks_at_every_piece_and_a_quick_one_at_few() {
    let (mut heap, grants) = pieces(&[65, 64, 64, 64, 64, 64, 64, 64, 64]);
    let bytes = 65 * GRANULE_BYTES;
    assert!(heap.allocate(bytes, 64, Effort::Quick).is_none());
    let found = heap.allocate(bytes, 64, Effort::Full);
    assert_eq!(found.map(|grant| grant.offset), Some(grants[0].offset));
}

#[test]
fn the_lowest_of_the_next_classes_is_taken_and_the_high_end_stays_free() {
    let (mut heap, grants) = pieces(&[100, 64]);
    let taken = heap.allocate(64 * GRANULE_BYTES, 64, Effort::Quick);
    assert_eq!(taken.map(|grant| grant.offset), Some(grants[0].offset));
    let (mut heap, grants) = pieces(&[1000, 10, 11, 12, 13, 14, 15, 16, 17]);
    let taken = heap.allocate(10 * GRANULE_BYTES, 64, Effort::Quick);
    assert_eq!(
        taken.map(|grant| grant.offset),
        Some(grants[1].offset),
        "eight classes are looked at"
    );
}

/// A small generator of its own, so that the churn is the same for ever (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    /// Ragged tensors: mostly parts of an embedding table's pulls, else anything from 256 B to 4 MiB.
    fn tensor_bytes(&mut self) -> u64 {
        if self.below(10) < 7 {
            return 131_072 / [5, 10][usize::from(self.below(2) == 1)];
        }
        let scale = 256 << self.below(14);
        scale + self.below(scale)
    }
}

/// The arena stays below 1.3 times the live bytes at the peak, alignment of the large ones included.
#[test]
#[cfg_attr(miri, ignore = "a figure of 60,000 steps, an hour under miri")]
fn waste_under_a_churn_of_ragged_tensors_is_bounded() {
    let mut heap = Heap::new();
    heap.add(0, 1 << 40);
    let (mut dice, mut live) = (Dice(1), Vec::new());
    let (mut bytes_live, mut peak, mut top) = (0_u64, 0_u64, 0_u64);
    for _ in 0..60_000 {
        if live.len() < 400 || (live.len() < 800 && dice.below(2) == 0) {
            let bytes = dice.tensor_bytes();
            let align = if bytes >= crate::config::LARGE_BYTES {
                4096
            } else {
                64
            };
            let grant = heap
                .allocate(bytes, align, Effort::Quick)
                .expect("a terabyte is enough");
            (bytes_live, top) = (bytes_live + bytes, top.max(grant.offset + grant.bytes));
            peak = peak.max(bytes_live);
            live.push((grant.node, bytes));
        } else {
            let at = usize::try_from(dice.below(live.len() as u64)).expect("an index");
            let (node, bytes) = live.swap_remove(at);
            heap.free(node);
            bytes_live -= bytes;
        }
    }
    let percent = top * 100 / peak;
    assert!(
        percent <= 130,
        "arena {top} bytes is {percent} % of the peak of {peak} live bytes"
    );
}
