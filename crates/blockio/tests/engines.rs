//! What a user of any engine relies on: the same tests for all of them.
mod engine;
mod sys;

use std::thread;

use engine::{Engine, Folder, await_one, await_until, pattern, read, special, sync, write};
use forebay_blockio::{BlockFile, Error, Files, Kind, Mode, Operation};
use rustix::io::Errno;
use sys::Loan;

/// Each test runs on each engine.
macro_rules! on_every_engine {
    ($($test:ident),* $(,)?) => {
        on_every_engine!(@ threads, Engine::threads(), $($test),*);
        on_every_engine!(@ handed_threads, Engine::handed_threads(), $($test),*);
        on_every_engine!(@ one_thread, Engine::one_thread(), $($test),*);
        on_every_engine!(@ ring, Engine::ring(), $($test),*);
        on_every_engine!(@ io_thread, Engine::io_thread(), $($test),*);
    };
    (@ $engine:ident, $make:expr, $($test:ident),*) => {
        mod $engine {
            use super::Engine;
            $(#[test] fn $test() { super::$test(&$make); })*
        }
    };
}

on_every_engine!(
    buffered_blocks_come_back_as_they_were_written,
    direct_blocks_come_back_as_they_were_written,
    many_clients_read_their_own_blocks,
    reads_stop_at_the_end_of_the_file,
    exact_reads_say_that_the_file_ended,
    an_fsync_after_a_failed_write_is_canceled,
    an_fsync_waits_for_the_writes_before_it,
    a_failed_operation_leaves_the_others_alone,
    what_was_spoiled_in_flight_is_refused_alone,
    a_batch_of_nothing_ends,
    a_closed_engine_refuses,
    bytes_of_a_pipe_come_without_an_offset,
);

const BLOCK: usize = 4096;

fn offset(block: usize) -> u64 {
    (block * BLOCK) as u64
}

fn errno(errno: Errno) -> i64 {
    i64::from(-errno.raw_os_error())
}

fn one(file: &BlockFile) -> Files {
    Files::One(file.clone())
}

/// Write blocks in one order with an fsync behind them, read them in another.
fn round_trip(engine: &Engine, direct: bool) {
    const BLOCKS: usize = 500;
    let folder = Folder::new();
    let file = folder.file(&[], direct);
    let content = pattern(BLOCKS * BLOCK);
    let mut writes: Vec<_> = (0..BLOCKS)
        .map(|block| block * 7 % BLOCKS)
        .map(|block| write(offset(block), offset(block), 4096))
        .collect();
    writes.push(sync(Kind::Fdatasync));
    let loan = Loan::new(&writes, content.len());
    loan.write(0, &content);
    engine.run(loan.batch(one(&file), false));
    let mut expected = vec![4096; BLOCKS];
    expected.push(0);
    assert_eq!(loan.results(), expected);
    assert_eq!(folder.content(), content);

    let reads: Vec<_> = (0..BLOCKS)
        .map(|block| read(offset(block * 3 % BLOCKS), offset(block), 4096))
        .collect();
    let loan = Loan::new(&reads, content.len());
    engine.run(loan.batch(one(&file), false));
    assert_eq!(loan.results(), [4096; BLOCKS]);
    for block in 0..BLOCKS {
        let from = block * 3 % BLOCKS * BLOCK;
        assert_eq!(loan.read(block * BLOCK, BLOCK), content[from..from + BLOCK]);
    }
}

/// Otherwise data is lost, or another block's.
fn buffered_blocks_come_back_as_they_were_written(engine: &Engine) {
    round_trip(engine, false);
}

/// The same around the page cache, where nothing is read without waiting.
fn direct_blocks_come_back_as_they_were_written(engine: &Engine) {
    round_trip(engine, true);
}

/// Two threads must not get each other's blocks, nor wait for each other for ever.
fn many_clients_read_their_own_blocks(engine: &Engine) {
    let folder = Folder::new();
    let content = pattern(256 * BLOCK);
    let files = [folder.file(&content, false), folder.open(true)];
    thread::scope(|scope| {
        for client in 0..8_usize {
            let (content, file) = (&content, &files[client % 2]);
            scope.spawn(move || {
                for round in 0..20 {
                    let block = |at: usize| (client * 31 + round * 7 + at * 13) % 256;
                    let reads: Vec<_> = (0..50)
                        .map(|at| read(offset(block(at)), offset(at), 4096))
                        .collect();
                    let loan = Loan::new(&reads, 50 * BLOCK);
                    engine.run(loan.batch(one(file), false));
                    assert_eq!(loan.results(), [4096; 50]);
                    for at in 0..50 {
                        let from = block(at) * BLOCK;
                        assert_eq!(loan.read(at * BLOCK, BLOCK), content[from..from + BLOCK]);
                    }
                }
            });
        }
    });
}

/// Results of 10,000 bytes in blocks of 4,096, cached and not.
fn results_at_the_end(engine: &Engine, exact: bool) -> Vec<Vec<i64>> {
    let folder = Folder::new();
    let content = pattern(10_000);
    let cached = folder.file(&content, false);
    let direct = folder.open(true);
    let reads: Vec<_> = (0..4)
        .map(|at| read(offset(at), offset(at), 4096))
        .collect();
    [cached, direct]
        .iter()
        .map(|file| {
            let loan = Loan::new(&reads, 4 * BLOCK);
            engine.run(loan.batch(one(file), exact));
            assert_eq!(loan.read(0, 10_000), content);
            loan.results()
        })
        .collect()
}

/// A reader of a file's tail gets the bytes that are there.
fn reads_stop_at_the_end_of_the_file(engine: &Engine) {
    let results = results_at_the_end(engine, false);
    assert_eq!(results, [[4096, 4096, 1808, 0]; 2]);
}

/// Who asked for whole blocks never mistakes half of one for a block.
fn exact_reads_say_that_the_file_ended(engine: &Engine) {
    let ended = errno(Errno::NODATA);
    let results = results_at_the_end(engine, true);
    assert_eq!(results, [[4096, 4096, ended, ended]; 2]);
}

/// A log must not be told that it is safe when a part of it was not written.
fn an_fsync_after_a_failed_write_is_canceled(engine: &Engine) {
    let folder = Folder::new();
    let good = folder.file(&[], false);
    let full = special("/dev/full", Mode::ReadWrite);
    let to_full = Operation {
        file: 1,
        ..write(0, 0, 4096)
    };
    let operations = [
        write(0, 0, 4096),
        to_full,
        sync(Kind::Fsync),
        write(4096, 0, 4096),
    ];
    let loan = Loan::new(&operations, BLOCK);
    let files = Files::Many(vec![good, full]);
    engine.run(loan.batch(files, false));
    let (full, canceled) = (errno(Errno::NOSPC), errno(Errno::CANCELED));
    assert_eq!(loan.results(), [4096, full, canceled, 4096]);
    // At the end of a batch, where nothing comes after it that could be told of.
    let loan = Loan::new(
        &[to_full, sync(Kind::Fdatasync)].map(|it| Operation { file: 0, ..it }),
        BLOCK,
    );
    let full_file = special("/dev/full", Mode::ReadWrite);
    engine.run(loan.batch(one(&full_file), false));
    assert_eq!(loan.results(), [full, canceled]);
}

/// The order that makes a commit a commit, many times over in one batch.
fn an_fsync_waits_for_the_writes_before_it(engine: &Engine) {
    let folder = Folder::new();
    let file = folder.file(&[], false);
    let group = (0..8)
        .map(|block| write(offset(block), 0, 4096))
        .chain([sync(Kind::Fdatasync)]);
    let operations: Vec<_> = group.cycle().take(90).collect();
    let loan = Loan::new(&operations, BLOCK);
    engine.run(loan.batch(one(&file), false));
    let expected: Vec<i64> = [4096, 4096, 4096, 4096, 4096, 4096, 4096, 4096, 0].repeat(10);
    assert_eq!(loan.results(), expected);
}

/// One bad block of a list costs one block.
fn a_failed_operation_leaves_the_others_alone(engine: &Engine) {
    let folder = Folder::new();
    let content = pattern(16 * BLOCK);
    let good = folder.file(&content, false);
    // At address 0 there is nothing to read.
    let bad = special("/proc/self/mem", Mode::Read);
    let reads: Vec<_> = (0..16)
        .map(|at| match at {
            5 => Operation {
                file: 1,
                ..read(0, offset(at), 4096)
            },
            _ => read(offset(at), offset(at), 4096),
        })
        .collect();
    let loan = Loan::new(&reads, 16 * BLOCK);
    let files = Files::Many(vec![good, bad]);
    engine.run(loan.batch(files, false));
    for (at, result) in loan.results().into_iter().enumerate() {
        if at == 5 {
            assert_eq!(result, errno(Errno::IO));
        } else {
            assert_eq!(result, 4096);
            assert_eq!(
                loan.read(at * BLOCK, BLOCK),
                content[at * BLOCK..(at + 1) * BLOCK]
            );
        }
    }
}

/// Another thread that writes a list which is in flight spoils it, and no memory beside the buffer.
fn what_was_spoiled_in_flight_is_refused_alone(engine: &Engine) {
    let folder = Folder::new();
    let file = folder.file(&pattern(4 * BLOCK), false);
    let reads: Vec<_> = (0..4)
        .map(|at| read(offset(at), offset(at), 4096))
        .collect();
    let loan = Loan::new(&reads, 4 * BLOCK);
    let batch = loan.batch(one(&file), false);
    loan.change(2, read(0, 1 << 40, 4096));
    engine.run(batch);
    assert_eq!(loan.results(), [4096, 4096, errno(Errno::INVAL), 4096]);
}

/// A loop over lists need not look whether one is empty.
fn a_batch_of_nothing_ends(engine: &Engine) {
    let folder = Folder::new();
    let loan = Loan::new(&[], 0);
    engine.run(loan.batch(one(&folder.file(&[], false)), false));
}

/// After a close there is an error, and no wait.
fn a_closed_engine_refuses(engine: &Engine) {
    let folder = Folder::new();
    let file = folder.file(&pattern(BLOCK), false);
    let loan = Loan::new(&[read(0, 0, 4096)], BLOCK);
    engine.run(loan.batch(one(&file), false));
    assert_eq!(engine.queue.close(), 0);
    let refused = engine.carry_out(loan.batch(one(&file), false));
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    assert_eq!(engine.queue.close(), 0);
}

/// What has no offsets can be read all the same.
fn bytes_of_a_pipe_come_without_an_offset(engine: &Engine) {
    let folder = Folder::new();
    let pipe = folder.pipe();
    pipe.write(b"eight by");
    let loan = Loan::new(&[read(4096, 0, 64)], 64);
    engine.run(loan.batch(one(&pipe.file), false));
    assert_eq!(loan.results(), [8]);
    assert_eq!(loan.read(0, 8), b"eight by");
}

/// What a client that hands batches over relies on.
macro_rules! on_engines_that_take_over {
    ($($test:ident),* $(,)?) => {
        mod over_to_threads {
            use super::Engine;
            $(#[test] fn $test() { super::$test(&Engine::handed_threads()); })*
        }
        mod over_to_io_thread {
            use super::Engine;
            $(#[test] fn $test() { super::$test(&Engine::io_thread()); })*
        }
    };
}

on_engines_that_take_over!(
    a_read_that_waits_holds_up_no_other_batch,
    an_operation_that_waits_holds_up_no_other_of_its_batch,
    a_detached_batch_keeps_its_memory_until_it_has_ended,
    a_close_ends_what_is_in_flight,
);

/// A slow device, or a pipe that nobody writes, stops who reads it and nobody else.
fn a_read_that_waits_holds_up_no_other_batch(engine: &Engine) {
    let folder = Folder::new();
    let (pipe, file) = (folder.pipe(), folder.file(&pattern(BLOCK), false));
    let slow = Loan::new(&[read(0, 0, 4)], 4);
    let ticket = engine.submit(slow.batch(one(&pipe.file), false), slow.keeper());
    for _ in 0..20 {
        let quick = Loan::new(&[read(0, 0, 4096)], BLOCK);
        engine.run(quick.batch(one(&file), false));
        assert_eq!(quick.results(), [4096]);
    }
    assert_eq!(slow.results(), [i64::MIN], "nobody has written the pipe");
    pipe.write(b"done");
    assert_eq!(await_one(&engine.done).ticket, ticket);
    assert_eq!(slow.results(), [4]);
}

/// The same within one batch, though what could go on is found only when an fsync has ended.
fn an_operation_that_waits_holds_up_no_other_of_its_batch(engine: &Engine) {
    let folder = Folder::new();
    let (pipe, file) = (folder.pipe(), folder.file(&[], false));
    let of_pipe = |operation| Operation {
        file: 1,
        ..operation
    };
    let operations = [
        write(0, 0, 4096),
        sync(Kind::Fsync),
        of_pipe(read(0, 4096, 4)),
        of_pipe(write(0, 0, 4)),
    ];
    let loan = Loan::new(&operations, 2 * BLOCK);
    loan.write(0, b"self");
    let files = Files::Many(vec![file, pipe.file.clone()]);
    engine.submit(loan.batch(files, false), loan.keeper());
    await_one(&engine.done);
    assert_eq!(loan.results(), [4096, 0, 4, 4]);
    assert_eq!(loan.read(4096, 4), b"self");
}

/// Memory that was given up too early is written by the kernel when it is somebody else's.
fn a_detached_batch_keeps_its_memory_until_it_has_ended(engine: &Engine) {
    let folder = Folder::new();
    let pipe = folder.pipe();
    // More than can be in flight, so some are never issued.
    let reads = vec![read(0, 0, 4); 300];
    let loan = Loan::new(&reads, 4);
    let ticket = engine.submit(loan.batch(one(&pipe.file), false), loan.keeper());
    pipe.write(b"one ");
    await_until("the first read did not end", || loan.results().contains(&4));
    engine.queue.detach(ticket);
    await_until("it is in quarantine", || {
        engine.queue.stats().quarantined_batches == 1
    });
    assert_eq!(loan.owners(), 2);
    assert!(engine.done.is_empty(), "reads are in flight");
    let canceled = errno(Errno::CANCELED);
    assert_eq!(loan.results()[299], canceled);
    // As many as are in flight; a read takes what is there, at most four bytes.
    pipe.write(&[7; 4 * 300]);
    let finished = await_one(&engine.done);
    assert_eq!(finished.ticket, ticket);
    assert_eq!(engine.queue.stats().quarantined_batches, 0);
    assert!(
        loan.results()
            .iter()
            .all(|&result| result == 4 || result == canceled)
    );
    assert_eq!(loan.owners(), 2, "the keeper came back with the end");
    drop(finished);
    assert_eq!(loan.owners(), 1);
}

/// A close comes back, and the memory with it.
fn a_close_ends_what_is_in_flight(engine: &Engine) {
    let folder = Folder::new();
    let content = pattern(64 * BLOCK);
    folder.file(&content, true);
    let file = folder.open(true);
    let reads: Vec<_> = (0..20_000)
        .map(|at| read(offset(at % 64), offset(at % 64), 4096))
        .collect();
    let mut loans: Vec<Loan> = Vec::new();
    let begun = loop {
        let begun = loans.len();
        loans.extend((0..4).map(|_| Loan::new(&reads, 64 * BLOCK)));
        for loan in &loans[begun..] {
            engine.submit(loan.batch(one(&file), false), loan.keeper());
        }
        await_until("reads did not begin", || loans[begun].results()[0] == 4096);
        // Where this thread had no core meanwhile, some are over.
        if loans[begun..]
            .iter()
            .all(|loan| loan.results()[19_999] != 4096)
        {
            break begun;
        }
    };
    assert_eq!(engine.queue.close(), 0);
    let mut finished = Vec::new();
    let count = engine.done.drain(&mut finished).expect("it is open");
    assert_eq!(count, loans.len());
    for loan in &loans[begun..] {
        let results = loan.results();
        let canceled = errno(Errno::CANCELED);
        assert!(
            results
                .iter()
                .all(|&result| result == 4096 || result == canceled)
        );
        assert_eq!(results[19_999], canceled, "it would have taken longer");
    }
}
