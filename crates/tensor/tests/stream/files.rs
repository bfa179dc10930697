//! Rows of files there, and why not.
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_blockio::{BlockFile, Mode, record_checksum};
use forebay_tensor::stream::{Options, StreamError, Work};
use forebay_tensor::{Class, Description, FileRows, Number, Operation, Rows, Words};

use super::connect::{
    Handle, TestLink, TestServer, assert_well, begin, failure, finish, fresh_path, link, link_with,
    numbers, places, publish, run, server, server_at,
};
use super::sys::Memory;

const HEAD: u64 = 4096;

/// A file of rows, which goes with it.
struct Table {
    path: PathBuf,
    content: Vec<u8>,
    rows: FileRows,
    row_bytes: u64,
}

impl Drop for Table {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.path);
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("fits")
}

impl Table {
    fn new(count: u64, row_bytes: u64, stride_bytes: u64, checksums: bool) -> Self {
        let path = fresh_path();
        let content: Vec<u8> = (0..size(count * row_bytes))
            .map(|at| (at * 31 + at / 251).to_le_bytes()[0])
            .collect();
        let mut bytes = vec![0xaa; size(HEAD)];
        for (row, number) in content.chunks_exact(size(row_bytes)).zip(0u64..) {
            let begin = bytes.len();
            bytes.extend_from_slice(row);
            if checksums {
                bytes.extend_from_slice(&record_checksum(row, &number.to_le_bytes()).to_le_bytes());
            }
            bytes.resize(begin + size(stride_bytes), 0xbb);
        }
        fs::write(&path, bytes).expect("written");
        Self {
            path,
            content,
            rows: FileRows {
                offset: HEAD,
                stride_bytes,
                first: 0,
                checksums,
            },
            row_bytes,
        }
    }

    fn count(&self) -> u64 {
        self.content.len() as u64 / self.row_bytes
    }

    /// Direct where the file system can.
    fn open(&self, direct: bool) -> BlockFile {
        BlockFile::open(&self.path, Mode::Read, direct)
            .or_else(|_| BlockFile::open(&self.path, Mode::Read, false))
            .expect("opened")
    }

    fn publish(&self, server: &TestServer, direct: bool) -> Handle {
        let description = Description {
            dtype: numbers(Number::Unsigned, 1),
            shape: vec![self.count(), self.row_bytes],
        };
        let key = server
            .publish_file("file", description, (self.open(direct), self.rows))
            .expect("runs")
            .expect("published");
        Handle {
            key,
            rows: self.count(),
            row_bytes: self.row_bytes,
            memory: Memory::zeros(0),
        }
    }

    fn of(&self, rows: impl IntoIterator<Item = u64>) -> Vec<u8> {
        let row = |row: u64| {
            let from = size(row * self.row_bytes);
            &self.content[from..from + size(self.row_bytes)]
        };
        rows.into_iter().flat_map(row).copied().collect()
    }
}

fn indexed(handle: &Handle, rows: &[u64]) -> (Arc<Memory>, Arc<Memory>, Work) {
    let words: Vec<u8> = rows.iter().flat_map(|row| row.to_ne_bytes()).collect();
    let (indices, out) = (
        Memory::new(&words),
        Memory::zeros(rows.len() * size(handle.row_bytes)),
    );
    let work = handle.pull(Rows::Indices(Words::new(indices.span())), &out);
    (indices, out, work)
}

fn pull(link: &TestLink, handle: &Handle, rows: &[u64]) -> Result<Vec<u8>, StreamError> {
    let (indices, out, work) = indexed(handle, rows);
    let batch = run(link, vec![indices, Arc::clone(&out)], vec![work]);
    match batch.first_failure() {
        None => Ok(out.content()),
        Some((index, _)) => Err(failure(&batch, index)),
    }
}

/// Row numbers that are neither sorted nor different.
fn scattered(seed: u64, count: u64, rows: u64) -> Vec<u64> {
    (0..count)
        .map(|at| (seed * 7919 + at * at * 31 + at * 104_729) % rows)
        .collect()
}

fn class_of(error: &StreamError) -> (Class, String) {
    match error {
        StreamError::Tensor { error, .. } => (error.class(), error.to_string()),
        other => panic!("{other}"),
    }
}

