//! What is committed comes back: to a new server, and to who asks.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use forebay_executor::id::RequestId;
use forebay_executor::op::Op;
use forebay_executor::request::{Death, Ending, Failure, Lane, Options, Outcome, Status};
use forebay_executor::store::{Answer, DatabaseReader, Fetched, Payload, Question, StoreConfig};

use crate::given::{self, Directory, Driven, accept, blob, claim, end, end_of, end_with, request};

fn fetched(driven: &mut Driven, id: u64, question: Question) -> Fetched {
    driven.store.fetch(RequestId(id), question, 7);
    match driven.answer() {
        Answer::Fetched {
            ticket: 7, found, ..
        } => found,
        other => panic!("{other:?}"),
    }
}

fn died() -> Failure {
    Failure::Died(Death {
        pid: 41,
        signal: Some(9),
        last_output: "killed".into(),
        ..Death::of("signal")
    })
}

#[test]
fn what_is_unfinished_comes_back_with_all_that_it_asked_for() {
    let directory = Directory::new();
    let (mut driven, recovery) = Driven::open(directory.path());
    assert!(recovery.restored.is_empty());
    let options = Options {
        lane: Lane::Short,
        priority: -3,
        retries: 2,
        key: Some("user:7".into()),
        idempotency: Some("once".into()),
        after: vec![RequestId(1)],
        not_before: Some(1_760_000_900_000),
        ..Options::default()
    };
    let asked = request(2, *b"\x81\xa1a\x01", options);
    driven.commit(vec![accept(1), Op::Accept(Arc::clone(&asked)), accept(3)]);
    driven.commit(vec![claim(1, 1), claim(3, 1), end(3)]);
    driven.store.close();

    let (_driven, recovery) = Driven::open(directory.path());
    let [first, second] = &recovery.restored[..] else {
        panic!("{:?}", recovery.restored);
    };
    assert_eq!((first.status, first.attempts), (Status::Running, 1));
    assert!(!first.rebooted);
    assert_eq!((second.status, second.attempts), (Status::Queued, 0));
    assert_eq!(second.wake_at, Some(1_760_000_900_000));
    assert_eq!(second.request.id, asked.id);
    assert_eq!(second.request.accepted_at, asked.accepted_at);
    let (found, given) = (&second.request.submission, &asked.submission);
    assert_eq!(found.options, given.options);
    assert_eq!(found.arguments, given.arguments);
    assert_eq!(
        (&found.name, &found.code, &found.submitter),
        (&given.name, &given.code, &given.submitter)
    );
    assert_eq!(recovery.last, RequestId(3));
}

#[test]
fn an_end_is_told_with_its_result_or_its_cause() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let failed = Outcome::Failed(died());
    driven.commit(vec![accept(1), accept(2), accept(3), accept(4)]);
    driven.commit(vec![claim(1, 1), end(1), claim(2, 1)]);
    driven.commit(vec![
        end_with(2, Status::Failed, failed),
        end_with(3, Status::Cancelled, Outcome::Cancelled),
    ]);

    let Fetched::Ending(ending) = fetched(&mut driven, 1, Question::Ending) else {
        panic!("no ending");
    };
    assert_eq!(ending.status, Status::Succeeded);
    assert_eq!(ending.payload, Payload::Result(blob(*b"\x07")));
    assert_eq!(ending.claimed_at, Some(1_760_000_100_001));
    assert_eq!(ending.peak_bytes, Some(60 << 20));
    let Fetched::Ending(ending) = fetched(&mut driven, 2, Question::Ending) else {
        panic!("no ending");
    };
    let Payload::Failure(json) = &ending.payload else {
        panic!("{ending:?}");
    };
    assert!(
        json.contains(r#""cause":"signal""#) && json.contains(r#""signal":9"#),
        "{json}"
    );
    let Fetched::Ending(ending) = fetched(&mut driven, 3, Question::Ending) else {
        panic!("no ending");
    };
    assert_eq!(
        ending.payload,
        Payload::Failure(r#"{"kind":"cancelled"}"#.into())
    );
    let unfinished = fetched(&mut driven, 4, Question::Ending);
    assert!(matches!(unfinished, Fetched::Missing), "{unfinished:?}");
    let unknown = fetched(&mut driven, 99, Question::Row);
    assert!(matches!(unknown, Fetched::Missing), "{unknown:?}");
}

#[test]
fn a_large_result_is_a_file_that_is_read_back() {
    let directory = Directory::new();
    let config = StoreConfig {
        result_bytes_max: 1_000,
        ..given::config(directory.path())
    };
    let (mut driven, _) = Driven::with(config.clone());
    let large = blob(vec![3; 1_001]);
    let succeeded = Outcome::Succeeded(large.clone());
    driven.commit(vec![accept(1), claim(1, 1)]);
    driven.commit(vec![end_with(1, Status::Succeeded, succeeded)]);
    let results = directory.path().join("results");
    let file = results.join(RequestId(1).to_string());
    assert_eq!(std::fs::read(&file).expect("a file"), &*large);
    assert_eq!(
        file.metadata().expect("there").permissions().mode() & 0o777,
        0o600
    );
    driven.store.close();

    // Of a server that died before its commit, and of one that died while writing; the log has its request.
    for left in [
        results.join(RequestId(2).to_string()),
        results.join(format!("{}.new", RequestId(1))),
        directory
            .path()
            .join("logs")
            .join(format!("{}.log", RequestId(1))),
    ] {
        let left = std::fs::File::create(left).expect("written");
        left.set_modified(std::time::UNIX_EPOCH).expect("aged");
    }
    let (mut driven, _) = Driven::with(config);
    for (question, payload) in [
        (Question::Ending, Payload::File(1_001)),
        (Question::Whole, Payload::Result(large)),
    ] {
        let Fetched::Ending(ending) = fetched(&mut driven, 1, question) else {
            panic!("no ending");
        };
        assert_eq!(ending.payload, payload);
    }
    // The reading thread looks for what is left over between two questions.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while std::fs::read_dir(&results).expect("listed").count() > 1 {
        assert!(std::time::Instant::now() < deadline, "it is still there");
        fetched(&mut driven, 1, Question::Arguments);
    }
    assert_eq!(
        std::fs::read_dir(directory.path().join("logs"))
            .expect("listed")
            .count(),
        1
    );
}

