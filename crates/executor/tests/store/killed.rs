//! A server that is killed while it writes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use forebay_executor::id::RequestId;
use forebay_executor::op::Op;
use forebay_executor::request::{Options, Outcome, Status};
use forebay_executor::store::{Answer, StoreConfig};

use crate::given::{self, Directory, Driven, blob, claim, end_with, request};

const KILLS: u64 = 20;
/// Set in the child: the state directory.
const CHILD: &str = "FOREBAY_TEST_STORE_KILLED";
const RESULT_BYTES_MAX: u64 = 2_000;

fn config(directory: &Path) -> StoreConfig {
    StoreConfig {
        result_bytes_max: RESULT_BYTES_MAX,
        ..given::config(directory)
    }
}

/// Every eighth result is a file.
fn result(id: u64) -> Vec<u8> {
    let bytes = if id.is_multiple_of(8) { 3_000 } else { 30 };
    id.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// Not a test of its own: what the child does. It tells on stdout what was answered, after it was.
#[test]
#[ignore = "the child of accepted_and_ended_outlive_a_kill"]
fn child() {
    let Ok(directory) = std::env::var(CHILD) else {
        return;
    };
    let (mut driven, recovery) = Driven::with(config(Path::new(&directory)));
    let mut out = std::io::stdout().lock();
    let mut next = recovery.last.0 + 1;
    let mut waiting = std::collections::VecDeque::new();
    loop {
        // Two batches under way, as beside a server that is busy.
        while waiting.len() < 2 {
            let size = 1 + next % 13;
            let ids = next..next + size;
            next += size;
            let accepts = ids
                .clone()
                .map(|id| Op::Accept(request(id, result(id), Options::default())));
            let runs = ids.clone().filter(|id| id.is_multiple_of(2));
            let ops: Vec<Op> = accepts
                .chain(runs.clone().map(|id| claim(id, 1)))
                .chain(runs.map(|id| {
                    end_with(id, Status::Succeeded, Outcome::Succeeded(blob(result(id))))
                }))
                .collect();
            waiting.push_back((ids, ops.len()));
            driven.store.write(ops);
        }
        let Answer::Committed(mut count) = driven.answer() else {
            panic!("not committed");
        };
        while count > 0 {
            let (ids, ops) = waiting.front_mut().expect("something was written");
            let taken = count.min(*ops);
            *ops -= taken;
            count -= taken;
            if *ops == 0 {
                writeln!(out, "{} {}", ids.start, ids.end)
                    .and_then(|()| out.flush())
                    .expect("told");
                waiting.pop_front();
            }
        }
    }
}

/// Let a child write until it has told `lines` times, then kill it; what it had told until it was dead.
fn killed_after(directory: &Path, lines: usize) -> Vec<std::ops::Range<u64>> {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args([
            "--exact",
            "killed::child",
            "--ignored",
            "--nocapture",
            "--quiet",
        ])
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut told = Vec::new();
    for line in BufReader::new(child.stdout.take().expect("piped")).lines() {
        let line = line.expect("text");
        let numbers: Vec<u64> = line
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        if let [first, end] = numbers[..] {
            told.push(first..end);
        }
        if told.len() == lines {
            child.kill().expect("killed");
        }
    }
    child.wait().expect("reaped");
    assert!(
        told.len() >= lines,
        "the child ended by itself after {told:?}"
    );
    told
}

#[test]
fn accepted_and_ended_outlive_a_kill() {
    let directory = Directory::new();
    let mut told = Vec::new();
    for kill in 0..KILLS {
        // The kill falls into whatever the child does after so many answers.
        told.extend(killed_after(
            directory.path(),
            1 + usize::try_from(kill * 7 % 31).expect("small"),
        ));
    }
    let (mut driven, recovery) = Driven::with(config(directory.path()));
    let open: std::collections::HashMap<RequestId, _> = recovery
        .restored
        .iter()
        .map(|one| (one.request.id, one))
        .collect();
    for id in told.into_iter().flatten() {
        if !id.is_multiple_of(2) {
            let there = open
                .get(&RequestId(id))
                .unwrap_or_else(|| panic!("{id} was accepted and is lost"));
            assert_eq!(*there.request.submission.arguments, *result(id));
            continue;
        }
        driven
            .store
            .fetch(RequestId(id), forebay_executor::store::Question::Whole, id);
        let Answer::Fetched {
            found: forebay_executor::store::Fetched::Ending(ending),
            ..
        } = driven.answer()
        else {
            panic!("the end of {id} is lost");
        };
        assert_eq!(
            ending.payload,
            forebay_executor::store::Payload::Result(blob(result(id)))
        );
    }
}
