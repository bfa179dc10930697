//! What the tests of the store begin with.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_executor::id::RequestId;
use forebay_executor::op::Op;
use forebay_executor::request::{Blob, Ending, Options, Outcome, Request, Status, Submission};
use forebay_executor::store::{Answer, Recovery, Store, StoreConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Seconds that any answer may take; what is over it hangs.
const ANSWER_S: i64 = 30;

/// A directory of a test's own, removed at its end.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-store-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A store and its answers, one at a time.
pub struct Driven {
    pub store: Store,
    answers: std::collections::VecDeque<Answer>,
}

impl Driven {
    pub fn open(directory: &Path) -> (Self, Recovery) {
        Self::with(config(directory))
    }

    pub fn with(config: StoreConfig) -> (Self, Recovery) {
        let (store, recovery) = Store::open(config).expect("the store opens");
        let answers = std::collections::VecDeque::new();
        (Self { store, answers }, recovery)
    }

    /// The next answer.
    pub fn answer(&mut self) -> Answer {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return answer;
            }
            let queue = self.store.answers();
            let mut watched = [PollFd::new(queue, PollFlags::IN)];
            let timeout = Timespec {
                tv_sec: ANSWER_S,
                tv_nsec: 0,
            };
            let ready = poll(&mut watched, Some(&timeout)).expect("poll");
            assert_eq!(ready, 1, "no answer within {ANSWER_S} s");
            let mut batch = Vec::new();
            queue.drain(&mut batch).expect("open");
            self.answers.extend(batch);
        }
    }

    /// Write, and wait until all of it is on disk.
    pub fn commit(&mut self, ops: Vec<Op>) {
        let mut left = ops.len();
        self.store.write(ops);
        while left > 0 {
            match self.answer() {
                Answer::Committed(count) => left -= count,
                other => panic!("not committed: {other:?}"),
            }
        }
    }

    /// Have the result of an end in its file.
    pub fn file(&self, end: Op) {
        let Op::End { id, ending, .. } = end else {
            panic!("no end: {end:?}");
        };
        self.store.file(id, ending);
    }

    /// The answer to that: what is wrong with what its worker left.
    pub fn filed(&mut self) -> (RequestId, Option<String>) {
        match self.answer() {
            Answer::Filed { id, unfit } => (id, unfit),
            other => panic!("{other:?}"),
        }
    }
}

/// The numbers that a question to the database gives, in its first column.
pub fn numbers(directory: &Directory, sql: &str) -> Vec<i64> {
    let database = rusqlite::Connection::open(directory.path().join("requests.db"));
    let database = database.expect("opens");
    let mut statement = database.prepare(sql).expect("a statement");
    let rows = statement.query_map([], |row| row.get(0)).expect("rows");
    rows.map(|row| row.expect("a number")).collect()
}

/// The fixtures ended long ago: nothing goes by its age, where a test does not say so.
pub fn config(directory: &Path) -> StoreConfig {
    StoreConfig {
        retention_age_ms: 100 * 366 * 86_400_000,
        ..StoreConfig::new(directory)
    }
}

pub fn blob(bytes: impl Into<Vec<u8>>) -> Blob {
    bytes.into().into()
}

/// A request `digits` with these arguments.
pub fn request(id: u64, arguments: impl Into<Vec<u8>>, options: Options) -> Arc<Request> {
    Arc::new(Request {
        id: RequestId(id),
        accepted_at: 1_760_000_000_000 + id,
        submission: Submission {
            name: "digits".into(),
            code: "0123456789abcdef".into(),
            submitter: "alice".into(),
            arguments: blob(arguments),
            options: Arc::new(options),
        },
    })
}

pub fn accept(id: u64) -> Op {
    Op::Accept(request(id, *b"\x80", Options::default()))
}

pub fn claim(id: u64, attempt: u32) -> Op {
    Op::Claim {
        id: RequestId(id),
        attempt,
        at: 1_760_000_100_000 + id,
    }
}

pub fn end_with(id: u64, status: Status, outcome: Outcome) -> Op {
    end_of((id, 1), status, outcome)
}

/// The end of this run of a request.
pub fn end_of((id, attempt): (u64, u32), status: Status, outcome: Outcome) -> Op {
    let ending = Ending {
        status,
        attempts: attempt,
        at: 1_760_000_200_000 + id,
        peak_bytes: Some(60 << 20),
        outcome,
    };
    Op::End {
        id: RequestId(id),
        ending: Arc::new(ending),
        deaths: 0,
        claimed: attempt,
    }
}

pub fn end(id: u64) -> Op {
    end_with(id, Status::Succeeded, Outcome::Succeeded(blob(*b"\x07")))
}
