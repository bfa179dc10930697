//! Registrars: what they hear of a region's chunks, and when, whatever they do themselves.
#![allow(clippy::disallowed_methods)] // plain threads stand for the systems that allocate

use std::collections::BTreeSet;
use std::fs;
use std::mem;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use forebay_memory::{ChunkMemory, Config, Error, Region, Registrar};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const CHUNK: usize = 2 << 20;
const DEADLINE: Duration = Duration::from_secs(20);

fn region(name: &str, limit_bytes: u64) -> Region {
    Region::new(Config::new(name, limit_bytes).chunk_bytes(2 * MIB)).expect("a region")
}

fn is_mapped(name: &str) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").expect("procfs");
    maps.contains(&format!("memfd:forebay:{name} "))
}

/// What a registrar heard, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Added(u32),
    Removed(u32),
}
use Heard::{Added, Removed};

type Act = Box<dyn Fn(&ChunkMemory) + Send + Sync>;

/// Writes down what it hears, then acts.
struct Listener {
    heard: Mutex<Vec<Heard>>,
    on_added: Act,
    on_removed: Act,
}

impl Listener {
    fn new(
        on_added: impl Fn(&ChunkMemory) + Send + Sync + 'static,
        on_removed: impl Fn(&ChunkMemory) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            heard: Mutex::default(),
            on_added: Box::new(on_added),
            on_removed: Box::new(on_removed),
        })
    }

    fn quiet() -> Arc<Self> {
        Self::new(|_| {}, |_| {})
    }

    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().expect("no panic").clone()
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Listener").field(&self.heard).finish()
    }
}

impl Registrar for Listener {
    fn added(&self, chunk: &ChunkMemory) {
        self.heard
            .lock()
            .expect("no panic")
            .push(Added(chunk.chunk));
        (self.on_added)(chunk);
    }

    fn removed(&self, chunk: &ChunkMemory) {
        self.heard
            .lock()
            .expect("no panic")
            .push(Removed(chunk.chunk));
        (self.on_removed)(chunk);
    }
}

/// A registrar that stays in `added`, from when the receiver hears of it until something is sent.
fn blocking() -> (Arc<Listener>, Receiver<()>, SyncSender<()>) {
    let (entered, is_in) = mpsc::sync_channel(8);
    let (let_go, may_go) = mpsc::sync_channel(8);
    let may_go = Mutex::new(may_go);
    let wait = move |_: &ChunkMemory| {
        entered.send(()).expect("the test listens");
        let may_go = may_go.lock().expect("no panic");
        may_go.recv_timeout(DEADLINE).expect("let go");
    };
    (Listener::new(wait, |_| {}), is_in, let_go)
}

#[test]
fn who_comes_late_hears_of_the_chunks_that_exist_and_where_they_lie() {
    let region = region("late", 64 * MIB);
    let blocks = [CHUNK, CHUNK].map(|bytes| region.allocate(bytes).expect("room"));
    let places = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let places = Arc::clone(&places);
        let id = region.id();
        let note = move |chunk: &ChunkMemory| {
            assert_eq!(chunk.region, id);
            let place = (chunk.start.addr().get(), chunk.bytes);
            places.lock().expect("no panic").push(place);
        };
        Listener::new(note, |_| {})
    };
    region.attach(listener.clone()).expect("attached");
    assert_eq!(listener.heard(), [Added(0), Added(1)]);
    let expected = blocks
        .each_ref()
        .map(|block| (block.as_ptr().addr().get(), CHUNK));
    assert_eq!(*places.lock().expect("no panic"), expected);
}

#[test]
fn the_same_registrar_is_told_once_however_often_it_is_attached() {
    let region = region("twice", 64 * MIB);
    let first = region.allocate(CHUNK).expect("room");
    let listener = Listener::quiet();
    region.attach(listener.clone()).expect("attached");
    region.attach(listener.clone()).expect("attached already");
    drop((region.allocate(CHUNK).expect("room"), first));
    region.trim().expect("open");
    assert_eq!(
        listener.heard(),
        [Added(0), Added(1), Removed(0), Removed(1)]
    );
}

