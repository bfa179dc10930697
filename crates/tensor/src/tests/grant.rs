//! What two honest ends have with each other: messages for a pull, bytes for a request, answers that wait for the
//! grant.
use super::world::World;
use crate::wire::{REQUEST_BYTES, RESPONSE_BYTES, RequestHeader, ResponseHeader};
use crate::{End, Limits, Operation, Outcome};

fn world(limits: Limits) -> World {
    let mut world = World::new(3, limits);
    world.publish("a", 64, 4);
    let client = world.connect();
    world.clients.push(client);
    world
}

#[test]
fn answers_to_names_wait_for_the_grant() {
    let mut world = world(Limits {
        grant_bytes: 256,
        ..Limits::default()
    });
    for number in 0..3 {
        let asked = world.clients[0].requester.look_up(&["a", "b"], number);
        asked.expect("they can be names");
    }
    let mut answered = Vec::new();
    for waiting in [2, 1, 0] {
        world.client_sends(0, usize::MAX);
        let requester = &world.clients[0].requester;
        assert_eq!(requester.outstanding_with_peer(), (1, 256));
        assert_eq!(requester.waiting(), waiting);
        assert!(!requester.wants_write(), "it has to wait");
        world.answer(0);
        let end = world.clients[0].requester.take_end();
        let Some(End::Over { keeper, result, .. }) = end else {
            panic!("it has not ended: {end:?}");
        };
        let Ok(Outcome::Names(meanings)) = result else {
            panic!("it went wrong: {result:?}");
        };
        assert!(meanings[0].is_ok() && meanings[1].is_err());
        answered.push(keeper);
    }
    assert_eq!(answered, [0, 1, 2]);
}

/// A look at very many names for each one would keep the shard from everybody else.
#[test]
fn two_unknown_names_of_a_request_are_told_their_nearest() {
    let mut world = world(Limits::default());
    let names = ["aa", "ab", "a", "ac"];
    let asked = world.clients[0].requester.look_up(&names, 7);
    asked.expect("they can be names");
    world.exchange(0);
    let end = world.clients[0].requester.take_end();
    let Some(End::Over {
        result: Ok(Outcome::Names(meanings)),
        ..
    }) = end
    else {
        panic!("it went wrong: {end:?}");
    };
    let nearest = meanings.iter().map(|meaning| match meaning {
        Ok(_) => None,
        Err(unknown) => Some(unknown.nearest.len()),
    });
    assert_eq!(
        nearest.collect::<Vec<_>>(),
        [Some(1), Some(1), None, Some(0)]
    );
}

/// The requests in what a client sent: their bytes and their entries.
fn requests(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let header = RequestHeader::decode(&bytes[at..]).expect("a header");
        let whole = REQUEST_BYTES + usize::try_from(header.bytes).expect("few");
        found.push((whole, usize::from(header.entries)));
        at += whole;
    }
    found
}

/// Their headers in what a shard sent.
fn responses(bytes: &[u8]) -> Vec<ResponseHeader> {
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let header = ResponseHeader::decode(&bytes[at..]).expect("a header");
        at += RESPONSE_BYTES + usize::try_from(header.bytes).expect("few");
        found.push(header);
    }
    found
}

/// Submit so many pulls at once, and count the messages of both ways.
fn messages_of(pulls: u64) -> (Vec<(usize, usize)>, usize) {
    let mut world = world(Limits::default());
    for row in 0..pulls {
        let asked = world.submit(0, 0, vec![row % 64], None, true);
        asked.expect("it is inside");
    }
    world.client_sends(0, usize::MAX);
    let up = requests(world.clients[0].up.make_contiguous());
    let received = world.shard_receives(0, usize::MAX);
    received.expect("it keeps to the protocol");
    while world.shard_sends(0, usize::MAX) > 0 {
        let bytes = world.clients[0].down.len();
        assert!(bytes < 1 << 20, "the same bytes go out without end");
    }
    let down = responses(world.clients[0].down.make_contiguous()).len();
    world.drain();
    assert!(
        world
            .jobs
            .iter()
            .all(|job| matches!(job.result, Some(Ok(_))))
    );
    assert_eq!(world.clients[0].requester.outstanding(), 0);
    (up, down)
}

/// One request and one answer; no message frees a slot, and none registers anything.
#[test]
fn a_pull_costs_two_messages_and_40_bytes_of_request() {
    assert_eq!(messages_of(1), (vec![(40, 1)], 1));
}

/// Behind the header, which is 16 bytes for up to 256 of them.
#[test]
fn pulls_that_travel_together_have_24_bytes_of_a_request_each() {
    assert_eq!(messages_of(2), (vec![(16 + 2 * 24, 2)], 2));
    assert_eq!(messages_of(256), (vec![(16 + 256 * 24, 256)], 256));
    let (requests, answers) = messages_of(300);
    assert_eq!(requests, [(16 + 256 * 24, 256), (16 + 44 * 24, 44)]);
    assert_eq!(answers, 300);
}

