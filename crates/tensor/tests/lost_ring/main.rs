//! A server whose rings are gone: pulls of rows of files fail from then on, and nothing else does.
//!
//! The one test of this program, because it looks for rings among all descriptors of the process.
#![cfg(not(loom))]

#[path = "../stream/connect.rs"]
#[allow(dead_code)] // of what the other tests use
mod connect;
mod over;
#[path = "../stream/sys.rs"]
#[allow(dead_code)] // as above
mod sys;

use std::fs::{self, File};
use std::sync::Arc;

use forebay_blockio::{BlockFile, Mode};
use forebay_tensor::stream::{StreamError, Work};
use forebay_tensor::{Class, Description, FileRows, Number, Rows, Words};

use connect::{Handle, assert_well, failure, fresh_path, link, numbers, publish, run, server};
use over::sys::put_over;
use sys::Memory;

const ROW_BYTES: u64 = 512;
const ROWS: u64 = 400;

/// Descriptors that are rings.
fn rings() -> Vec<i32> {
    let all = fs::read_dir("/proc/self/fd").expect("every Linux has it");
    let rings = all.filter_map(|entry| {
        let entry = entry.ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        let is_ring = target.to_str()?.contains("[io_uring]");
        is_ring.then(|| entry.file_name().to_str()?.parse().ok())?
    });
    rings.collect()
}

/// Every other row, so that each is a read of its own.
fn scattered(handle: &Handle, count: u64) -> (Vec<Arc<Memory>>, Work) {
    let words: Vec<u8> = (0..count).flat_map(|row| (row * 2).to_ne_bytes()).collect();
    let bytes = usize::try_from(count * ROW_BYTES).expect("fits");
    let (indices, out) = (Memory::new(&words), Memory::zeros(bytes));
    let work = handle.pull(Rows::Indices(Words::new(indices.span())), &out);
    (vec![indices, out], work)
}

#[test]
fn pulls_of_rows_of_files_end_and_the_rest_goes_on() {
    let path = fresh_path();
    let bytes = usize::try_from(ROWS * ROW_BYTES).expect("fits");
    fs::write(&path, vec![7; bytes]).expect("written");
    let (server, address) = server();
    let link = link(&address);
    let file = BlockFile::open(&path, Mode::Read, false).expect("opened");
    fs::remove_file(&path).expect("it is open");
    let description = Description {
        dtype: numbers(Number::Unsigned, 1),
        shape: vec![ROWS, ROW_BYTES],
    };
    let rows = FileRows {
        offset: 0,
        stride_bytes: ROW_BYTES,
        first: 0,
        checksums: false,
    };
    let key = server
        .publish_file("file", description, (file, rows))
        .expect("runs")
        .expect("published");
    let handle = Handle {
        key,
        rows: ROWS,
        row_bytes: ROW_BYTES,
        memory: Memory::zeros(0),
    };
    let (held, content) = publish(&server, "held", 10, 64);
    // By the ring of the server's thread, and by that of the I/O thread.
    for count in [3, 150] {
        let (kept, work) = scattered(&handle, count);
        let out = Arc::clone(&kept[1]);
        assert_well(&run(&link, kept, vec![work]));
        assert!(out.content().iter().all(|&byte| byte == 7));
    }
    let null = File::open("/dev/null").expect("every Linux has it");
    for ring in rings() {
        put_over(ring, &null);
    }
    for count in [150, 3, 150, 3] {
        let (kept, work) = scattered(&handle, count);
        let batch = run(&link, kept, vec![work]);
        match failure(&batch, 0) {
            StreamError::Tensor { error, .. } => {
                assert_eq!(error.class(), Class::Broken, "{error}");
            }
            other => panic!("{other}"),
        }
        let (out, beside) = held.slice(2, 3);
        assert_well(&run(&link, vec![Arc::clone(&out)], vec![beside]));
        assert_eq!(out.content(), content[128..320]);
    }
    server.close();
}