#[test]
fn no_block_is_handed_out_before_its_chunk_was_announced() {
    let region = region("early", 256 * MIB);
    let known = Arc::new(Mutex::new(BTreeSet::new()));
    let (comes, goes) = (Arc::clone(&known), Arc::clone(&known));
    let added = move |chunk: &ChunkMemory| {
        thread::yield_now();
        assert!(comes.lock().expect("no panic").insert(chunk.chunk));
    };
    let removed = move |chunk: &ChunkMemory| {
        assert!(goes.lock().expect("no panic").remove(&chunk.chunk));
    };
    region
        .attach(Listener::new(added, removed))
        .expect("attached");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..300 {
                    let block = region.allocate(CHUNK / (1 + round % 3)).expect("room");
                    let chunk = block.reference().chunk;
                    assert!(known.lock().expect("no panic").contains(&chunk));
                    drop(block);
                    if round % 5 == 0 {
                        region.trim().expect("open");
                    }
                }
            });
        }
    });
    region.trim().expect("open");
    assert!(known.lock().expect("no panic").is_empty());
}

#[test]
fn a_registrar_that_blocks_holds_up_whoever_needs_a_chunk_and_nobody_else() {
    let region = region("held up", 64 * MIB);
    let first = region.allocate(100).expect("room");
    let (listener, is_in, let_go) = blocking();
    let_go.send(()).expect("for the chunk that exists");
    region.attach(listener.clone()).expect("attached");
    is_in.recv_timeout(DEADLINE).expect("notified of it");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| region.allocate(CHUNK).expect("room").reference().chunk);
        is_in.recv_timeout(DEADLINE).expect("notified of the next");
        let other = region
            .allocate(100)
            .expect("there is room beside the first");
        assert_eq!(other.reference().chunk, 0);
        drop((first, other));
        assert_eq!(region.stats().expect("owner").blocks, 0);
        assert!(!waiting.is_finished());
        let_go.send(()).expect("it waits");
        assert_eq!(waiting.join().expect("no panic"), 1);
    });
    assert_eq!(listener.heard(), [Added(0), Added(1)]);
}

#[test]
fn closing_does_not_wait_for_a_registrar_and_refuses_whoever_waits_behind_it() {
    let region = region("closing", 64 * MIB);
    let (listener, is_in, let_go) = blocking();
    region.attach(listener.clone()).expect("attached");
    thread::scope(|scope| {
        let growing = scope.spawn(|| region.allocate(CHUNK));
        is_in.recv_timeout(DEADLINE).expect("notified of it");
        let waiting = scope.spawn(|| region.allocate(CHUNK));
        assert_eq!(region.close().expect("owner"), 0);
        let refused = waiting.join().expect("no panic");
        assert!(matches!(refused, Err(Error::Closed { .. })));
        let_go.send(()).expect("it waits");
        let refused = growing.join().expect("no panic");
        assert!(matches!(refused, Err(Error::Closed { .. })));
    });
    assert_eq!(listener.heard(), [Added(0), Removed(0)]);
    assert!(!is_mapped("closing"));
}

#[test]
fn the_end_is_told_while_the_chunk_is_mapped_by_whichever_thread_drops_the_last_block() {
    let region = region("ending", 64 * MIB);
    let ends: Arc<Mutex<Vec<(bool, ThreadId)>>> = Arc::default();
    let noted = Arc::clone(&ends);
    let note = move |_: &ChunkMemory| {
        let end = (is_mapped("ending"), thread::current().id());
        noted.lock().expect("no panic").push(end);
    };
    region
        .attach(Listener::new(|_| {}, note))
        .expect("attached");
    let block = region.allocate(100).expect("room");
    let further = block.clone();
    drop((region, block));
    assert_eq!(*ends.lock().expect("no panic"), []);
    let last = thread::spawn(move || drop(further));
    let id = last.thread().id();
    last.join().expect("no panic");
    assert_eq!(*ends.lock().expect("no panic"), [(true, id)]);
    assert!(!is_mapped("ending"));
}

#[test]
fn a_registrar_that_panics_costs_nobody_anything_and_still_hears_the_end() {
    let region = region("panics", 64 * MIB);
    let panics = Listener::new(
        |_| panic!("on purpose, when a chunk comes"),
        |_| panic!("on purpose, when it goes"),
    );
    let other = Listener::quiet();
    region.attach(panics.clone()).expect("attached");
    region.attach(other.clone()).expect("attached");
    let block = region.allocate(100).expect("room");
    drop(block);
    assert_eq!(region.trim().expect("open"), 2 * MIB);
    assert!(!is_mapped("panics"));
    assert_eq!(panics.heard(), [Added(0), Removed(0)]);
    assert_eq!(other.heard(), [Added(0), Removed(0)]);
    region.allocate(100).expect("as before");
}

