//! Rows there and back.
use std::sync::Arc;

use forebay_tensor::stream::Options;
use forebay_tensor::{Description, Number, Operation, Rows, Words};

use super::connect::{
    Handle, assert_well, begin, finish, link, link_with, numbers, places, publish, run, server,
    server_at,
};
use super::sys::Memory;

fn part(content: &[u8], handle: &Handle, first: u64, count: u64) -> Vec<u8> {
    let at = |row: u64| usize::try_from(row * handle.row_bytes).expect("fits");
    content[at(first)..at(first + count)].to_vec()
}

#[test]
fn pulls_of_many_sizes_bring_what_the_tensor_holds() {
    for (address, listening) in places() {
        let server = server_at(listening, Options::default());
        let link = link(&address);
        for (rows, row_bytes) in [(1, 1), (1000, 37), (64, 4096), (9, 131_072), (5, 1 << 20)] {
            let (handle, content) = publish(&server, "tensor", rows, row_bytes);
            for (first, count) in [(0, 1), (rows / 2, rows - rows / 2), (0, rows), (rows, 0)] {
                let (out, work) = handle.slice(first, count);
                assert_well(&run(&link, vec![Arc::clone(&out)], vec![work]));
                let wanted = part(&content, &handle, first, count);
                assert!(
                    out.content() == wanted,
                    "{rows} x {row_bytes}: {count} rows"
                );
            }
        }
    }
}

#[test]
fn a_pull_longer_than_a_piece_and_than_the_grant_arrives_whole() {
    let [(address, listening), _] = places();
    let mut options = Options::default();
    options.limits.grant_bytes = 3 << 20;
    let server = server_at(listening, options);
    let link = link_with(&address, |limits| limits.piece_bytes = 100_000);
    let (handle, content) = publish(&server, "long", 700, 10_007);
    let (out, work) = handle.slice(1, 698);
    assert_well(&run(&link, vec![Arc::clone(&out)], vec![work]));
    assert!(out.content() == part(&content, &handle, 1, 698));
}

#[test]
fn sixteen_in_flight_end_each_with_its_own_rows() {
    for (address, listening) in places() {
        let server = server_at(listening, Options::default());
        let link = link_with(&address, |limits| limits.entries_max = 1);
        let (handle, content) = publish(&server, "tensor", 4096, 64);
        for round in 0..50u64 {
            let asked: Vec<(u64, u64)> = (0..16)
                .map(|at| ((round * 37 + at * 101) % 4000, 1 + at * 6))
                .collect();
            let (outs, works): (Vec<_>, Vec<_>) = asked
                .iter()
                .map(|&(first, count)| handle.slice(first, count))
                .unzip();
            assert_well(&run(&link, outs.clone(), works));
            for (out, &(first, count)) in outs.iter().zip(&asked) {
                assert!(out.content() == part(&content, &handle, first, count));
            }
        }
    }
}

#[test]
fn rows_by_number_come_in_the_order_asked_for_and_twice_where_asked_twice() {
    let (server, address) = server();
    let link = link(&address);
    let (handle, content) = publish(&server, "tensor", 500, 24);
    let asked: Vec<u64> = vec![499, 0, 7, 7, 250, 0];
    let words: Vec<u8> = asked.iter().flat_map(|row| row.to_ne_bytes()).collect();
    let (indices, out) = (Memory::new(&words), Memory::zeros(asked.len() * 24));
    let work = handle.pull(Rows::Indices(Words::new(indices.span())), &out);
    let kept = vec![Arc::clone(&out), Arc::clone(&indices)];
    assert_well(&run(&link, kept, vec![work]));
    let wanted: Vec<u8> = asked
        .iter()
        .flat_map(|&row| part(&content, &handle, row, 1))
        .collect();
    assert_eq!(out.content(), wanted);
}

