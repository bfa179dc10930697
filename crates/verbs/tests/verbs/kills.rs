//! A peer that is killed or stopped at some step: what is pending ends, soon, and its memory comes back.
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use forebay_tensor::Error;
use forebay_tensor::fabric::FabricPull;
use forebay_verbs::{Arrival, Catalog, Exposed, Puller, Registering};

use crate::peer::{Role, TENSOR, TENSOR_BYTES, start};
use crate::support::{PATIENCE, Place, holds, next, patience};

const SLOTS: u32 = 8;

/// Fill all slots with pulls, each into a block of its own.
fn fill_slots(place: &Place, puller: &mut Puller, bytes: usize) -> usize {
    let mut posted = 0;
    while puller.has_free_slot() {
        let pull = FabricPull {
            token: posted as u64,
            tensor: TENSOR,
            first: 0,
            rows: bytes as u64,
            into: place.block(bytes, 99),
            at: 0,
            bytes,
        };
        if puller.pull(pull).is_err() {
            break;
        }
        posted += 1;
    }
    posted
}

/// Wait for the connection's end, with what still arrives before it.
fn end_of(puller: &mut Puller, arrivals: &mut Vec<Arrival>) -> Error {
    let begun = Instant::now();
    loop {
        if let Err(error) = puller.wait(arrivals, Some(patience())) {
            assert!(begun.elapsed() < PATIENCE, "the end came too late");
            return error;
        }
        assert!(begun.elapsed() < PATIENCE, "the end did not come");
    }
}

