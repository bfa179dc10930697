//! Published tensors that the requester reads by itself.
use forebay_tensor::fabric::FabricPull;
use forebay_tensor::{Class, Error};
use forebay_verbs::{Catalog, Exposed, Registering};

use crate::support::{Place, answer, both, holds, next, patience, pattern, serving};
use crate::sys::fill;

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn a_published_tensor_is_read_without_its_owner() {
    let (requester, owner) = (Place::new("requester"), Place::new("owner"));
    let (mut puller, mut responder) = both(&requester, &owner, 2, Registering::Once);
    let mut catalog = Catalog::default();
    let key = catalog
        .publish(owner.block(1 << 20, 5), 64)
        .expect("published");
    let note = requester.region.allocate(Exposed::BYTES).expect("room");
    puller.expose(1, key, note).expect("posted");
    answer(&mut responder, &catalog).expect("answered");
    let end = next(&mut puller).expect("answered");
    assert_eq!(end.result, Ok(()));
    let exposed = Exposed::of(&end.into.expect("not cancelled"));
    assert_eq!(exposed.bytes, 1 << 20);
    let block = requester.region.allocate(1 << 20).expect("room");
    // The owner does nothing any more: nobody calls its end.
    for (from, size) in [
        (0, 1),
        (1, 4096),
        (999_999, 1000),
        (12_345, 65_537),
        (0, 1 << 20),
    ] {
        fill(&block, &pattern(0..1 << 20, 200));
        puller
            .read(2, &exposed, from as u64, (block.clone(), 0, size))
            .expect("posted");
        assert_eq!(next(&mut puller).expect("read").result, Ok(()));
        assert!(holds(&block, 0..size, from, 5), "{size} bytes from {from}");
        assert!(holds(&block, size..1 << 20, size, 200));
    }
    let outside = puller.read(3, &exposed, (1 << 20) - 63, (block.clone(), 0, 64));
    assert_eq!(outside.map_err(|error| error.class()), Err(Class::Config));

    let sixteen: Vec<_> = (0..16_usize).map(|at| at * 65_536).collect();
    fill(&block, &pattern(0..1 << 20, 200));
    for at in &sixteen {
        puller
            .read(
                *at as u64,
                &exposed,
                *at as u64,
                (block.clone(), *at, 65_536),
            )
            .expect("posted");
    }
    let mut arrivals = Vec::new();
    while arrivals.len() < sixteen.len() {
        puller
            .wait(&mut arrivals, Some(patience()))
            .expect("connected");
    }
    let ends: Vec<_> = arrivals
        .drain(..)
        .filter_map(|arrival| puller.settle(arrival))
        .collect();
    assert!(
        ends.iter()
            .map(|end| end.token)
            .eq(sixteen.iter().map(|at| *at as u64)),
        "in order"
    );
    assert!(holds(&block, 0..1 << 20, 0, 5));
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn a_tensor_that_was_withdrawn_cannot_be_read_any_more() {
    let (requester, owner) = (Place::new("requester"), Place::new("owner"));
    let (mut puller, mut responder) = both(&requester, &owner, 1, Registering::Once);
    let mut catalog = Catalog::default();
    let key = catalog
        .publish(owner.block(4096, 5), 64)
        .expect("published");
    let note = requester.region.allocate(Exposed::BYTES).expect("room");
    puller.expose(1, key, note).expect("posted");
    answer(&mut responder, &catalog).expect("answered");
    let exposed = Exposed::of(
        &next(&mut puller)
            .expect("answered")
            .into
            .expect("not cancelled"),
    );
    let mut memory = catalog.drop_tensor(key).expect("published");
    assert_eq!(responder.withdraw(key), Ok(true));
    while memory.bytes_mut().is_none() {
        responder
            .wait(&catalog, Some(patience()))
            .expect("connected");
    }
    let block = requester.block(4096, 9);
    puller
        .read(2, &exposed, 0, (block.clone(), 0, 4096))
        .expect("posted");
    let refused = next(&mut puller);
    assert!(matches!(refused, Err(Error::Broken { .. })), "{refused:?}");
    assert!(holds(&block, 0..4096, 0, 9));
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn more_tensors_than_may_be_exposed_at_once_are_refused_until_one_is_withdrawn() {
    let (requester, owner) = (Place::new("requester"), Place::new("owner"));
    let (mut puller, responder) = both(&requester, &owner, 1, Registering::Once);
    let mut catalog = Catalog::default();
    let keys: Vec<_> = (0..65)
        .map(|seed| {
            catalog
                .publish(owner.block(64, seed), 64)
                .expect("published")
        })
        .collect();
    let server = serving(responder, catalog);
    let mut note = requester.region.allocate(Exposed::BYTES).expect("room");
    for (at, key) in keys.into_iter().enumerate() {
        puller.expose(1, key, note).expect("posted");
        let end = next(&mut puller).expect("answered");
        let expected = if at < 64 { Ok(()) } else { Err(Class::Limit) };
        assert_eq!(
            end.result.map_err(|error| error.class()),
            expected,
            "tensor {at}"
        );
        note = end.into.expect("not cancelled");
    }
    let unknown = FabricPull {
        token: 2,
        tensor: forebay_tensor::Key {
            id: 65,
            generation: 1,
        },
        first: 0,
        rows: 1,
        into: note,
        at: 0,
        bytes: 24,
    };
    puller.pull(unknown).expect("posted");
    let end = next(&mut puller).expect("answered");
    assert_eq!(end.result.map_err(|error| error.class()), Err(Class::Stale));
    drop(puller);
    server.join().expect("no panic");
}
