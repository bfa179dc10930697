//! Before rows change, whoever reads them by itself is waited for.
use std::sync::{Arc, Mutex};

use super::world::World;
use crate::fabric::Source;
use crate::{Error, Key, Limits, Missed, Operation, Span, VersionTable};

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

/// A reader that maps the version table reads rows of one version without the server, also of tensors published before.
#[test]
fn a_version_table_has_the_version_of_each_tensor() {
    let mut words = [0; 8];
    let memory = Span::of_words(&mut words);
    let (mut world, _) = world();
    world.write(0, 0, 1);
    let seen = VersionTable::new(memory).expect("words are aligned");
    world
        .shard
        .attach_versions(VersionTable::new(memory).expect("words are aligned"));
    world.publish("b", ROWS, 1);
    let keys = [0, 1].map(|model| world.models[model].key);
    let versions = || keys.map(|key| seen.read(key, || {}));
    assert_eq!(versions(), [Ok(1), Ok(0)]);
    world.write(1, 2, 3);
    assert_eq!(versions(), [Ok(1), Ok(1)]);
    let pushed = world.submit(0, 0, vec![7], Some(Operation::Add), true);
    pushed.expect("it is inside");
    world.drain();
    assert_eq!(versions(), [Ok(2), Ok(1)]);
    world.shard.drop_tensor("b").expect("it is there");
    world.drop_model("b");
    assert_eq!(versions(), [Ok(2), Err(Missed::Stale(0))]);
}