#[test]
fn pulls_bring_what_the_file_holds() {
    let shapes = [
        (300, 4096, 4096, false),
        (300, 4000, 4096, true),
        (500, 512, 512, false),
        (2000, 100, 100, false),
        (2000, 20, 24, true),
        (3, 3 << 19, 3 << 19, false),
    ];
    for (address, listening) in places() {
        let server = server_at(listening, Options::default());
        let link = link(&address);
        for (count, row_bytes, stride_bytes, checksums) in shapes {
            let table = Table::new(count, row_bytes, stride_bytes, checksums);
            let handle = table.publish(&server, stride_bytes % 512 == 0);
            for (first, rows) in [(0, 1), (1, count - 1), (0, count), (count, 0)] {
                let (out, work) = handle.slice(first, rows);
                assert_well(&run(&link, vec![Arc::clone(&out)], vec![work]));
                assert!(
                    out.content() == table.of(first..first + rows),
                    "{count} rows"
                );
            }
            let asked = scattered(3, 400.min((6 << 20) / row_bytes), count);
            let found = pull(&link, &handle, &asked).expect("read");
            assert!(found == table.of(asked), "{count} rows of {row_bytes}");
        }
    }
}

#[test]
fn a_pull_longer_than_a_piece_than_the_grant_and_than_the_staging_memory_arrives_whole() {
    let [(address, listening), _] = places();
    let mut options = Options::default();
    options.limits.grant_bytes = 3 << 20;
    options.limits.staging_bytes = 1 << 20;
    let server = server_at(listening, options);
    let link = link_with(&address, |limits| limits.piece_bytes = 100_000);
    let table = Table::new(700, 10_007, 10_007, false);
    let handle = table.publish(&server, false);
    let (out, work) = handle.slice(1, 698);
    assert_well(&run(&link, vec![Arc::clone(&out)], vec![work]));
    assert!(out.content() == table.of(1..699));
}

#[test]
fn many_peers_share_a_little_staging_memory() {
    let [_, (address, listening)] = places();
    let mut options = Options::default();
    options.limits.staging_bytes = 256 << 10;
    let server = server_at(listening, options);
    let table = Table::new(1000, 4096, 4096, false);
    let handle = table.publish(&server, true);
    let (memory, held) = publish(&server, "memory", 100, 4096);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (address, handle, table, memory, held) =
                (&address, &handle, &table, &memory, &held);
            scope.spawn(move || {
                let link = link(address);
                for round in 0..20 {
                    let asked = scattered(number * 100 + round, 40, 1000);
                    let (indices, out, work) = indexed(handle, &asked);
                    let (other, beside) = memory.slice(number, 2);
                    let kept = vec![indices, Arc::clone(&out), Arc::clone(&other)];
                    assert_well(&run(&link, kept, vec![work, beside]));
                    assert!(out.content() == table.of(asked));
                    let from = size(number) * 4096;
                    assert!(other.content() == held[from..from + 8192]);
                }
            });
        }
    });
    assert_eq!(server.counters().broken, 0);
}

#[test]
fn a_pull_that_the_staging_memory_never_has_room_for_is_refused_by_name() {
    let [_, (address, listening)] = places();
    let mut options = Options::default();
    options.limits.staging_bytes = 64 << 10;
    let server = server_at(listening, options);
    let link = link(&address);
    let table = Table::new(64, 4096, 4096, false);
    let handle = table.publish(&server, true);
    let refused = pull(&link, &handle, &scattered(1, 64, 64)).expect_err("too large");
    let (class, text) = class_of(&refused);
    assert_eq!(class, Class::Limit);
    assert!(text.contains("staging_bytes is 65536"), "{text}");
    assert!(pull(&link, &handle, &[5, 3, 5]).expect("read") == table.of([5, 3, 5]));
}

