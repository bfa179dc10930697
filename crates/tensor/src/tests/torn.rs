//! A pull is of one version, however the tensor is written meanwhile.
use super::world::World;
use crate::{Error, Limits, Outcome};

const ROWS: usize = 12;

/// A world in which a pull of all rows goes in four pieces.
fn world(grant_bytes: u64) -> World {
    let limits = Limits {
        grant_bytes,
        piece_bytes: 12,
        entries_max: 4,
        ..Limits::default()
    };
    let mut world = World::new(1, limits);
    world.publish("a", ROWS, 1);
    let client = world.connect();
    world.clients.push(client);
    world
}

fn pull(world: &mut World) -> usize {
    let rows = (0..ROWS as u64).collect();
    world.submit(0, 0, rows, None, true).expect("it is inside")
}

/// One piece at a time, with a write after each.
fn go_with_writes(world: &mut World, writes: usize) {
    for _ in 0..writes {
        world.client_sends(0, usize::MAX);
        world
            .shard_receives(0, usize::MAX)
            .expect("it keeps to the protocol");
        world.write(0, 0, ROWS);
        world.shard_sends(0, usize::MAX);
        world
            .client_receives(0, usize::MAX)
            .expect("it keeps to the protocol");
    }
    world.drain();
}

fn version(world: &World, job: usize) -> u64 {
    let job = &world.jobs[job];
    let Some(Ok(Outcome::Moved { version })) = job.result else {
        panic!("it went wrong: {:?}", job.result);
    };
    assert_eq!(job.memory_in_order(4), world.models[0].history[&version]);
    version
}

#[test]
fn a_pull_in_pieces_that_were_of_several_versions_is_pulled_again_whole() {
    // Two pieces fit at first, then all four.
    let mut world = world(48);
    let busy = world.submit(0, 0, (0..6).collect(), None, true);
    busy.expect("it is inside");
    let job = pull(&mut world);
    go_with_writes(&mut world, 3);
    assert!(version(&world, job) >= 1);
}

/// Rows of another request would be of another version again.
#[test]
fn a_pull_that_has_to_be_whole_waits_until_the_grant_has_room_for_all_of_it() {
    let mut world = world(48);
    let busy = world.submit(0, 0, (0..6).collect(), None, true);
    busy.expect("it is inside");
    let job = pull(&mut world);
    world.exchange(0);
    world.write(0, 0, ROWS);
    // Its other two pieces are answered; what keeps a quarter of the grant is not.
    world.client_sends(0, usize::MAX);
    let other = world.submit(0, 0, (0..3).collect(), None, true);
    other.expect("it is inside");
    world
        .shard_receives(0, usize::MAX)
        .expect("it keeps to the protocol");
    while world.shard_sends(0, usize::MAX) > 0 {}
    world.client_sends(0, usize::MAX);
    world
        .client_receives(0, usize::MAX)
        .expect("it keeps to the protocol");
    let requester = &world.clients[0].requester;
    assert_eq!((requester.waiting(), requester.outstanding()), (1, 1));
    assert_eq!(world.client_sends(0, usize::MAX), 0);
    world.answer(0);
    world.client_sends(0, usize::MAX);
    let requester = &world.clients[0].requester;
    assert_eq!((requester.waiting(), requester.outstanding()), (0, 4));
    world.drain();
    assert_eq!(version(&world, job), 1);
}

#[test]
fn a_pull_of_one_request_is_of_one_version_at_once() {
    let mut world = world(48);
    let job = pull(&mut world);
    go_with_writes(&mut world, 1);
    assert_eq!(version(&world, job), 0);
}

#[test]
fn a_pull_above_the_grant_that_is_torn_each_time_ends_and_says_so() {
    let mut world = world(24);
    let job = pull(&mut world);
    go_with_writes(&mut world, 40);
    let Some(Err(Error::Torn { tries, bytes, .. })) = &world.jobs[job].result else {
        panic!("it ended as {:?}", world.jobs[job].result);
    };
    assert_eq!((*tries, *bytes), (5, 48));
}

#[test]
fn a_pull_above_the_grant_goes_well_once_the_writes_stop() {
    let mut world = world(24);
    let job = pull(&mut world);
    go_with_writes(&mut world, 3);
    assert_eq!(version(&world, job), 3);
}

/// The answer was begun, and nothing of it has gone out, when a push changes its rows.
#[test]
fn what_a_peer_has_not_taken_is_copied_before_it_changes() {
    let mut world = world(1 << 20);
    world.publish("wide", 8, 1024);
    let job = world
        .submit(0, 1, vec![1, 2, 3], None, true)
        .expect("it is inside");
    let gathered = world
        .submit(0, 1, vec![7, 0], None, false)
        .expect("it is inside");
    world.client_sends(0, usize::MAX);
    world
        .shard_receives(0, usize::MAX)
        .expect("it keeps to the protocol");
    world.shard_sends(0, 5000);
    world.write(1, 0, 8);
    world.shard_sends(0, 3000);
    world.write(1, 0, 8);
    world.drain();
    for job in [job, gathered] {
        let job = &world.jobs[job];
        assert_eq!(job.result, Some(Ok(Outcome::Moved { version: 0 })));
        let before = &world.models[1].history[&0];
        for (at, &row) in job.rows.iter().enumerate() {
            let row = usize::try_from(row).expect("small");
            assert_eq!(job.row(at, 4096), &before[row * 4096..][..4096]);
        }
    }
}

/// Answers that are received straight into their destination, among small ones, whatever comes at a time.
#[test]
#[cfg_attr(miri, ignore = "hundreds of kilobytes, which take miri many minutes")]
fn large_answers_land_in_their_places_however_they_are_split() {
    for limit in [1, 7, 23, 24, 25, 4096, 20_000, 100_000] {
        let mut world = world(1 << 20);
        world.limits.piece_bytes = 1 << 20;
        world.clients[0] = world.connect();
        world.byte_by_byte = false;
        world.publish("wide", 8, 1024);
        for rows in [0..6, 2..3, 1..8] {
            for as_slice in [true, false] {
                let job = world.submit(0, 1, rows.clone().collect(), None, as_slice);
                job.expect("it is inside");
            }
        }
        for round in 0.. {
            assert!(round < 1 << 20, "bytes move without end");
            let mut moved = world.client_sends(0, limit);
            moved += world
                .shard_receives(0, limit)
                .expect("it keeps to the protocol");
            moved += world.shard_sends(0, limit);
            moved += world
                .client_receives(0, limit)
                .expect("it keeps to the protocol");
            if moved == 0 {
                break;
            }
        }
        world.take_ends(0);
        for job in &world.jobs {
            assert_eq!(job.result, Some(Ok(Outcome::Moved { version: 0 })));
            let first = usize::try_from(job.rows[0]).expect("small") * 4096;
            let rows = job.memory_in_order(4096);
            assert!(rows == world.models[1].history[&0][first..first + rows.len()]);
        }
    }
}
