//! What counts as a sign of life of a peer, at both ends, and what does not.
use std::time::{Duration, Instant};

use super::world::World;
use crate::{Error, Limits, Operation};

/// A client with a tensor of small rows and one of rows that are lent to the socket.
fn world() -> World {
    let mut world = World::new(3, Limits::default());
    world.publish("small", 4, 2);
    world.publish("wide", 4, 1024);
    let client = world.connect();
    world.clients.push(client);
    world
}

fn at(begun: Instant, seconds: f64) -> Instant {
    begun + Duration::from_secs_f64(seconds)
}

/// Pull a row, as far as the request is with the kernel.
fn ask(world: &mut World) {
    let pulled = world.submit(0, 0, vec![1], None, true);
    pulled.expect("it is inside");
    world.client_sends(0, usize::MAX);
}

fn expire(world: &mut World) -> Result<Option<Instant>, Error> {
    let now = world.now;
    world.clients[0].requester.expire(now)
}

fn is_silent(world: &mut World) -> bool {
    matches!(expire(world), Err(Error::Silent { .. }))
}

#[test]
fn a_peer_that_takes_a_part_now_and_then_is_not_silent() {
    let mut world = world();
    let begun = world.now;
    let pushed = world.submit(0, 1, vec![0, 1, 2], Some(Operation::Set), true);
    pushed.expect("it is inside");
    for seconds in [0.0, 4.0, 8.0] {
        world.now = at(begun, seconds);
        assert_eq!(world.client_sends(0, 100), 100);
        assert!(expire(&mut world).is_ok(), "it takes what it is sent");
    }
    world.now = at(begun, 12.0);
    assert_eq!(world.client_sends(0, 0), 0);
    assert_eq!(expire(&mut world), Ok(Some(at(begun, 13.0))));
    world.now = at(begun, 13.0);
    assert!(is_silent(&mut world), "it has taken nothing for 5 seconds");
}

/// The kernel takes the last bytes of a request whether anybody is there or not.
#[test]
fn a_request_that_is_taken_whole_is_no_sign_of_life() {
    let mut world = world();
    let begun = world.now;
    for seconds in [0.0, 2.0, 4.0] {
        world.now = at(begun, seconds);
        ask(&mut world);
    }
    world.now = at(begun, 5.0);
    assert!(is_silent(&mut world));
}

#[test]
fn to_receive_nothing_is_no_sign_of_life() {
    let mut world = world();
    let begun = world.now;
    ask(&mut world);
    world.now = at(begun, 4.0);
    assert_eq!(world.client_receives(0, usize::MAX), Ok(0));
    world.now = at(begun, 5.0);
    assert!(is_silent(&mut world));
}

/// The time for which a client asked for nothing is not its peer's silence.
#[test]
fn a_peer_is_silent_from_the_first_request_on() {
    let mut world = world();
    let begun = world.now;
    assert_eq!(expire(&mut world), Ok(None), "it owes nothing");
    world.now = at(begun, 60.0);
    assert_eq!(expire(&mut world), Ok(None), "it owes nothing");
    let pulled = world.submit(0, 0, vec![1], None, true);
    pulled.expect("it is inside");
    let mut spans = [crate::Span::EMPTY; 5];
    assert!(world.clients[0].requester.outgoing(&mut spans) > 0);
    assert_eq!(expire(&mut world), Ok(Some(at(begun, 62.5))));
    world.client_sends(0, usize::MAX);
    world.now = at(begun, 64.0);
    assert_eq!(expire(&mut world), Ok(Some(at(begun, 65.0))));
    world.drain();
    assert_eq!(expire(&mut world), Ok(None), "it has answered");
}

/// Half a request has come to the server, and then nothing.
#[test]
fn a_server_hears_bytes_and_not_that_there_are_none() {
    let mut world = world();
    let (begun, peer) = (world.now, world.clients[0].peer);
    world.shard.feed(peer, &[1], begun).expect("half a header");
    let received = world.shard.received(peer, 0, at(begun, 4.0));
    received.expect("nothing came");
    let silent = world.shard.expire(peer, at(begun, 5.0));
    assert!(matches!(silent, Err(Error::Silent { .. })));
}

/// A server whose client takes nothing of what it asked for.
#[test]
fn a_server_is_not_fooled_by_a_socket_that_took_nothing() {
    let mut world = world();
    let (begun, peer) = (world.now, world.clients[0].peer);
    let pulled = world.submit(0, 1, vec![0, 1, 2, 3], None, true);
    pulled.expect("it is inside");
    world.client_sends(0, usize::MAX);
    let received = world.shard_receives(0, usize::MAX);
    received.expect("it keeps to the protocol");
    world.now = at(begun, 4.0);
    assert_eq!(world.shard_sends(0, 0), 0);
    let silent = world.shard.expire(peer, at(begun, 5.0));
    assert!(matches!(silent, Err(Error::Silent { .. })));
}

/// Another peer may have its place.
#[test]
fn a_peer_that_is_gone_has_nothing_whoever_comes_after_it() {
    let mut world = world();
    let gone = world.clients[0].peer;
    world.shard.disconnect(gone);
    world.clients[0] = world.connect();
    assert_eq!(world.clients[0].peer.index(), gone.index());
    ask(&mut world);
    let received = world.shard_receives(0, usize::MAX);
    received.expect("it keeps to the protocol");
    let late = at(world.now, 60.0);
    let shard = &mut world.shard;
    assert!(!shard.wants_write(gone) && !shard.has_pending_output(gone) && shard.is_quiet(gone));
    let mut spans = [crate::Span::EMPTY; 5];
    assert_eq!(shard.outgoing(gone, &mut spans), 0);
    assert_eq!(shard.expire(gone, late), Ok(None));
    shard.disconnect(gone);
    let peer = world.clients[0].peer;
    assert!(shard.wants_write(peer) && shard.has_pending_output(peer) && !shard.is_quiet(peer));
    world.drain();
    assert_eq!(world.jobs[0].ends, 1);
    assert!(world.shard.is_quiet(peer) && !world.shard.has_pending_output(peer));
}