#[test]
fn pushes_set_and_add_and_raise_the_version() {
    for (address, listening) in places() {
        let server = server_at(listening, Options::default());
        let link = link(&address);
        let (handle, mut content) = publish(&server, "tensor", 64, 16);
        let values = Memory::new(&[3; 32]);
        let rows = Rows::Slice { first: 5, count: 2 };
        for operation in [Operation::Set, Operation::Add] {
            let work = handle.push(rows, &values, operation);
            let pushed = run(&link, vec![Arc::clone(&values)], vec![work]);
            assert_well(&pushed);
            for byte in &mut content[80..112] {
                *byte = match operation {
                    Operation::Set => 3,
                    Operation::Add => byte.wrapping_add(3),
                };
            }
            let (out, work) = handle.slice(0, 64);
            let pulled = run(&link, vec![Arc::clone(&out)], vec![work]);
            assert_eq!(out.content(), content);
            let versions = [&pushed, &pulled].map(|batch| {
                let mut found = 0;
                batch.versions(&mut |_, version| found = version);
                found
            });
            assert_eq!(versions[0], versions[1]);
            assert!(
                handle.memory.content() == content,
                "it lies in the owner's memory"
            );
        }
    }
}

#[test]
fn a_long_push_arrives_whole_while_another_is_under_way() {
    let (server, address) = server();
    let (one, other) = (link(&address), link(&address));
    let (first, _) = publish(&server, "first", 64, 100_000);
    let (second, _) = publish(&server, "second", 64, 100_000);
    let values = Memory::new(
        &(0..6_400_000u32)
            .map(|at| (at % 253) as u8)
            .collect::<Vec<_>>(),
    );
    let all = Rows::Slice {
        first: 0,
        count: 64,
    };
    let pushes = [(&one, &first), (&other, &second)].map(|(link, handle)| {
        let work = handle.push(all, &values, Operation::Set);
        (link, begin(link, vec![Arc::clone(&values)], vec![work]))
    });
    for (link, batch) in &pushes {
        finish(link, batch);
        assert_well(batch);
    }
    assert!(first.memory.content() == values.content());
    assert!(second.memory.content() == values.content());
}

#[test]
fn what_the_owner_writes_is_in_the_next_pull() {
    let (server, address) = server();
    let link = link(&address);
    let (handle, _) = publish(&server, "tensor", 8, 8);
    let values = Memory::new(&[9; 8]);
    let (key, lent) = (handle.key, Arc::clone(&values));
    let version = server
        .run(move |shard| {
            let row = Rows::Slice { first: 3, count: 1 };
            shard.write(key, row, Operation::Set, lent.span())
        })
        .expect("runs")
        .expect("written");
    let (out, work) = handle.slice(3, 1);
    let batch = run(&link, vec![Arc::clone(&out)], vec![work]);
    assert_eq!(out.content(), [9; 8]);
    batch.versions(&mut |_, found| assert_eq!(found, version));
}

#[test]
fn names_tell_ids_dtypes_and_shapes_and_the_nearest_names() {
    let (server, address) = server();
    let link = link(&address);
    let memory = Memory::zeros(48);
    let (kept, description) = (
        Arc::clone(&memory),
        Description {
            dtype: numbers(Number::Float, 4),
            shape: vec![3, 2, 2],
        },
    );
    let told = description.clone();
    let key = server.run(move |shard| {
        let published = shard.publish("weights", told, kept.span(), Arc::clone(&kept));
        published.map_err(|(error, _)| error)
    });
    let key = key.expect("runs").expect("published");
    let batch = link
        .look_up(Vec::new(), &["weights", "weihgts"], None, None)
        .expect("asked");
    finish(&link, &batch);
    let meanings = batch.take_meanings().expect("known");
    let meaning = meanings[0].as_ref().expect("it is there");
    assert_eq!((meaning.key, &meaning.description), (key, &description));
    let unknown = meanings[1].as_ref().expect_err("it is not");
    assert_eq!(unknown.nearest, ["weights"]);
}
