//! Rows come as they were, wherever and however many; what cannot be served is refused in words.
use std::time::{Duration, Instant};

use forebay_memory::Lease;
use forebay_tensor::fabric::FabricPull;
use forebay_tensor::{Class, Error, Key};
use forebay_verbs::{Catalog, Puller, Registering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::support::{Place, answer, both, holds, next, patience, serving};

fn rows(
    token: u64,
    tensor: Key,
    (first, rows): (u64, u64),
    (into, at, bytes): (&Lease, usize, usize),
) -> FabricPull {
    FabricPull {
        token,
        tensor,
        first,
        rows,
        into: into.clone(),
        at,
        bytes,
    }
}

/// Pull each size into the middle of a block, and look at all of the block.
fn pull_sizes(registering: Registering) {
    let (requester, owner) = (Place::new("requester"), Place::new("owner"));
    let (mut puller, responder) = both(&requester, &owner, 1, registering);
    let mut catalog = Catalog::default();
    let key = catalog
        .publish(owner.block(4 << 20, 7), 1)
        .expect("published");
    let server = serving(responder, catalog);
    let sizes = [
        1,
        2,
        3,
        63,
        64,
        65,
        4095,
        4096,
        4097,
        16_384,
        65_537,
        1 << 20,
        (3 << 20) + 1,
    ];
    for (token, size) in sizes.into_iter().enumerate() {
        let (at, first, room) = (token * 5 + 1, token * 1000, size + 100);
        let block = requester.block(room, 200);
        let pull = rows(
            token as u64,
            key,
            (first as u64, size as u64),
            (&block, at, size),
        );
        puller.pull(pull).expect("posted");
        let end = next(&mut puller).expect("answered");
        assert_eq!((end.token, end.result), (token as u64, Ok(())));
        assert!(
            holds(&block, at..at + size, first, 7),
            "pull of {size} bytes"
        );
        assert!(holds(&block, 0..at, 0, 200), "before {size} bytes");
        assert!(
            holds(&block, at + size..room, at + size, 200),
            "after {size} bytes"
        );
    }
    drop(puller);
    assert!(matches!(
        server.join().expect("no panic"),
        Error::Broken { .. }
    ));
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn rows_of_every_size_come_as_they_were_and_nothing_beside_them_changes() {
    pull_sizes(Registering::Once);
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn memory_that_is_registered_for_a_transfer_gets_the_same_rows() {
    pull_sizes(Registering::PerTransfer);
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn ten_thousand_pulls_in_sixteen_slots_register_nothing() {
    const PULLS: usize = 10_000;
    let (requester, owner) = (Place::new("requester"), Place::new("owner"));
    let (mut puller, responder) = both(&requester, &owner, 16, Registering::Once);
    let mut catalog = Catalog::default();
    let key = catalog
        .publish(owner.block(1 << 17, 3), 256)
        .expect("published");
    let server = serving(responder, catalog);
    let blocks: Vec<_> = (0..4)
        .map(|_| requester.region.allocate(1 << 17).expect("room"))
        .collect();
    let registered = [
        requester.registry.registrations(),
        owner.registry.registrations(),
    ];
    let (mut posted, mut ended, mut arrivals) = (0_usize, 0, Vec::new());
    while ended < PULLS {
        while posted < PULLS && puller.has_free_slot() {
            // Slots come to other blocks now and then, so their windows move.
            let (block, row) = (&blocks[posted / 100 % 4], posted * 37 % 500);
            let into = (block, row * 256, 1024);
            puller
                .pull(rows(posted as u64, key, (row as u64, 4), into))
                .expect("posted");
            posted += 1;
        }
        puller
            .wait(&mut arrivals, Some(patience()))
            .expect("connected");
        for arrival in arrivals.drain(..) {
            let end = puller.settle(arrival).expect("not broken off");
            assert_eq!(end.result, Ok(()));
            let row = usize::try_from(end.token).expect("small") * 37 % 500;
            let got = end.into.expect("not cancelled");
            assert!(
                holds(&got, row * 256..row * 256 + 1024, row * 256, 3),
                "pull {}",
                end.token
            );
            ended += 1;
        }
    }
    assert_eq!(
        [
            requester.registry.registrations(),
            owner.registry.registrations()
        ],
        registered
    );
    drop(puller);
    server.join().expect("no panic");
    drop(blocks);
    let stats = requester.region.stats().expect("owner");
    assert_eq!(
        stats.blocks, 0,
        "a slot of a connection that is gone kept a block"
    );
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn what_cannot_be_served_is_refused_and_the_connection_stays() {
    let (requester, owner) = (Place::new("requester"), Place::new("owner"));
    let (mut puller, mut responder) = both(&requester, &owner, 2, Registering::Once);
    let mut catalog = Catalog::default();
    let key = catalog
        .publish(owner.block(1 << 16, 1), 64)
        .expect("published");
    let gone = Key {
        id: key.id,
        generation: key.generation + 1,
    };
    let block = requester.block(1 << 16, 2);
    for (tensor, which, bytes, class) in [
        (gone, (0, 1), 64, Class::Stale),
        (key, (1024, 1), 64, Class::OutOfRange),
        (key, (u64::MAX, 2), 128, Class::OutOfRange),
        (key, (0, 2), 64, Class::Config),
    ] {
        puller
            .pull(rows(9, tensor, which, (&block, 0, bytes)))
            .expect("posted");
        answer(&mut responder, &catalog).expect("answered");
        let end = next(&mut puller).expect("answered");
        assert_eq!(end.result.map_err(|error| error.class()), Err(class));
    }
    let outside = puller.pull(rows(9, key, (0, 1), (&block, (1 << 16) - 63, 64)));
    assert_eq!(outside.map_err(|error| error.class()), Err(Class::Config));
    puller
        .pull(rows(1, key, (1, 1), (&block, 0, 64)))
        .expect("posted");
    puller
        .pull(rows(2, key, (1, 1), (&block, 64, 64)))
        .expect("posted");
    let third = puller.pull(rows(3, key, (1, 1), (&block, 128, 64)));
    assert_eq!(third.map_err(|error| error.class()), Err(Class::Limit));
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn rows_that_are_being_sent_are_waited_for_and_requests_are_kept_meanwhile() {
    let (requester, owner) = (Place::new("requester"), Place::new("owner"));
    let (mut puller, mut responder) = both(&requester, &owner, 2, Registering::Once);
    let memory = owner.block(1 << 16, 1);
    let start = memory.as_ptr().as_ptr() as usize;
    let mut catalog = Catalog::default();
    let key = catalog.publish(memory, 64).expect("published");
    let block = requester.block(1 << 16, 2);
    let ask = |puller: &mut Puller, token, first| {
        let pull = rows(token, key, (first, 16), (&block, 0, 1024));
        puller.pull(pull).expect("posted");
    };
    ask(&mut puller, 1, 16);
    answer(&mut responder, &catalog).expect("answered");
    // Its completion has not been taken, so these bytes count as read by the device.
    assert!(responder.is_sending(start + 1024, 1) && responder.is_sending(start + 2047, 9));
    assert!(!responder.is_sending(start, 1024) && !responder.is_sending(start + 2048, 1));
    ask(&mut puller, 2, 0);
    responder.settle(start, 2048, patience()).expect("sent");
    assert!(!responder.is_sending(start, 1 << 16));
    // The second request came before or after that; either way the next turn answers it.
    let mut ends = Vec::new();
    while ends.len() < 2 {
        responder.turn(&catalog).expect("connected");
        let mut arrivals = Vec::new();
        let soon = Instant::now() + Duration::from_millis(1);
        puller.wait(&mut arrivals, Some(soon)).expect("connected");
        let settled = arrivals
            .into_iter()
            .filter_map(|arrival| puller.settle(arrival));
        ends.extend(settled.map(|end| (end.token, end.result)));
    }
    assert_eq!(ends, [(1, Ok(())), (2, Ok(()))]);
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn a_block_is_free_once_its_slots_have_left_it() {
    let (requester, owner) = (Place::new("requester"), Place::new("owner"));
    let (mut puller, mut responder) = both(&requester, &owner, 1, Registering::Once);
    let mut catalog = Catalog::default();
    let key = catalog
        .publish(owner.block(4096, 1), 64)
        .expect("published");
    let block = requester.block(4096, 2);
    let mut end = None;
    for token in 0..3 {
        puller
            .pull(rows(token, key, (0, 64), (&block, 0, 4096)))
            .expect("posted");
        answer(&mut responder, &catalog).expect("answered");
        end = Some(next(&mut puller).expect("answered"));
    }
    drop(block);
    let mut block = end.and_then(|end| end.into).expect("given back");
    assert!(block.bytes_mut().is_none(), "the owner has a key on it");
    assert_eq!(puller.release_keys(&block), Ok(1));
    let mut arrivals = Vec::new();
    while block.bytes_mut().is_none() {
        puller
            .wait(&mut arrivals, Some(patience()))
            .expect("connected");
    }
    assert!(arrivals.is_empty());
    assert!(holds(&block, 0..4096, 0, 1));
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn an_event_loop_drives_both_ends_by_their_descriptors() {
    let (requester, owner) = (Place::new("requester"), Place::new("owner"));
    let (mut puller, mut responder) = both(&requester, &owner, 4, Registering::Once);
    let mut catalog = Catalog::default();
    let key = catalog
        .publish(owner.block(1 << 16, 1), 64)
        .expect("published");
    let block = requester.block(1 << 16, 2);
    let (mut posted, mut ended, mut arrivals) = (0, 0, Vec::new());
    puller.turn(&mut arrivals).expect("connected");
    responder.turn(&catalog).expect("connected");
    while ended < 100 {
        while posted < 100 && puller.has_free_slot() {
            puller
                .pull(rows(posted, key, (0, 1024), (&block, 0, 1 << 16)))
                .expect("posted");
            posted += 1;
        }
        let mut watched = [
            PollFd::new(&puller, PollFlags::IN),
            PollFd::new(&responder, PollFlags::IN),
        ];
        let timeout = Timespec {
            tv_sec: 5,
            tv_nsec: 0,
        };
        assert!(
            poll(&mut watched, Some(&timeout)).expect("polled") > 0,
            "a completion made no event"
        );
        let [ours, theirs] = watched.map(|watched| watched.revents().contains(PollFlags::IN));
        if theirs {
            responder.turn(&catalog).expect("connected");
        }
        if ours {
            puller.turn(&mut arrivals).expect("connected");
        }
        ended += arrivals
            .drain(..)
            .filter_map(|arrival| puller.settle(arrival))
            .count();
    }
    assert!(holds(&block, 0..1 << 16, 0, 1));
}
