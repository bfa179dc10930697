//! Whatever happens on the way, each job ends once, with the rows of one version or an error that says why not.
use std::collections::BTreeMap;
use std::time::Duration;

use super::counted;
use super::world::{ITEM_BYTES, Job, Model, UNTOUCHED, World};
use crate::{Class, Error, Limits, Meaning, Operation, Outcome, Unknown};

/// Worlds of each kind; each takes a few hundred steps.
const SEEDS: u64 = 150;

fn limits(seed: u64) -> Limits {
    let pick =
        |from: &[u64], by: u64| from[usize::try_from(seed / by).expect("small") % from.len()];
    Limits {
        slots: u32::try_from(pick(&[1, 3, 16], 1)).expect("small"),
        grant_bytes: pick(&[60, 400, 1 << 20], 3),
        piece_bytes: pick(&[16, 64, 1 << 20], 9),
        entries_max: u32::try_from(pick(&[1, 4, 256], 2)).expect("small"),
        ..Limits::default()
    }
}

fn submit(world: &mut World) {
    let client = world.dice.below(world.clients.len());
    let model = world.dice.below(world.models.len());
    let rows = world.models[model].rows;
    let operation = match world.dice.below(6) {
        0 => Some(Operation::Set),
        1 => Some(Operation::Add),
        _ => None,
    };
    let as_slice = !world.dice.once_in(3);
    let wanted: Vec<u64> = if as_slice {
        let first = world.dice.below(rows);
        let count = world.dice.below(rows - first + 1);
        (first as u64..(first + count) as u64).collect()
    } else {
        let count = world.dice.below(2 * rows);
        (0..count).map(|_| world.dice.below(rows) as u64).collect()
    };
    world
        .submit(client, model, wanted, operation, as_slice)
        .expect("it is inside");
}

/// Look up some names, of which "a", "b" and "c" always mean something.
fn look_up(world: &mut World, client: usize) {
    let names = ["a", "b", "c", "ab", "ac", "z"];
    let count = 1 + world.dice.below(4);
    let asked: Vec<&str> = (0..count).map(|_| names[world.dice.below(6)]).collect();
    world.look_up(client, &asked).expect("they can be names");
}

fn act(world: &mut World) {
    counted::step();
    let client = world.dice.below(world.clients.len());
    let some = 1 + world.dice.below(200);
    match world.dice.below(20) {
        0 if world.dice.once_in(2) => look_up(world, client),
        0..=4 => submit(world),
        5..=7 => drop(world.client_sends(client, some)),
        8..=10 => drop(
            world
                .shard_receives(client, some)
                .expect("both keep to the protocol"),
        ),
        11..=13 => drop(world.shard_sends(client, some)),
        14..=16 => drop(
            world
                .client_receives(client, some)
                .expect("both keep to the protocol"),
        ),
        17 if !world.jobs.is_empty() => {
            let number = world.dice.below(world.jobs.len());
            if world.jobs[number].client == client && !world.jobs[number].keeper_back {
                world.cancel(number);
            }
        }
        18 => {
            world.later(Duration::from_millis(1));
            world.clients[client]
                .requester
                .expire(world.now)
                .expect("it is not silent for long");
        }
        _ => change(world, client),
    }
    world.take_ends(client);
    check_limits(world, client);
}

/// What happens less often: tensors change, come and go, peers die.
fn change(world: &mut World, client: usize) {
    let model = world.dice.below(world.models.len());
    match world.dice.below(8) {
        0..=3 if world.models[model].is_live => {
            let first = world.dice.below(world.models[model].rows);
            let count = 1 + world.dice.below(world.models[model].rows - first);
            world.write(model, first, count);
        }
        4 if world.models[model].is_live => {
            let name = world.models[model].name.clone();
            let (rows, columns) = (1 + world.dice.below(20), 1 + world.dice.below(3));
            world.publish(&name, rows, columns);
        }
        5 => {
            let gone = world.clients[client].peer;
            world.shard.disconnect(gone);
            let why = "killed by the test".to_owned();
            world.clients[client]
                .requester
                .break_off(Error::Broken { why });
            world.take_ends(client);
            assert!(
                world
                    .jobs
                    .iter()
                    .all(|job| job.client != client || job.keeper_back)
            );
            let fresh = world.connect();
            world.clients[client] = fresh;
        }
        _ => {}
    }
    while let Some(keeper) = world.shard.take_retired() {
        world.retired.push(keeper);
    }
}