#[test]
fn chunks_that_make_way_are_told_before_the_one_they_make_way_for() {
    let region = region("making way", 8 * MIB);
    let listener = Listener::quiet();
    region.attach(listener.clone()).expect("attached");
    drop([CHUNK; 4].map(|bytes| region.allocate(bytes).expect("room")));
    region
        .allocate(8 << 20)
        .expect("the empty ones are given up");
    let mut heard = listener.heard();
    assert_eq!(heard.pop(), Some(Added(4)));
    assert!(heard[4..].iter().all(|heard| matches!(heard, Removed(_))));
    assert_eq!(heard.len(), 8);
}

#[test]
fn a_registrar_may_ask_the_region_because_no_lock_is_held() {
    let region = Arc::new(region("asked", 4 * MIB));
    let weak = Arc::downgrade(&region);
    let (answers, answered) = mpsc::channel();
    let ask = move |_: &ChunkMemory| {
        let region = weak.upgrade().expect("it calls us");
        let chunks = region.stats().expect("owner").chunks;
        answers.send(chunks).expect("the test listens");
    };
    let listener = Listener::new(ask.clone(), ask);
    let used = {
        let listener = listener.clone();
        thread::spawn(move || {
            let kept = region.allocate(CHUNK).expect("room");
            region.attach(listener).expect("attached");
            drop(region.allocate(CHUNK).expect("room"));
            // Chunk 1 is given up for it in vain.
            assert!(matches!(region.allocate(4 << 20), Err(Error::Full { .. })));
            drop(kept);
            region.trim().expect("open");
        })
    };
    for chunks in [1, 1, 1, 0] {
        let answer = answered.recv_timeout(DEADLINE);
        assert_eq!(answer, Ok(chunks), "a lock is held while it is called");
    }
    used.join().expect("no panic");
    assert_eq!(
        listener.heard(),
        [Added(0), Added(1), Removed(1), Removed(0)]
    );
}

#[test]
fn a_registrar_that_would_wait_for_itself_is_refused() {
    let region = Arc::new(region("nested", 64 * MIB));
    let refusals = Arc::new(Mutex::new(0));
    let (asked, counted) = (Arc::downgrade(&region), Arc::clone(&refusals));
    let nest = move |_: &ChunkMemory| {
        let region = asked.upgrade().expect("it calls us");
        let other: Arc<dyn Registrar> = Listener::quiet();
        let mut refusals = counted.lock().expect("no panic");
        for outcome in [
            region.allocate(CHUNK).map(drop),
            region.attach(Arc::clone(&other)),
            region.detach(&other),
        ] {
            *refusals += i32::from(matches!(outcome, Err(Error::Nested { .. })));
        }
    };
    region
        .attach(Listener::new(nest, |_| {}))
        .expect("attached");
    region.allocate(100).expect("room");
    assert_eq!(*refusals.lock().expect("no panic"), 3);
}

#[test]
fn a_registrar_is_kept_until_the_last_chunk_it_knows_is_gone() {
    let region = region("kept", 64 * MIB);
    let listener = Listener::quiet();
    let watched = Arc::downgrade(&listener);
    region.attach(listener).expect("attached");
    let block = region.allocate(100).expect("room");
    region.close().expect("owner");
    drop(region);
    assert_eq!(watched.upgrade().expect("kept").heard(), [Added(0)]);
    drop(block);
    assert!(watched.upgrade().is_none());
}

#[test]
fn closing_an_empty_region_lets_go_of_its_registrars() {
    let region = region("empty", 64 * MIB);
    let listener = Listener::quiet();
    let watched = Arc::downgrade(&listener);
    region.attach(listener).expect("attached");
    region.close().expect("owner");
    assert!(watched.upgrade().is_none());
    let refused = region.attach(Listener::quiet());
    assert!(matches!(refused, Err(Error::Closed { .. })));
}