#[test]
fn a_run_that_did_not_end_its_request_is_history() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(1), claim(1, 1)]);
    driven.commit(vec![Op::Park {
        id: RequestId(1),
        attempt: 1,
        wake_at: 1_760_000_300_000,
        failure: died(),
        deaths: 1,
    }]);
    driven.store.close();
    let (mut driven, recovery) = Driven::open(directory.path());
    let parked = &recovery.restored[0];
    assert_eq!(
        (parked.status, parked.attempts, parked.deaths),
        (Status::Queued, 1, 1)
    );
    assert_eq!(parked.wake_at, Some(1_760_000_300_000));
    driven.commit(vec![
        claim(1, 2),
        end_of(
            (1, 2),
            Status::Failed,
            Outcome::Failed(Failure::OutcomeUnknown),
        ),
    ]);
    let Fetched::Row(row) = fetched(&mut driven, 1, Question::Row) else {
        panic!("no row");
    };
    assert_eq!(
        (row.status, row.attempts, row.deaths),
        (Status::Failed, 2, 0)
    );
    assert_eq!(
        row.ending.as_ref().map(|ending| ending.status),
        Some(Status::Failed)
    );

    driven.commit(vec![Op::Retry {
        id: RequestId(1),
        at: 1_760_000_400_000,
    }]);
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    let runs = reader.runs(RequestId(1), 10).expect("runs");
    let runs: Vec<_> = runs
        .iter()
        .map(|run| (run.attempt, run.failure.contains("died")))
        .collect();
    assert_eq!(runs, [(1, true), (2, false)]);
    driven.store.close();
    let (_driven, recovery) = Driven::open(directory.path());
    assert_eq!(recovery.restored[0].status, Status::Queued);
}

#[test]
fn deaths_are_those_that_the_machine_counts_and_a_retry_forgives_what_was_before() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let parked = |attempt, deaths| Op::Park {
        id: RequestId(1),
        attempt,
        wake_at: 5,
        failure: died(),
        deaths,
    };
    let ended = |attempts, deaths| Op::End {
        id: RequestId(1),
        ending: Arc::new(Ending {
            status: Status::Dead,
            attempts,
            at: 9,
            peak_bytes: None,
            outcome: Outcome::Failed(died()),
        }),
        deaths,
        claimed: attempts,
    };
    let counted = |directory: &Directory| {
        let (driven, recovery) = Driven::open(directory.path());
        driven.store.close();
        let one = &recovery.restored[0];
        (one.attempts, one.forgiven, one.deaths)
    };
    // The first by a death that nobody blames the request for.
    driven.commit(vec![accept(1), claim(1, 1), parked(1, 0)]);
    driven.commit(vec![claim(1, 2), parked(2, 1)]);
    driven.store.close();
    assert_eq!(counted(&directory), (2, 0, 1));
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![claim(1, 3), ended(3, 2)]);
    let retry = Op::Retry {
        id: RequestId(1),
        at: 10,
    };
    driven.commit(vec![retry]);
    driven.store.close();
    assert_eq!(counted(&directory), (3, 3, 0));
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![claim(1, 4), parked(4, 1)]);
    driven.store.close();
    assert_eq!(counted(&directory), (4, 3, 1));
}

