//! A server that lies: each lie is a `ProtocolError` that says what, and the destination is untouched.
use std::time::Duration;

use super::world::{UNTOUCHED, World};
use crate::wire::{RESPONSE_BYTES, ResponseHeader, Status};
use crate::{Canceled, Class, End, Error, Limits, Outcome};

const ROW_BYTES: usize = 8;

fn limits() -> Limits {
    Limits {
        slots: 2,
        ..Limits::default()
    }
}

/// A client that asked for two rows in each of two pulls, which went in one request, and the answers to them.
fn asked() -> (World, Vec<u8>) {
    let mut world = World::new(3, limits());
    world.publish("a", 4, ROW_BYTES / 4);
    let client = world.connect();
    world.clients.push(client);
    for _ in 0..2 {
        world
            .submit(0, 0, vec![1, 2], None, true)
            .expect("it is inside");
    }
    world.client_sends(0, usize::MAX);
    world
        .shard_receives(0, usize::MAX)
        .expect("it keeps to the protocol");
    world.shard_sends(0, usize::MAX);
    let answers = world.clients[0].down.drain(..).collect();
    (world, answers)
}

fn receive(world: &mut World, bytes: &[u8]) -> Result<(), Error> {
    let now = world.now;
    world.clients[0].requester.feed(bytes, now)
}

fn assert_lie(result: Result<(), Error>, words: &str) {
    let error = result.expect_err("it is a lie");
    assert_eq!(error.class(), Class::Protocol);
    assert!(error.to_string().contains(words), "{error}");
}

/// The first header, changed.
fn lie(change: impl Fn(&mut ResponseHeader), words: &str) {
    let (mut world, mut answers) = asked();
    let mut header = ResponseHeader::decode(&answers).expect("the shard answers well");
    change(&mut header);
    answers[..RESPONSE_BYTES].copy_from_slice(&header.encode());
    let result = receive(&mut world, &answers);
    assert_lie(result, words);
    let why = "it lied".to_owned();
    world.clients[0].requester.break_off(Error::Broken { why });
    world.take_ends(0);
    for job in &world.jobs {
        assert_eq!((job.ends, job.keeper_back), (1, true));
        assert!(
            job.memory.iter().all(|&byte| byte == UNTOUCHED),
            "written for a lie"
        );
    }
}

/// What a responder with a wrong length would do to the memory behind a destination.
#[test]
fn a_response_of_another_length_is_refused_before_a_byte_of_it_is_taken() {
    for bytes in [0, 15, 17, u64::MAX] {
        lie(|header| header.bytes = bytes, "instead of 16 to 16");
    }
}

#[test]
fn a_response_to_nothing_is_refused() {
    lie(|header| header.tag ^= 2, "which is not outstanding");
    lie(|header| header.tag |= 1 << 18, "which is not outstanding");
    lie(|header| header.tag = u32::MAX, "was not sent");
}

#[test]
fn a_response_that_frees_its_slot_too_early_is_refused() {
    lie(|header| header.last = true, "which has 2 left");
}

#[test]
fn a_refusal_longer_than_texts_may_be_is_refused() {
    let change = |header: &mut ResponseHeader| {
        header.status = Status::Config;
        header.bytes = 1025;
    };
    lie(change, "instead of 0 to 1024");
}

#[test]
fn a_slot_that_is_not_freed_by_its_last_response_is_a_lie() {
    let (mut world, mut answers) = asked();
    let second = RESPONSE_BYTES + 2 * ROW_BYTES;
    answers[second + 2] = 0;
    assert_lie(
        receive(&mut world, &answers),
        "claims that it is not the last of slot",
    );
}

#[test]
fn a_second_answer_is_refused() {
    let (mut world, answers) = asked();
    receive(&mut world, &answers).expect("the shard answers well");
    assert_lie(receive(&mut world, &answers), "which is not outstanding");
}

/// Every bit of the header, but for the version, which is anything.
#[test]
fn no_bit_of_a_header_can_be_wrong_without_notice() {
    for bit in 0..16 * 8 {
        let (mut world, mut answers) = asked();
        answers[bit / 8] ^= 1 << (bit % 8);
        let outcome = receive(&mut world, &answers);
        world.take_ends(0);
        let noticed = outcome.is_err_and(|error| error.class() == Class::Protocol);
        // A status that refuses with a text as long as the rows is one that the server may give.
        let refused = world
            .jobs
            .iter()
            .any(|job| matches!(job.result, Some(Err(_))));
        assert!(noticed || refused, "bit {bit}");
    }
}

/// Its memory would be handed back while it is still to be sent.
#[test]
fn an_answer_to_a_push_that_has_not_been_sent_is_refused() {
    let mut world = World::new(3, limits());
    world.publish("wide", 4, 1024);
    let client = world.connect();
    world.clients.push(client);
    let set = Some(crate::Operation::Set);
    world
        .submit(0, 0, vec![0, 1], set, true)
        .expect("it is inside");
    world.client_sends(0, 100);
    let header = ResponseHeader {
        status: Status::Ok,
        last: true,
        tag: 0,
        bytes: 0,
        version: 1,
    };
    assert_lie(
        receive(&mut world, &header.encode()),
        "is not sent completely",
    );
}