/// All that is pending ends, with rows that are right or with the error, and the blocks come back.
fn all_end(
    place: &Place,
    mut puller: Puller,
    arrivals: Vec<Arrival>,
    pending: usize,
    bytes_each: usize,
) {
    let mut ends: Vec<_> = arrivals
        .into_iter()
        .filter_map(|arrival| puller.settle(arrival))
        .collect();
    ends.extend(puller.break_off(Error::Broken {
        why: "not the first reason".to_owned(),
    }));
    assert_eq!(ends.len(), pending, "each ends once");
    for end in &ends {
        match &end.result {
            Ok(()) => {
                let got = end.into.as_ref().expect("not cancelled");
                assert!(holds(got, 0..bytes_each, 0, 0));
            }
            Err(error) => {
                assert!(matches!(error, Error::Broken { why } if why != "not the first reason"));
            }
        }
    }
    drop((ends, puller));
    assert_eq!(place.region.stats().expect("owner").blocks, 0);
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn an_owner_that_is_killed_before_it_looks_at_requests_ends_them_all() {
    let place = Place::new("requester");
    let (mut peer, stream) = start(Role::Silent(SLOTS));
    let mut puller = place
        .puller(stream, SLOTS, Registering::Once)
        .expect("connected");
    let pending = fill_slots(&place, &mut puller, 16_384);
    assert_eq!(pending, SLOTS as usize);
    peer.kill();
    let mut arrivals = Vec::new();
    end_of(&mut puller, &mut arrivals);
    all_end(&place, puller, arrivals, pending, 16_384);
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn an_owner_that_is_killed_while_it_answers_ends_what_it_has_not_answered() {
    for answered in [0, 3, 20] {
        let place = Place::new("requester");
        let (mut peer, stream) = start(Role::Owner(SLOTS, Registering::Once));
        let mut puller = place
            .puller(stream, SLOTS, Registering::Once)
            .expect("connected");
        let mut pending = fill_slots(&place, &mut puller, 65_536);
        let mut arrivals = Vec::new();
        let mut seen = 0;
        while seen < answered {
            puller
                .wait(&mut arrivals, Some(patience()))
                .expect("connected");
            for arrival in arrivals.drain(..) {
                let end = puller.settle(arrival).expect("not broken off");
                assert_eq!(end.result, Ok(()));
                seen += 1;
                pending -= 1;
            }
            pending += fill_slots(&place, &mut puller, 65_536);
        }
        peer.kill();
        end_of(&mut puller, &mut arrivals);
        all_end(&place, puller, arrivals, pending, 65_536);
    }
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn an_owner_that_is_killed_before_the_first_pull_or_during_reads_ends_the_connection() {
    let place = Place::new("requester");
    let (mut peer, stream) = start(Role::Owner(1, Registering::Once));
    let mut puller = place
        .puller(stream, 1, Registering::Once)
        .expect("connected");
    peer.kill();
    let why = end_of(&mut puller, &mut Vec::new());
    assert!(matches!(why, Error::Broken { .. }), "{why:?}");
    drop(puller);

    let (mut peer, stream) = start(Role::Owner(1, Registering::Once));
    let mut puller = place
        .puller(stream, 1, Registering::Once)
        .expect("connected");
    let note = place.region.allocate(Exposed::BYTES).expect("room");
    puller.expose(1, TENSOR, note).expect("posted");
    let exposed = Exposed::of(
        &next(&mut puller)
            .expect("answered")
            .into
            .expect("not cancelled"),
    );
    let block = place.block(TENSOR_BYTES, 3);
    peer.kill();
    for token in 0..16 {
        let read = puller.read(token, &exposed, 0, (block.clone(), 0, TENSOR_BYTES));
        assert!(read.is_ok() || token > 0, "{read:?}");
    }
    end_of(&mut puller, &mut Vec::new());
    drop((puller, block));
    assert_eq!(place.region.stats().expect("owner").blocks, 0);
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn an_owner_that_stops_is_cut_off_at_the_deadline() {
    let place = Place::new("requester");
    let (peer, stream) = start(Role::Owner(SLOTS, Registering::Once));
    let mut puller = place
        .puller(stream, SLOTS, Registering::Once)
        .expect("connected");
    peer.stop();
    let pending = fill_slots(&place, &mut puller, 16_384);
    let (limit, begun) = (Duration::from_millis(300), Instant::now());
    let mut arrivals = Vec::new();
    while begun.elapsed() < limit {
        puller
            .wait(&mut arrivals, Some(begun + limit))
            .expect("connected");
    }
    let silent = begun.elapsed();
    let ends = puller.break_off(Error::Silent { silent, limit });
    assert_eq!(ends.len() + arrivals.len(), pending);
    assert!(
        ends.iter()
            .all(|end| matches!(end.result, Err(Error::Silent { .. })))
    );
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn a_requester_that_is_killed_while_rows_are_on_their_way_gives_the_owner_its_memory_back() {
    for served in [0, 10] {
        let place = Place::new("owner");
        let (mut peer, stream) = start(Role::Requester(SLOTS));
        let mut responder = place
            .responder(stream, SLOTS, Registering::Once)
            .expect("connected");
        let mut catalog = Catalog::default();
        let key = catalog
            .publish(place.block(TENSOR_BYTES, 0), 1)
            .expect("published");
        assert_eq!(key, TENSOR);
        let mut seen = 0;
        while seen < served {
            seen += responder
                .wait(&catalog, Some(patience()))
                .expect("connected");
        }
        peer.kill();
        let begun = Instant::now();
        while responder.wait(&catalog, Some(patience())).is_ok() {
            assert!(begun.elapsed() < PATIENCE, "the end did not come");
        }
        assert!(responder.broken().is_some());
        drop(responder);
        let mut memory = catalog.drop_tensor(key).expect("published");
        assert!(memory.bytes_mut().is_some(), "something still sends it");
    }
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn a_peer_that_goes_during_the_set_up_leaves_nothing_behind() {
    let place = Place::new("requester");
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    drop(theirs);
    let refused = place.puller(ours, SLOTS, Registering::Once);
    assert!(matches!(refused, Err(Error::Broken { .. })), "{refused:?}");
    assert_eq!(place.region.stats().expect("owner").blocks, 0);
}

#[test]
#[ignore = "needs an RDMA device: make test-verbs"]
fn two_requesters_that_meet_are_told_so() {
    let place = Place::new("requester");
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let met = thread::scope(|scope| {
        let other = scope.spawn(|| place.puller(theirs, SLOTS, Registering::Once));
        let puller = place.puller(ours, SLOTS, Registering::Once);
        [puller, other.join().expect("no panic")]
    });
    let told = |end: &Result<Puller, Error>| matches!(end, Err(Error::Protocol { .. }));
    assert!(met.iter().all(told), "{met:?}");
}