#[test]
fn arguments_beyond_the_limit_stay_on_disk_until_asked_for() {
    let directory = Directory::new();
    let config = StoreConfig {
        queue_bytes_max: 150,
        ..given::config(directory.path())
    };
    let (mut driven, _) = Driven::with(config.clone());
    let ops = (1..=3).map(|id| Op::Accept(request(id, [5; 100], Options::default())));
    driven.commit(ops.collect());
    driven.store.close();
    let (mut driven, recovery) = Driven::with(config);
    assert_eq!(recovery.on_disk, [RequestId(2), RequestId(3)]);
    assert_eq!(recovery.restored[0].request.submission.arguments.len(), 100);
    assert!(recovery.restored[1].request.submission.arguments.is_empty());
    match fetched(&mut driven, 2, Question::Arguments) {
        Fetched::Arguments(arguments) => assert_eq!(&*arguments, &[5; 100]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_learnt_and_fired_outlives_the_server() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let peak = |code: &str, bytes| Op::Peak {
        name: "digits".into(),
        code: code.into(),
        bytes,
    };
    driven.commit(
        (0..200)
            .map(|bytes| peak("a", bytes))
            .chain([peak("b", 7)])
            .collect(),
    );
    let fired = |at| Op::Fired {
        name: "nightly".into(),
        at,
    };
    driven.commit(vec![fired(1), fired(2)]);
    driven.store.close();
    let (_driven, recovery) = Driven::open(directory.path());
    let newest: Vec<u64> = (136..200).collect();
    assert_eq!(
        recovery.learnt,
        [
            ("digits".into(), "a".into(), newest),
            ("digits".into(), "b".into(), vec![7])
        ]
    );
    assert_eq!(recovery.fired, [("nightly".into(), 2)]);
}

#[test]
fn an_idempotency_key_is_known_as_long_as_its_request_is_kept() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    let keyed = |id| {
        let options = Options {
            idempotency: Some("once".into()),
            ..Options::default()
        };
        Op::Accept(request(id, *b"\x80", options))
    };
    driven.commit(vec![keyed(1), claim(1, 1), end(1)]);
    driven.store.close();
    let (mut driven, recovery) = Driven::open(directory.path());
    assert_eq!(
        recovery.known,
        [("once".into(), RequestId(1), "digits".into())]
    );
    // The machine would not; but a key that comes again must not stop all commits.
    driven.commit(vec![keyed(2), claim(2, 1), end(2)]);
    driven.store.close();
    let (_driven, recovery) = Driven::open(directory.path());
    assert_eq!(
        recovery.known,
        [("once".into(), RequestId(2), "digits".into())]
    );
}

#[test]
fn only_its_owner_may_look_into_the_state_directory() {
    let directory = Directory::new();
    let state = directory.path().join("state");
    let (mut driven, _) = Driven::open(&state);
    driven.commit(vec![accept(1)]);
    let mode = |name: &str| {
        let metadata = std::fs::metadata(state.join(name)).expect("there");
        metadata.permissions().mode() & 0o777
    };
    for folder in ["", "results", "logs"] {
        assert_eq!(mode(folder), 0o700, "{folder}");
    }
    for file in [
        "requests.db",
        "requests.db-wal",
        "requests.db-shm",
        "journal",
    ] {
        assert_eq!(mode(file), 0o600, "{file}");
    }
}

/// Whether this process holds a lock of the kernel's on a file.
fn is_locked(path: &Path) -> bool {
    let inode = std::fs::metadata(path).expect("there").ino().to_string();
    let process = std::process::id().to_string();
    let locks = std::fs::read_to_string("/proc/locks").expect("the kernel's locks");
    locks.lines().any(|lock| {
        let words: Vec<_> = lock.split_whitespace().collect();
        let file = words.get(5).and_then(|file| file.rsplit(':').next());
        words.get(1) == Some(&"POSIX") && words.get(4) == Some(&&*process) && file == Some(&inode)
    })
}

#[test]
fn a_store_that_is_closed_leaves_a_reader_of_its_process_its_lock() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(1)]);
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    assert_eq!(reader.newest().expect("read"), Some(RequestId(1)));
    let database = directory.path().join("requests.db");
    assert!(is_locked(&database));
    driven.store.close();
    assert!(is_locked(&database), "another process takes the log away");
    drop(reader);
    assert!(!is_locked(&database));
}

