//! What pulls and pushes allocate, at the link and at the server together: nothing for each.
#![cfg(not(loom))]

#[path = "../stream/connect.rs"]
#[allow(dead_code)] // of what the other tests use
mod connect;
#[path = "../../../blockio/tests/sys/counting.rs"]
#[allow(unsafe_code)]
mod counting;
#[path = "../stream/sys.rs"]
#[allow(dead_code)] // as above
mod sys;

use std::sync::Arc;

use forebay_blockio::{BlockFile, Mode};
use forebay_tensor::stream::{Batch, Options};
use forebay_tensor::{Description, FileRows, Number, Operation, Rows};

use connect::{
    Handle, Kept, TestLink, TestServer, assert_well, finish, fresh_path, link, numbers, places,
    publish, server_at,
};
use counting::{Counting, allocations};

#[global_allocator]
static HEAP: Counting = Counting;

/// Of a batch at most, for its lists and the server's.
const FOR_A_BATCH: u64 = 32;

/// Allocations of one batch, once everything is warm.
fn of_batch(link: &TestLink, kept: &Kept, works: &[forebay_tensor::stream::Work]) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..15 {
        let memory = kept.clone();
        let before = allocations();
        let batch = Batch::new(memory, works.len());
        link.begin(&batch, works.iter().copied(), None)
            .expect("begun");
        finish(link, &batch);
        assert_well(&batch);
        drop(batch);
        least = least.min(allocations() - before);
    }
    least
}

/// Rows of a file, read by the page cache or not; the file itself is gone already.
fn publish_file(server: &TestServer, (rows, row_bytes): (u64, u64)) -> Handle {
    let path = fresh_path();
    let bytes = usize::try_from(rows * row_bytes).expect("fits");
    std::fs::write(&path, vec![7; bytes]).expect("written");
    let file = BlockFile::open(&path, Mode::Read, false).expect("opened");
    std::fs::remove_file(&path).expect("it was there");
    let description = Description {
        dtype: numbers(Number::Unsigned, 1),
        shape: vec![rows, row_bytes],
    };
    let at = FileRows {
        offset: 0,
        stride_bytes: row_bytes,
        first: 0,
        checksums: false,
    };
    let published = server.publish_file("file", description, (file, at));
    Handle {
        key: published.expect("runs").expect("published"),
        rows,
        row_bytes,
        memory: sys::Memory::zeros(0),
    }
}

#[test]
fn no_pull_and_no_push_allocates() {
    for (address, listening) in places() {
        let server = server_at(listening, Options::default());
        let link = link(&address);
        let (handle, _) = publish(&server, "tensor", 4096, 4096);
        for count in [1, 16, 1000] {
            let (outs, pulls): (Vec<_>, Vec<_>) = (0..count).map(|at| handle.slice(at, 2)).unzip();
            let pulled = of_batch(&link, &outs, &pulls);
            assert!(pulled <= FOR_A_BATCH, "{count} pulls: {pulled} allocations");
            let pushes: Vec<_> = (0..count)
                .zip(&outs)
                .map(|(first, values)| {
                    handle.push(Rows::Slice { first, count: 2 }, values, Operation::Set)
                })
                .collect();
            let sending = of_batch(&link, &outs, &pushes);
            assert!(
                sending <= FOR_A_BATCH,
                "{count} pushes: {sending} allocations"
            );
        }
        let filed = publish_file(&server, (4096, 4096));
        for count in [1, 16, 1000] {
            let (outs, pulls): (Vec<_>, Vec<_>) =
                (0..count).map(|at| filed.slice(at * 4, 2)).unzip();
            let read = of_batch(&link, &outs, &pulls);
            assert!(
                read <= FOR_A_BATCH,
                "{count} pulls of a file: {read} allocations"
            );
        }
        let (out, long) = handle.slice(0, 4096);
        let kept = vec![Arc::clone(&out)];
        let pulled = of_batch(&link, &kept, &[long]);
        assert!(pulled <= FOR_A_BATCH, "16 pieces: {pulled} allocations");
    }
}
