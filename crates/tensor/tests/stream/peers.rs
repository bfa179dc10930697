//! Many of them at once.
use std::sync::Arc;

use forebay_tensor::stream::Options;
use forebay_tensor::{Class, Operation, Rows};

use super::connect::{
    assert_well, begin, finish, greet, link, link_over, places, publish, publish_content, run,
    server, server_at,
};
use super::sys::Memory;

#[test]
fn every_peer_gets_its_own_answers() {
    for (address, listening) in places() {
        let server = server_at(listening, Options::default());
        let (handle, content) = publish(&server, "tensor", 1000, 512);
        let links: Vec<_> = (0..64).map(|_| link(&address)).collect();
        let batches: Vec<_> = links
            .iter()
            .zip(0u64..)
            .map(|(link, number)| {
                let (outs, works): (Vec<_>, Vec<_>) =
                    (0..20).map(|at| handle.slice(number * 10 + at, 7)).unzip();
                (outs.clone(), begin(link, outs, works))
            })
            .collect();
        for ((link, (outs, batch)), number) in links.iter().zip(&batches).zip(0..) {
            finish(link, batch);
            assert_well(batch);
            for (out, at) in outs.iter().zip(0..) {
                let from = (number * 10 + at) * 512;
                assert!(out.content() == content[from..from + 7 * 512]);
            }
        }
        assert_eq!(server.counters().peers, 64);
        drop(links);
        while server.counters().peers > 0 {
            std::thread::yield_now();
        }
        assert_eq!(server.counters().broken, 0, "{:?}", server.counters());
    }
}

#[test]
fn threads_share_a_link() {
    let (server, address) = server();
    let link = link(&address);
    let (handle, content) = publish(&server, "tensor", 1000, 64);
    std::thread::scope(|scope| {
        for number in 0..6u64 {
            let (link, handle, content) = (&link, &handle, &content);
            scope.spawn(move || {
                for round in 0..200 {
                    let first = (number * 131 + round * 17) % 990;
                    let (out, work) = handle.slice(first, 10);
                    assert_well(&run(link, vec![Arc::clone(&out)], vec![work]));
                    let from = usize::try_from(first).expect("fits") * 64;
                    assert!(out.content() == content[from..from + 640]);
                }
            });
        }
    });
    assert!(link.is_open());
}

#[test]
fn additions_of_many_peers_are_all_there() {
    let (server, address) = server();
    let handle = publish_content(&server, "sum", &[0; 256], (16, 16));
    let ones = Memory::new(&[1; 256]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (address, handle, ones) = (&address, &handle, &ones);
            scope.spawn(move || {
                let link = link(address);
                let all = Rows::Slice {
                    first: 0,
                    count: 16,
                };
                for _ in 0..25 {
                    let work = handle.push(all, ones, Operation::Add);
                    assert_well(&run(&link, vec![Arc::clone(ones)], vec![work]));
                }
            });
        }
    });
    assert_eq!(handle.memory.content(), [100; 256]);
}

#[test]
fn a_full_server_turns_peers_away_with_the_reason() {
    let [_, (address, listening)] = places();
    let mut options = Options::default();
    options.limits.peers_max = 2;
    let server = server_at(listening, options);
    let held = [greet(&address, 16), greet(&address, 16)];
    assert!(held.iter().all(Result::is_ok));
    let refused = greet(&address, 16).map(drop).expect_err("full");
    assert_eq!(refused.class(), Class::Limit);
    assert!(refused.to_string().contains("max_peers"), "{refused}");
    drop(held);
    while server.counters().peers > 0 {
        std::thread::yield_now();
    }
    assert!(greet(&address, 16).is_ok());
}

#[test]
fn slots_are_granted_up_to_what_the_server_has() {
    let [_, (address, listening)] = places();
    let mut options = Options::default();
    options.limits.slots = 32;
    options.note = b"chunks".to_vec();
    let server = server_at(listening, options);
    for (asked, granted) in [(1, 1), (32, 32), (1024, 32)] {
        let (_, welcome) = greet(&address, asked).expect("welcome");
        assert_eq!(welcome.slots, granted);
        assert_eq!(welcome.incarnation, server.incarnation());
        assert_eq!(welcome.note, b"chunks");
    }
}

#[test]
fn a_slot_that_was_not_granted_is_not_served() {
    let (server, address) = server();
    let (handle, _) = publish(&server, "tensor", 16, 64);
    let (wire, welcome) = greet(&address, 1).expect("welcome");
    let liar = link_over(wire, &welcome, |limits| {
        limits.slots = 2;
        limits.entries_max = 1;
    });
    let (outs, works): (Vec<_>, Vec<_>) = (0..2).map(|at| handle.slice(at, 1)).unzip();
    let asked = begin(&liar, outs, works);
    finish(&liar, &asked);
    assert!(!liar.is_open());
    let counters = server.counters();
    assert_eq!((counters.peers, counters.broken), (0, 1), "{counters:?}");
}

#[test]
fn a_peer_that_takes_nothing_does_not_hold_up_others() {
    let (server, address) = server();
    let (handle, content) = publish(&server, "tensor", 16, 1 << 18);
    let (greedy, other) = (link(&address), link(&address));
    let (outs, works): (Vec<_>, Vec<_>) = (0..16).map(|_| handle.slice(0, 16)).unzip();
    let asked = begin(&greedy, outs, works); // and nobody waits for it
    for _ in 0..20 {
        let (out, work) = handle.slice(3, 1);
        assert_well(&run(&other, vec![Arc::clone(&out)], vec![work]));
        assert!(out.content() == content[3 << 18..4 << 18]);
    }
    finish(&greedy, &asked);
    assert_well(&asked);
}