fn check_limits(world: &World, client: usize) {
    let (slots, bytes) = world.clients[client].requester.outstanding_with_peer();
    assert!(
        slots <= world.limits.slots as usize,
        "more slots are taken than were granted"
    );
    assert!(
        bytes <= world.limits.grant_bytes,
        "more bytes are asked for than were granted"
    );
    let (slots_left, bytes_left) = world.clients[client].requester.left_with_peer();
    assert_eq!(
        (slots + slots_left, bytes + bytes_left),
        (world.limits.slots as usize, world.limits.grant_bytes),
        "what is taken and what is left are not what was granted"
    );
}

/// The rows that a push of this job makes of those before it.
fn pushed(job: &Job, model: &Model, before: &[u8], rows: std::ops::Range<usize>) -> Vec<u8> {
    let mut expected = before.to_vec();
    for at in rows {
        let row = usize::try_from(job.rows[at]).expect("small");
        let place = &mut expected[row * model.row_bytes..][..model.row_bytes];
        let values = job.row(at, model.row_bytes);
        match job.operation {
            Some(Operation::Add) => {
                for (item, value) in place.chunks_mut(ITEM_BYTES).zip(values.chunks(ITEM_BYTES)) {
                    let number =
                        |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().expect("4 bytes"));
                    let sum = number(item).wrapping_add(number(value));
                    item.copy_from_slice(&sum.to_ne_bytes());
                }
            }
            _ => place.copy_from_slice(values),
        }
    }
    expected
}

fn check_moved(job: &Job, model: &Model, version: u64, limits: &Limits) {
    if job.rows.is_empty() {
        return;
    }
    let Some(content) = model.history.get(&version) else {
        return;
    };
    if job.operation.is_none() {
        for (at, &row) in job.rows.iter().enumerate() {
            let row = usize::try_from(row).expect("small");
            let expected = &content[row * model.row_bytes..][..model.row_bytes];
            assert_eq!(
                job.row(at, model.row_bytes),
                expected,
                "row {row} of version {version}"
            );
        }
        return;
    }
    let unit = model.row_bytes.max(8) as u64;
    let is_one_piece = limits.is_one_piece(job.rows.len() as u64 * unit);
    if let (true, Some(before)) = (is_one_piece, model.history.get(&(version - 1))) {
        assert_eq!(
            content,
            &pushed(job, model, before, 0..job.rows.len()),
            "version {version}"
        );
    }
}

/// A name means what it meant at a moment between the question and its answer.
fn check_names(job: &Job, models: &[Model], meanings: &[Result<Meaning, Unknown>]) {
    assert_eq!(job.names.len(), meanings.len());
    let mut unknown = 0;
    for (name, meaning) in job.names.iter().zip(meanings) {
        let of_name = |model: &&Model| model.name == *name;
        let before = models[..job.models_before].iter().filter(of_name).count();
        let mut possible = models.iter().filter(of_name).skip(before.saturating_sub(1));
        match meaning {
            Ok(meaning) => {
                let model = possible.find(|model| model.key == meaning.key);
                let model = model.expect("one that had the name since it was asked for");
                assert!(Some(meaning.version) <= model.history.keys().last().copied());
                let (rows, row_bytes) = (model.rows as u64, model.row_bytes as u64);
                assert_eq!((meaning.rows(), meaning.row_bytes()), (rows, row_bytes));
            }
            Err(found) => {
                assert_eq!(before, 0, "{name} means something");
                unknown += 1;
                let is_near = unknown <= 2 && name != "z";
                assert_eq!(!found.nearest.is_empty(), is_near, "near {name}");
            }
        }
    }
}

