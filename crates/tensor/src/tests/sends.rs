//! Before rows change, whoever reads them by itself is waited for.
use std::sync::{Arc, Mutex};

use super::world::World;
use crate::verbs::Source;
use crate::{Error, Key, Limits, Operation};

const ROWS: usize = 8;

/// The content of each span that was to change, as it was then.
type Seen = Arc<Mutex<Vec<Vec<u8>>>>;

fn world() -> (World, Seen) {
    let mut world = World::new(3, Limits::default());
    world.publish("a", ROWS, 2);
    let client = world.connect();
    world.clients.push(client);
    let seen = Seen::default();
    let shared = Arc::clone(&seen);
    world.shard.before_writes(move |span| {
        let mut bytes = Vec::new();
        span.append_to(&mut bytes);
        shared.lock().expect("no panic").push(bytes);
    });
    (world, seen)
}

#[test]
fn a_write_waits_for_the_whole_tensor_and_a_push_for_its_rows() {
    let (mut world, seen) = world();
    let before = world.models[0].history[&0].clone();
    let rows = (2..5).collect();
    let pushed = world.submit(0, 0, rows, Some(Operation::Set), true);
    pushed.expect("it is inside");
    world.drain();
    world.note_versions();
    let between = world.models[0].history[&1].clone();
    assert_ne!(before, between);
    world.write(0, 0, 1);
    let row_bytes = world.models[0].row_bytes;
    let seen = seen.lock().expect("no panic");
    assert_eq!(
        seen[..],
        [before[2 * row_bytes..5 * row_bytes].to_vec(), between]
    );
}

#[test]
fn rows_that_lie_in_no_block_are_elsewhere_and_others_are_refused() {
    let (mut world, _) = world();
    let key = world.models[0].key;
    assert_eq!(
        world.shard.rows(key, 0, 8).map(|found| found.is_none()),
        Ok(true)
    );
    assert_eq!(
        world.shard.whole(key).map(|found| found.is_none()),
        Ok(true)
    );
    let outside = world.shard.rows(key, 7, 2).map(drop);
    assert!(matches!(outside, Err(Error::OutOfRange { row: 8, .. })));
    let never = Key { id: 77, ..key };
    assert!(matches!(
        world.shard.rows(never, 0, 1),
        Err(Error::Stale { current: 0, .. })
    ));
    world.shard.drop_tensor("a").expect("it is there");
    assert!(matches!(
        world.shard.rows(key, 0, 1),
        Err(Error::Stale { current: 0, .. })
    ));
}