#[test]
fn answers_in_any_order_end_what_they_are_of() {
    let (mut world, answers) = asked();
    let each = RESPONSE_BYTES + 2 * ROW_BYTES;
    let mut turned = [&answers[each..], &answers[..each]].concat();
    turned[2] = 0;
    turned[each + 2] = 1;
    receive(&mut world, &turned).expect("any order will do");
    world.take_ends(0);
    for job in &world.jobs {
        assert_eq!(job.result, Some(Ok(Outcome::Moved { version: 0 })));
        assert_eq!(
            job.memory_in_order(ROW_BYTES),
            world.models[0].history[&0][8..24]
        );
    }
}

#[test]
fn a_peer_that_is_silent_is_asked_once_and_then_given_up() {
    let (mut world, answers) = asked();
    let requester = &mut world.clients[0].requester;
    let begun = world.now;
    let at = |seconds: f64| begun + Duration::from_secs_f64(seconds);
    assert_eq!(requester.expire(at(1.0)), Ok(Some(at(2.5))));
    assert!(!requester.wants_write());
    assert_eq!(requester.expire(at(2.5)), Ok(Some(at(5.0))));
    assert!(requester.wants_write(), "it asks whether the peer lives");
    world.now = at(3.0);
    world.client_sends(0, usize::MAX);
    world.shard_receives(0, usize::MAX).expect("it may ask");
    world.shard_sends(0, usize::MAX);
    assert_eq!(world.clients[0].down.len(), RESPONSE_BYTES);
    world
        .client_receives(0, usize::MAX)
        .expect("the answer to the question");
    let requester = &mut world.clients[0].requester;
    assert_eq!(requester.expire(at(5.0)), Ok(Some(at(5.5))));
    let silent = requester
        .expire(at(8.0))
        .expect_err("nothing came for 5 seconds");
    assert_eq!(silent.class(), Class::Broken);
    requester.break_off(silent.clone());
    world.take_ends(0);
    assert!(
        world
            .jobs
            .iter()
            .all(|job| job.result == Some(Err(silent.clone())))
    );
    receive(&mut world, &answers).expect("nobody listens");
    assert!(
        world
            .jobs
            .iter()
            .all(|job| job.memory.iter().all(|&byte| byte == UNTOUCHED))
    );
    let refused = world.submit(0, 0, vec![1], None, true);
    assert_eq!(refused, Err(silent));
}

#[test]
fn a_cancel_takes_back_what_waits_and_detaches_what_flies() {
    let mut world = World::new(
        3,
        Limits {
            slots: 1,
            entries_max: 1,
            ..limits()
        },
    );
    world.publish("a", 4, ROW_BYTES / 4);
    let client = world.connect();
    world.clients.push(client);
    let [flies, waits] = [0, 1].map(|row| world.submit(0, 0, vec![row], None, true));
    let (flies, waits) = (flies.expect("it is inside"), waits.expect("it is inside"));
    world.client_sends(0, usize::MAX);
    world.cancel(flies);
    world.cancel(waits);
    let back = |world: &World| [flies, waits].map(|job| world.jobs[job].keeper_back);
    assert_eq!(back(&world), [false, true]);
    let again = world.jobs[flies].ticket.expect("submitted");
    let again = world.clients[0].requester.cancel(again);
    assert_eq!(again, Canceled::Gone);
    world.drain();
    assert_eq!(back(&world), [true, true]);
}

#[test]
fn names_are_looked_up_with_those_near_an_unknown_one() {
    let mut world = World::new(3, limits());
    world.publish("emb/0", 4, 2);
    let client = world.connect();
    world.clients.push(client);
    let requester = &mut world.clients[0].requester;
    assert!(requester.look_up(&[], 0).is_err());
    assert!(requester.look_up(&[""], 0).is_err());
    requester
        .look_up(&["emb/0", "emb/1"], 9)
        .expect("they can be names");
    world.client_sends(0, usize::MAX);
    world
        .shard_receives(0, usize::MAX)
        .expect("it keeps to the protocol");
    world.shard_sends(0, usize::MAX);
    world
        .client_receives(0, usize::MAX)
        .expect("it keeps to the protocol");
    let Some(End::Over {
        keeper: 9,
        result: Ok(Outcome::Names(names)),
        ..
    }) = world.clients[0].requester.take_end()
    else {
        panic!("it ends with names");
    };
    let found = names[0].as_ref().expect("it is there");
    assert_eq!(
        (found.key, found.rows(), found.row_bytes()),
        (world.models[0].key, 4, 8)
    );
    assert_eq!(
        names[1].as_ref().expect_err("it is not there").nearest,
        ["emb/0"]
    );
}