#[test]
fn who_is_detached_hears_the_end_of_what_it_knows_and_nothing_more() {
    let region = region("detached", 64 * MIB);
    let listener = Listener::quiet();
    let registrar: Arc<dyn Registrar> = listener.clone();
    region.attach(Arc::clone(&registrar)).expect("attached");
    let block = region.allocate(CHUNK).expect("room");
    region.detach(&registrar).expect("owner");
    region.detach(&registrar).expect("idempotent");
    assert_eq!(listener.heard(), [Added(0), Removed(0)]);
    drop((block, region.allocate(CHUNK).expect("room"), region));
    assert_eq!(listener.heard().len(), 2);
    assert_eq!(Arc::strong_count(&listener), 2, "ours alone");
}

#[test]
fn who_is_detached_from_a_closed_region_hears_the_end_at_once() {
    let region = region("detached late", 64 * MIB);
    let listener = Listener::quiet();
    let registrar: Arc<dyn Registrar> = listener.clone();
    region.attach(Arc::clone(&registrar)).expect("attached");
    let block = region.allocate(100).expect("room");
    region.close().expect("owner");
    region.detach(&registrar).expect("owner");
    assert_eq!(listener.heard(), [Added(0), Removed(0)]);
    drop(block);
    assert_eq!(listener.heard().len(), 2);
}

#[test]
fn the_sixty_fifth_registrar_is_refused_until_one_is_detached() {
    let region = region("many", 64 * MIB);
    let first: Arc<dyn Registrar> = Listener::quiet();
    region.attach(Arc::clone(&first)).expect("attached");
    for _ in 1..64 {
        region.attach(Listener::quiet()).expect("attached");
    }
    let refused = region.attach(Listener::quiet());
    assert!(matches!(refused, Err(Error::Registrars { limit: 64, .. })));
    region
        .attach(Arc::clone(&first))
        .expect("it is one of them");
    region.detach(&first).expect("owner");
    region.attach(Listener::quiet()).expect("room again");
}

#[test]
fn printing_a_region_asks_no_registrar() {
    let region = region("printed", 64 * MIB);
    let listener = Listener::quiet();
    region.attach(listener.clone()).expect("attached");
    // Its own would wait for this for ever.
    let _held = listener.heard.lock().expect("no panic");
    assert!(format!("{region:?}").contains("printed"));
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    Free(usize),
    Trim,
    Attach(usize),
    Detach(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..3 * CHUNK).prop_map(Step::Allocate),
        3 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::Trim),
        1 => (0..3_usize).prop_map(Step::Attach),
        1 => (0..3_usize).prop_map(Step::Detach),
    ]
}

/// What a listener knows, from what it heard; each chunk comes and goes in turn.
fn known(heard: &[Heard]) -> BTreeSet<u32> {
    let mut known = BTreeSet::new();
    for &heard in heard {
        match heard {
            Added(chunk) => assert!(known.insert(chunk), "notified of {chunk} twice"),
            Removed(chunk) => assert!(known.remove(&chunk), "notified of the end of {chunk} twice"),
        }
    }
    known
}

proptest! {
    #[test]
    fn whoever_is_attached_knows_the_chunks_that_are_there_and_others_none(
        steps in proptest::collection::vec(step(), 1..60)
    ) {
        let region = region("model", 16 * MIB);
        let listeners = [Listener::quiet(), Listener::quiet(), Listener::quiet()];
        let mut attached = [false; 3];
        let mut live = Vec::new();
        for step in steps {
            match step {
                Step::Allocate(bytes) => live.extend(region.allocate(bytes).ok()),
                Step::Free(_) if live.is_empty() => {}
                Step::Free(which) => drop(live.swap_remove(which % live.len())),
                Step::Trim => drop(region.trim()),
                Step::Attach(who) => {
                    region.attach(listeners[who].clone()).expect("open");
                    attached[who] = true;
                }
                Step::Detach(who) => {
                    let registrar: Arc<dyn Registrar> = listeners[who].clone();
                    region.detach(&registrar).expect("owner");
                    attached[who] = false;
                }
            }
            let chunks = region.stats().expect("owner").chunks;
            for (listener, attached) in listeners.iter().zip(attached) {
                let known = known(&listener.heard());
                prop_assert_eq!(known.len() as u64, if attached { chunks } else { 0 });
                let all = live.iter().all(|block| known.contains(&block.reference().chunk));
                prop_assert!(!attached || all);
            }
        }
        drop((mem::take(&mut live), region));
        for listener in listeners {
            prop_assert!(known(&listener.heard()).is_empty());
        }
    }
}
