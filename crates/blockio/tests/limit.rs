//! Writes beyond a limit on the size of files.
//!
//! The limit is the process's, and what the test harness prints may go to a file: so the test runs itself
//! as a child, whose output is a pipe, and which has the limit.
mod engine;
mod sys;

use std::process::Command;

use engine::{Engine, Folder, sync, write};
use forebay_blockio::{Files, Kind};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use sys::{Loan, ignore_file_size_signal};

/// Set in the child.
const LIMITED: &str = "FOREBAY_TEST_FILE_SIZE_LIMITED";
const NAME: &str = "an_fsync_after_a_short_write_is_canceled";

/// A log whose last record was cut short by a quota must not be told that it is safe.
#[test]
fn an_fsync_after_a_short_write_is_canceled() {
    if std::env::var_os(LIMITED).is_some() {
        return write_beyond_the_limit();
    }
    let child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", NAME, "--nocapture"])
        .env(LIMITED, "1")
        .output()
        .expect("it runs once more");
    let told = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && told.contains("1 passed"),
        "{}: {told}{}",
        child.status,
        String::from_utf8_lossy(&child.stderr)
    );
}

fn write_beyond_the_limit() {
    ignore_file_size_signal();
    let folders: Vec<_> = (0..4).map(|_| Folder::new()).collect();
    let files: Vec<_> = folders
        .iter()
        .map(|folder| folder.file(&[], false))
        .collect();
    let engines = [
        Engine::threads(),
        Engine::handed_threads(),
        Engine::ring(),
        Engine::io_thread(),
    ];
    let maximum = None;
    let current = Some(10_000);
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).expect("lower is allowed");
    for (engine, file) in engines.iter().zip(&files) {
        let operations = [write(8192, 0, 4096), sync(Kind::Fsync)];
        let canceled = i64::from(-Errno::CANCELED.raw_os_error());
        let loan = Loan::new(&operations, 4096);
        engine.run(loan.batch(Files::One(file.clone()), false));
        assert_eq!(loan.results(), [1808, canceled]);

        // An exact write goes on where it stopped, and finds the limit.
        let loan = Loan::new(&operations, 4096);
        engine.run(loan.batch(Files::One(file.clone()), true));
        let too_large = i64::from(-Errno::FBIG.raw_os_error());
        assert_eq!(loan.results(), [too_large, canceled]);
    }
}