#[test]
fn a_file_that_was_truncated_fails_the_pulls_that_need_what_is_gone() {
    for direct in [true, false] {
        let (server, address) = server();
        let link = link(&address);
        let table = Table::new(100, 4096, 4096, false);
        let handle = table.publish(&server, direct);
        let file = OpenOptions::new().write(true).open(&table.path);
        file.and_then(|file| file.set_len(HEAD + 50 * 4096 + 512))
            .expect("truncated");
        let (class, text) = class_of(&pull(&link, &handle, &[3, 50, 4]).expect_err("gone"));
        assert_eq!(class, Class::Broken);
        let path = table.path.display().to_string();
        for part in [
            "row 50 of",
            &path,
            "errno 61",
            "the file ends before the row",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(pull(&link, &handle, &[49, 0]).expect("read") == table.of([49, 0]));
        assert!(link.is_open());
    }
}

#[test]
fn a_row_whose_checksum_is_wrong_is_told() {
    let (server, address) = server();
    let link = link(&address);
    let table = Table::new(50, 100, 104, true);
    let handle = table.publish(&server, false);
    let file = File::options()
        .write(true)
        .open(&table.path)
        .expect("opens");
    file.write_all_at(&[!table.content[2000]], HEAD + 20 * 104)
        .expect("written");
    let (_, text) = class_of(&pull(&link, &handle, &[19, 20, 21]).expect_err("damaged"));
    assert!(text.contains("row 20 of"), "{text}");
    assert!(text.contains("checksum"), "{text}");
    assert!(pull(&link, &handle, &[21, 19]).expect("read") == table.of([21, 19]));
}

#[test]
fn nobody_writes_rows_of_a_file() {
    let (server, address) = server();
    let link = link(&address);
    let table = Table::new(10, 512, 512, false);
    let handle = table.publish(&server, true);
    let values = Memory::zeros(512);
    let rows = Rows::Slice { first: 2, count: 1 };
    for operation in [Operation::Set, Operation::Add] {
        let work = handle.push(rows, &values, operation);
        let batch = run(&link, vec![Arc::clone(&values)], vec![work]);
        let (class, text) = class_of(&failure(&batch, 0));
        assert_eq!(class, Class::Config);
        assert!(text.contains("read-only"), "{text}");
    }
    let (key, span, kept) = (handle.key, values.span(), Arc::clone(&values));
    let written = server.run(move |shard| {
        let written = shard.write(key, rows, Operation::Set, span);
        drop(kept);
        written
    });
    let refused = written.expect("runs").expect_err("read-only");
    assert_eq!(refused.class(), Class::Config);
    assert!(pull(&link, &handle, &[2]).expect("read") == table.of([2]));
}

#[test]
fn a_file_that_cannot_be_served_is_refused() {
    let (server, _) = server();
    let table = Table::new(10, 512, 512, false);
    let publish = |count, rows| {
        let description = Description {
            dtype: numbers(Number::Unsigned, 1),
            shape: vec![count, 512],
        };
        let published = server.publish_file("file", description, (table.open(false), rows));
        published.expect("runs").map_err(|error| error.class())
    };
    assert_eq!(publish(11, table.rows), Err(Class::Config));
    let mut rows = table.rows;
    rows.stride_bytes = 511;
    assert_eq!(publish(10, rows), Err(Class::Config));
    rows.stride_bytes = 512;
    rows.checksums = true;
    assert_eq!(publish(10, rows), Err(Class::Config));
    assert!(publish(10, table.rows).is_ok());
}

#[test]
fn peers_that_go_while_rows_are_read_give_the_memory_back() {
    let [_, (address, listening)] = places();
    let mut options = Options::default();
    options.limits.staging_bytes = 1 << 20;
    let server = server_at(listening, options);
    let table = Table::new(1000, 4096, 4096, false);
    let handle = table.publish(&server, true);
    for round in 0..30 {
        let link = link(&address);
        let kept: Vec<_> = (0..10)
            .map(|at| indexed(&handle, &scattered(round * 10 + at, 60, 1000)))
            .map(|(indices, out, work)| begin(&link, vec![indices, out], vec![work]))
            .collect();
        link.close();
        drop(kept);
    }
    let link = link(&address);
    for round in 0..10 {
        let asked = scattered(round, 200, 1000);
        assert!(pull(&link, &handle, &asked).expect("read") == table.of(asked));
    }
}

#[test]
fn rows_that_were_asked_for_come_after_their_tensor_was_dropped() {
    let (server, address) = server();
    let link = link(&address);
    let table = Table::new(1000, 4096, 4096, false);
    let handle = table.publish(&server, true);
    let asked: Vec<_> = (0..20).map(|at| scattered(at, 100, 1000)).collect();
    let begun: Vec<_> = asked
        .iter()
        .map(|rows| {
            let (indices, out, work) = indexed(&handle, rows);
            (
                begin(&link, vec![indices, Arc::clone(&out)], vec![work]),
                out,
            )
        })
        .collect();
    server
        .run(|shard| shard.drop_tensor("file"))
        .expect("runs")
        .expect("dropped");
    for ((batch, out), rows) in begun.iter().zip(asked) {
        finish(&link, batch);
        match batch.first_failure() {
            None => assert!(out.content() == table.of(rows)),
            Some(_) => assert_eq!(class_of(&failure(batch, 0)).0, Class::Stale),
        }
    }
    let (class, _) = class_of(&pull(&link, &handle, &[1]).expect_err("dropped"));
    assert_eq!(class, Class::Stale);
}

#[test]
fn a_server_that_closes_while_rows_are_read_ends_every_pull() {
    for _ in 0..10 {
        let (server, address) = server();
        let link = link(&address);
        let table = Table::new(1000, 4096, 4096, false);
        let handle = table.publish(&server, true);
        let begun: Vec<_> = (0..16)
            .map(|at| {
                let rows = scattered(at, 200, 1000);
                let (indices, out, work) = indexed(&handle, &rows);
                let batch = begin(&link, vec![indices, Arc::clone(&out)], vec![work]);
                (batch, out, rows)
            })
            .collect();
        server.close();
        for (batch, out, rows) in begun {
            finish(&link, &batch);
            if batch.first_failure().is_none() {
                assert!(out.content() == table.of(rows));
            }
        }
    }
}