/// Of a pull in several pieces, one of which was answered: the others are named, with their slots.
#[test]
fn a_cancel_names_the_pieces_that_have_not_come() {
    let mut world = world(Limits {
        piece_bytes: 16,
        entries_max: 2,
        ..Limits::default()
    });
    let long = world.submit(0, 0, (0..5).collect(), None, true);
    let long = long.expect("it is inside");
    let other = world.submit(0, 0, vec![9], None, true);
    let other = other.expect("it is inside");
    world.client_sends(0, usize::MAX);
    let received = world.shard_receives(0, usize::MAX);
    received.expect("it keeps to the protocol");
    world.shard_sends(0, usize::MAX);
    let answers = responses(world.clients[0].down.make_contiguous());
    let received = world.client_receives(0, RESPONSE_BYTES + 16);
    received.expect("it keeps to the protocol");
    let before = world.clients[0].requester.outstanding();
    world.cancel(long);
    world.client_sends(0, usize::MAX);
    let canceled = requests(world.clients[0].up.make_contiguous()).len();
    assert_eq!((answers.len(), before, canceled), (6, 5, 4));
    world.drain();
    assert!(matches!(world.jobs[other].result, Some(Ok(_))));
    assert!(world.jobs[long].keeper_back);
    world.shard.disconnect(world.clients[0].peer);
}

/// Otherwise each byte of it would be a system call of its own.
#[test]
fn a_refusal_beside_a_large_answer_is_received_at_once() {
    let mut world = World::new(3, Limits::default());
    world.publish("large", 64, 256);
    world.publish("gone", 4, 4);
    let client = world.connect();
    world.clients.push(client);
    world.shard.drop_tensor("gone").expect("it is there");
    world.drop_model("gone");
    let refused = world.submit(0, 1, vec![1], None, true);
    let refused = refused.expect("it is inside");
    let large = world.submit(0, 0, (0..64).collect(), None, true);
    large.expect("it is inside");
    world.client_sends(0, usize::MAX);
    let received = world.shard_receives(0, usize::MAX);
    received.expect("it keeps to the protocol");
    world.shard_sends(0, usize::MAX);
    let mut calls = 0;
    while world.jobs[refused].ends == 0 {
        calls += 1;
        let received = world.client_receives(0, usize::MAX);
        received.expect("it keeps to the protocol");
        world.take_ends(0);
        assert!(calls <= 2, "{calls} calls for a header and its text");
    }
    world.drain();
}

/// The entries of the requests that so many jobs make, each of one row of 16 bytes, where a piece has 64.
fn entries_of(jobs: u64, operation: Option<Operation>, as_slice: bool) -> Vec<usize> {
    let mut world = world(Limits {
        piece_bytes: 64,
        ..Limits::default()
    });
    for row in 0..jobs {
        let asked = world.submit(0, 0, vec![row], operation, as_slice);
        asked.expect("it is inside");
    }
    world.client_sends(0, usize::MAX);
    let sent = requests(world.clients[0].up.make_contiguous());
    world.drain();
    assert_eq!(world.clients[0].requester.outstanding(), 0);
    sent.into_iter().map(|(_, entries)| entries).collect()
}

/// What a request carries behind its entries is bounded, so that one does not keep the others waiting.
#[test]
fn row_numbers_and_values_travel_together_up_to_the_size_of_a_piece() {
    let set = Some(Operation::Set);
    assert_eq!(entries_of(10, None, true), [10], "nothing follows");
    assert_eq!(entries_of(10, None, false), [8, 2], "8 bytes each");
    assert_eq!(entries_of(10, set, true), [4, 4, 2], "16 bytes each");
    assert_eq!(entries_of(5, set, false), [2, 2, 1], "24 bytes each");
}

/// A piece has as many rows as its bytes allow, and a pull as many pieces as it takes.
#[test]
fn a_pull_goes_in_as_few_pieces_as_its_limit_allows() {
    for (rows, pieces) in [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)] {
        let mut world = world(Limits {
            piece_bytes: 64,
            ..Limits::default()
        });
        let asked = world.submit(0, 0, (0..rows).collect(), None, true);
        asked.expect("it is inside");
        world.client_sends(0, usize::MAX);
        assert_eq!(world.clients[0].requester.outstanding(), pieces);
        world.drain();
        let row_bytes = world.models[0].row_bytes;
        let came = world.jobs[0].memory_in_order(row_bytes);
        assert_eq!(came, world.models[0].history[&0][..came.len()]);
    }
}

/// A connection with one slot, one entry in each request, and pieces of one row.
fn narrow() -> World {
    world(Limits {
        slots: 1,
        piece_bytes: 16,
        entries_max: 1,
        ..Limits::default()
    })
}

/// Answer requests until a job has ended; returns how many that took.
fn answers_until(world: &mut World, job: usize) -> usize {
    for answers in 1..100 {
        world.exchange(0);
        world.take_ends(0);
        if world.jobs[job].ends > 0 {
            return answers;
        }
    }
    panic!("it does not end");
}