/// Pushes of a client to one tensor are applied in the order in which they were submitted.
fn check_order(world: &World) {
    let mut last = BTreeMap::new();
    for job in &world.jobs {
        if let Some(Ok(Outcome::Moved { version })) = job.result
            && job.operation.is_some()
            && !job.rows.is_empty()
        {
            let before = last.insert((job.client, job.model), version).unwrap_or(0);
            assert!(before < version, "a push went before an earlier one");
        }
    }
}

fn check(job: &Job, models: &[Model], limits: &Limits) {
    let model = &models[job.model];
    let ended = (job.ends, job.keeper_back);
    assert_eq!(ended, (1, true), "a job has no end");
    assert_eq!(
        job.after.as_ref(),
        Some(&job.memory),
        "written after it was handed back"
    );
    match &job.result {
        Some(Ok(Outcome::Moved { version })) => check_moved(job, model, *version, limits),
        Some(Ok(Outcome::Names(meanings))) => check_names(job, models, meanings),
        Some(Err(error)) => assert!(
            error.class() == Class::Broken || (error.class() == Class::Stale && !model.is_live),
            "{error}"
        ),
        None => {}
    }
}

fn run(seed: u64, byte_by_byte: bool) -> (u32, u32) {
    let _watch = counted::Watch;
    let mut world = World::new(seed, limits(seed));
    world.byte_by_byte = byte_by_byte;
    for (name, columns) in [("a", 1), ("b", 2), ("c", 5)] {
        let rows = 1 + world.dice.below(30);
        world.publish(name, rows, columns);
    }
    for _ in 0..2 {
        let client = world.connect();
        world.clients.push(client);
    }
    for _ in 0..300 {
        act(&mut world);
    }
    world.drain();
    for job in &world.jobs {
        check(job, &world.models, &world.limits);
    }
    check_order(&world);
    for client in &world.clients {
        let waiting = client.requester.waiting();
        assert_eq!(waiting, 0, "jobs wait though nothing moves");
        assert!(
            client.requester.is_idle(),
            "answers are awaited though nothing moves"
        );
        assert_eq!(client.requester.outstanding_with_peer(), (0, 0));
        assert!(
            world.shard.is_quiet(client.peer),
            "answers are owed though nothing moves"
        );
    }
    for name in ["a", "b", "c"] {
        world
            .shard
            .drop_tensor(name)
            .expect("one of the name is there");
    }
    while let Some(keeper) = world.shard.take_retired() {
        world.retired.push(keeper);
    }
    world.retired.sort_unstable();
    let all: Vec<usize> = (0..world.models.len()).collect();
    assert_eq!(world.retired, all, "memory is not given back, or twice");
    let moved = |job: &&Job| matches!(job.result, Some(Ok(_)));
    let touched = |job: &&Job| job.memory.iter().any(|&byte| byte != UNTOUCHED);
    let count = |jobs: usize| u32::try_from(jobs).expect("few");
    (
        count(world.jobs.iter().filter(moved).count()),
        count(world.jobs.iter().filter(touched).count()),
    )
}

#[test]
fn each_job_ends_once_with_right_rows_when_streams_split_at_every_byte() {
    let moved: u32 = (0..SEEDS).map(|seed| run(seed, true).0).sum();
    assert!(
        moved > 1000,
        "only {moved} jobs went well: nothing was tested"
    );
}

#[test]
fn each_job_ends_once_with_right_rows_when_many_requests_come_at_once() {
    let moved: u32 = (SEEDS..2 * SEEDS).map(|seed| run(seed, false).0).sum();
    assert!(
        moved > 1000,
        "only {moved} jobs went well: nothing was tested"
    );
}
