//! What two honest ends have with each other: messages for a pull, bytes for a request, answers that wait for the grant.
use super::world::World;
use crate::{End, Limits, Outcome};

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
        let asked = world.clients[0]
            .requester
            .look_up(&["a", "b"], number, None);
        asked.expect("they can be names");
    }
    let mut answered = Vec::new();
    for waiting in [2, 1, 0] {
        world.client_sends(0, usize::MAX);
        let requester = &world.clients[0].requester;
        assert_eq!(requester.outstanding_with_peer(), (1, 256));
        assert_eq!(requester.waiting(), waiting);
        assert!(!requester.wants_write(), "it has to wait");
        let received = world.shard_receives(0, usize::MAX);
        received.expect("it keeps to the protocol");
        world.shard_sends(0, usize::MAX);
        let received = world.client_receives(0, usize::MAX);
        received.expect("it keeps to the protocol");
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
    let asked = world.clients[0].requester.look_up(&names, 7, None);
    asked.expect("they can be names");
    world.client_sends(0, usize::MAX);
    let received = world.shard_receives(0, usize::MAX);
    received.expect("it keeps to the protocol");
    world.shard_sends(0, usize::MAX);
    let received = world.client_receives(0, usize::MAX);
    received.expect("it keeps to the protocol");
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