#[test]
fn a_short_pull_does_not_wait_until_a_long_one_is_over() {
    let mut world = narrow();
    let long = world.submit(0, 0, (0..20).collect(), None, true);
    let long = long.expect("it is inside");
    let short = world.submit(0, 0, vec![40], None, true);
    let short = short.expect("it is inside");
    assert_eq!(answers_until(&mut world, short), 2);
    assert_eq!(answers_until(&mut world, long), 19);
}

#[test]
fn a_short_push_waits_until_a_long_one_before_it_is_over() {
    let mut world = narrow();
    let set = Some(Operation::Set);
    let long = world.submit(0, 0, (0..20).collect(), set, true);
    let long = long.expect("it is inside");
    let short = world.submit(0, 0, vec![19], set, true);
    let short = short.expect("it is inside");
    assert_eq!(answers_until(&mut world, long), 20);
    assert_eq!(answers_until(&mut world, short), 1);
    let row_bytes = world.models[0].row_bytes;
    let version = &world.models[0].history[&21][19 * row_bytes..][..row_bytes];
    assert_eq!(version, world.jobs[short].memory_in_order(row_bytes));
}

/// Below 16 KiB a copy costs less than a system call for each answer.
#[test]
fn small_answers_are_received_together_and_a_large_one_in_its_place() {
    let mut world = world(Limits::default());
    world.publish("wide", 4, 4096);
    for row in 0..100 {
        let asked = world.submit(0, 0, vec![row % 64], None, true);
        asked.expect("it is inside");
    }
    assert_eq!(answers_until(&mut world, 99), 1);
    assert!(world.jobs.iter().all(|job| job.ends == 1));
    let large = world.submit(0, 1, vec![2], None, true);
    let large = large.expect("it is inside");
    world.client_sends(0, usize::MAX);
    let spans = world.clients[0].requester.incoming();
    let offered = spans.map(|span| span.bytes());
    assert_eq!(
        offered,
        [RESPONSE_BYTES, 0],
        "no byte of its rows is copied"
    );
    world.answer(0);
    let [first, second] = world.clients[0].requester.incoming();
    assert_eq!((first.bytes(), second.bytes()), (16 << 10, RESPONSE_BYTES));
    world.drain();
    assert_eq!(world.jobs[large].ends, 1);
    for row in 0..100 {
        let asked = world.submit(0, 0, vec![row % 64], None, true);
        asked.expect("it is inside");
    }
    assert_eq!(answers_until(&mut world, 200), 1, "small ones again");
}

/// Rows above a kilobyte go out of the caller's memory, which an answer gives back: it may come once all are sent.
#[test]
fn a_push_of_lent_rows_ends_with_the_answer_however_it_is_sent() {
    for limit in [1000, 4096, 5000, usize::MAX] {
        let mut world = world(Limits::default());
        world.publish("wide", 8, 1024);
        for as_slice in [true, false] {
            let set = Some(Operation::Set);
            let pushed = world.submit(0, 1, vec![2, 3, 4], set, as_slice);
            pushed.expect("it is inside");
        }
        while world.client_sends(0, limit) > 0 {
            assert!(world.jobs.iter().all(|job| job.ends == 0));
        }
        world.byte_by_byte = false;
        world.answer(0);
        world.note_versions();
        world.take_ends(0);
        for (job, version) in world.jobs.iter().zip(1..) {
            assert_eq!(job.result, Some(Ok(Outcome::Moved { version })));
        }
        let last = &world.models[1].history[&2];
        assert_eq!(
            last[2 * 4096..5 * 4096],
            world.jobs[1].memory_in_order(4096)
        );
    }
}

/// Names that wait for the grant are no reason to write, and nor is a pull without a slot.
#[test]
fn a_client_wants_to_write_when_it_can_and_not_before() {
    let mut world = world(Limits {
        slots: 2,
        grant_bytes: 256,
        ..Limits::default()
    });
    let wants = |world: &World| world.clients[0].requester.wants_write();
    assert!(!wants(&world), "nothing waits");
    world.look_up(0, &["a"]).expect("it can be a name");
    assert!(wants(&world));
    world.client_sends(0, usize::MAX);
    let pulled = world.submit(0, 0, vec![1], None, true);
    pulled.expect("it is inside");
    assert!(!wants(&world), "the grant is taken by the names");
    let pushed = world.submit(0, 0, vec![1], Some(Operation::Set), true);
    pushed.expect("it is inside");
    assert!(!wants(&world), "it comes behind the pull");
    world.drain();
    for rows in [0..16, 16..20] {
        let pulled = world.submit(0, 0, rows.collect(), None, true);
        pulled.expect("it is inside");
        world.client_sends(0, usize::MAX);
    }
    assert!(!wants(&world), "the grant is taken by the first");
    world.drain();
    for _ in 0..3 {
        let pushed = world.submit(0, 0, vec![1], Some(Operation::Set), true);
        pushed.expect("it is inside");
        world.client_sends(0, usize::MAX);
    }
    assert!(!wants(&world), "both slots are taken");
    world.drain();
    assert!(world.jobs.iter().all(|job| job.ends == 1));
}