#[test]
fn nothing_is_told_committed_that_another_database_lies_in_front_of() {
    for replaced in [false, true] {
        let directory = Directory::new();
        let (mut driven, _) = Driven::open(directory.path());
        driven.commit(vec![accept(1)]);
        let database = directory.path().join("requests.db");
        std::fs::rename(&database, directory.path().join("moved.db")).expect("moved");
        if replaced {
            std::fs::write(&database, b"").expect("another");
        }
        driven.store.write(vec![accept(2)]);
        match driven.answer() {
            Answer::NotCommitted { why, permanent, .. } => {
                assert!(
                    why.contains("requests.db") && why.contains("start it again"),
                    "{why}"
                );
                assert!(permanent);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_was_given_before_the_close_is_committed() {
    let directory = Directory::new();
    let (driven, _) = Driven::open(directory.path());
    for id in 1..=100 {
        driven.store.write(vec![accept(id)]);
    }
    driven.store.close();
    let (_driven, recovery) = Driven::open(directory.path());
    assert_eq!(recovery.restored.len(), 100);
}

#[test]
fn a_claim_that_comes_again_behind_the_end_changes_nothing() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(1)]);
    driven.commit(vec![end(1)]);
    driven.commit(vec![claim(1, 1)]);
    driven.commit(vec![Op::Park {
        id: RequestId(1),
        attempt: 1,
        wake_at: 5,
        failure: died(),
        deaths: 1,
    }]);
    let Fetched::Row(row) = fetched(&mut driven, 1, Question::Row) else {
        panic!("no row");
    };
    assert_eq!((row.status, row.wake_at), (Status::Succeeded, None));
}

#[test]
fn a_schedule_that_is_paused_comes_back_paused_with_its_last_time() {
    let directory = Directory::new();
    let (mut driven, recovery) = Driven::open(directory.path());
    assert!(recovery.paused.is_empty());
    let paused = |name: &str| Op::Paused { name: name.into() };
    let resumed = |name: &str, at| Op::Resumed {
        name: name.into(),
        at,
    };
    let fired = |name: &str, at| Op::Fired {
        name: name.into(),
        at,
    };
    driven.commit(vec![
        paused("never fired"),
        fired("fired", 7),
        paused("fired"),
        fired("fired", 8),
        paused("goes on"),
        resumed("goes on", 9),
        resumed("again", 4),
        fired("again", 5),
        paused("again"),
    ]);
    driven.store.close();
    let (_driven, recovery) = Driven::open(directory.path());
    let (again, fired) = ("again".into(), "fired".into());
    assert_eq!(
        recovery.paused,
        [Arc::clone(&again), Arc::clone(&fired), "never fired".into()]
    );
    assert_eq!(recovery.fired, [(Arc::clone(&again), 5), (fired, 8)]);
    assert_eq!(recovery.resumed, [(again, 4), ("goes on".into(), 9)]);
}

#[test]
fn a_large_result_that_is_slow_to_write_holds_up_no_commit() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::with(StoreConfig {
        result_bytes_max: 1_000,
        ..given::config(directory.path())
    });
    driven.commit(vec![accept(1), accept(2), claim(1, 1), claim(2, 1)]);
    // Whoever opens it waits until somebody reads.
    let file = directory
        .path()
        .join("results")
        .join(RequestId(1).to_string());
    let slow = file.with_extension("new");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &slow, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    let large = blob(vec![3; 5_000]);
    let succeeded = Outcome::Succeeded(large.clone());
    driven.file(end_with(1, Status::Succeeded, succeeded.clone()));
    driven.commit(vec![end(2)]);
    assert_eq!(std::fs::read(&slow).expect("read"), &*large);
    // A pipe cannot be synced: the writer makes the file with the end.
    assert_eq!(driven.filed(), (RequestId(1), None));
    assert!(!file.exists());
    driven.commit(vec![end_with(1, Status::Succeeded, succeeded.clone())]);
    assert_eq!(std::fs::read(&file).expect("a file"), &*large);

    // One that is made is not made again.
    driven.commit(vec![accept(3), claim(3, 1)]);
    driven.file(end_with(3, Status::Succeeded, succeeded.clone()));
    assert_eq!(driven.filed(), (RequestId(3), None));
    let file = directory
        .path()
        .join("results")
        .join(RequestId(3).to_string());
    assert_eq!(std::fs::read(&file).expect("a file"), &*large);
    std::fs::write(&file, b"as it was").expect("changed");
    driven.commit(vec![end_with(3, Status::Succeeded, succeeded)]);
    assert_eq!(std::fs::read(&file).expect("a file"), b"as it was");
}
