//! What a peer does after it was cut off does not land.
use std::time::{Duration, Instant};

use forebay_tensor::Error;
use forebay_tensor::fabric::FabricPull;
use forebay_verbs::{Catalog, Registering, Responder};

use crate::support::{PATIENCE, Place, answer, both, holds, next, patience};

const BYTES: usize = 16_384;

fn late() -> Error {
    Error::Timeout {
        late: Duration::ZERO,
    }
}

/// Take the request and answer it, then see what becomes of the answer.
fn answer_late(
    responder: &mut Responder,
    catalog: &Catalog,
    deadline: Option<Instant>,
) -> Result<(), Error> {
    answer(responder, catalog).expect("answered");
    responder.wait(catalog, deadline).map(|_| ())
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn a_write_after_its_window_was_invalidated_is_refused_a_hundred_times_of_a_hundred() {
    let (requester, owner) = (Place::new("requester"), Place::new("owner"));
    let mut catalog = Catalog::default();
    let tensor = catalog
        .publish(owner.block(BYTES, 1), 1)
        .expect("published");
    let mut refused = 0;
    for seed in 0..100 {
        let registering = if seed % 10 == 0 {
            Registering::PerTransfer
        } else {
            Registering::Once
        };
        let (mut puller, mut responder) = both(&requester, &owner, 1, registering);
        let into = requester.block(BYTES, seed);
        let pull = FabricPull {
            token: 5,
            tensor,
            first: 0,
            rows: BYTES as u64,
            into,
            at: 0,
            bytes: BYTES,
        };
        puller.pull(pull).expect("posted");
        assert_eq!(puller.revoke(5, late()), Ok(true));
        let end = next(&mut puller).expect("revoked");
        assert_eq!(end.result, Err(late()));
        let end = end.into.expect("given back");
        let broken = answer_late(&mut responder, &catalog, Some(patience()));
        let text = broken.expect_err("the write was taken").to_string();
        assert!(text.contains("remote access error"), "{text}");
        assert!(holds(&end, 0..BYTES, 0, seed), "round {seed}");
        refused += 1;
    }
    println!("stale writes refused, memory untouched: {refused} of 100");
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn nothing_lands_after_the_queue_pair_was_put_in_error() {
    let (requester, owner) = (Place::new("requester"), Place::new("owner"));
    let (mut puller, mut responder) = both(&requester, &owner, 4, Registering::Once);
    let mut catalog = Catalog::default();
    let tensor = catalog
        .publish(owner.block(BYTES, 1), 1)
        .expect("published");
    let blocks: Vec<_> = (0..4).map(|seed| requester.block(BYTES, seed)).collect();
    let pull = |token: usize| FabricPull {
        token: token as u64,
        tensor,
        first: 0,
        rows: BYTES as u64,
        into: blocks[token].clone(),
        at: 0,
        bytes: BYTES,
    };
    for token in 0..4 {
        puller.pull(pull(token)).expect("posted");
    }
    // The requests are with the owner before the fence: their writes have completed.
    let mut arrivals = Vec::new();
    puller
        .wait(&mut arrivals, Some(patience()))
        .expect("connected");
    assert!(puller.cancel(3), "it was pending");
    assert_eq!(
        requester.region.stats().expect("owner").quarantined_blocks,
        1
    );
    let why = Error::Broken {
        why: "silent for too long".to_owned(),
    };
    let ends = puller.break_off(why.clone());
    assert_eq!(ends.len(), 4);
    assert!(ends.iter().all(|end| end.result == Err(why.clone())));
    assert!(ends[3].into.is_none(), "nobody waits for it");
    assert_eq!(
        requester.region.stats().expect("owner").quarantined_blocks,
        0
    );
    assert_eq!(puller.pull(pull(0)), Err(why.clone()));
    assert_eq!(puller.wait(&mut arrivals, Some(patience())), Err(why));
    // The owner's device goes on trying for seconds; a moment of it is enough to see that nothing lands.
    drop(answer_late(
        &mut responder,
        &catalog,
        Some(Instant::now() + Duration::from_millis(300)),
    ));
    for (seed, block) in blocks.iter().enumerate() {
        assert!(holds(block, 0..BYTES, 0, seed), "block {seed}");
    }
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn a_connection_that_is_dropped_with_keys_given_out_goes_at_once_and_frees_its_blocks() {
    let (requester, owner) = (Place::new("requester"), Place::new("owner"));
    let (mut puller, responder) = both(&requester, &owner, 16, Registering::Once);
    let mut catalog = Catalog::default();
    let tensor = catalog
        .publish(owner.block(BYTES, 1), 1)
        .expect("published");
    for token in 0..16 {
        let pull = FabricPull {
            token,
            tensor,
            first: 0,
            rows: BYTES as u64,
            into: requester.block(BYTES, 1),
            at: 0,
            bytes: BYTES,
        };
        puller.pull(pull).expect("posted");
    }
    let begun = Instant::now();
    drop(puller);
    drop(responder);
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!(requester.region.stats().expect("owner").blocks, 0);
    assert!(
        requester.region.trim().expect("owner") > 0,
        "a chunk was still named by something"
    );
}
