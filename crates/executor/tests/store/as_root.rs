//! Disks that are full or may not be written: real ones, which only root may mount.
//!
//! `make test` runs this module where mounting is allowed; elsewhere cargo lists its tests as ignored.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_executor::id::RequestId;
use forebay_executor::op::Op;
use forebay_executor::request::{Failure, Options, Outcome, Status};
use forebay_executor::store::{
    Answer, DatabaseReader, Delivery, HookOutbox, HookRule, OutboxReport, PruneRule, Store,
    StoreConfig,
};

use crate::given::{Directory, Driven, accept, blob, claim, config, end, end_with, request};

/// A small file system in memory; unmounted at the end of its test.
struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    fn new(at: &'a Path, size: &str) -> Self {
        let options = format!("size={size},mode=700");
        let mounted = mount(&["-t", "tmpfs", "-o", &options, "tmpfs"], at);
        assert!(mounted, "a tmpfs can be mounted");
        Self(at)
    }

    /// An ext4 on a loop device, which can be made to fail.
    fn disk(image: &Path, at: &'a Path, bytes: u64) -> Self {
        std::fs::File::create(image)
            .expect("made")
            .set_len(bytes)
            .expect("sized");
        std::fs::create_dir_all(at).expect("a directory");
        let made = Command::new("mkfs.ext4").arg("-q").arg(image).status();
        assert!(made.expect("mkfs.ext4 (Debian's e2fsprogs)").success());
        let image = image.to_str().expect("text");
        assert!(mount(&["-o", "loop", image], at), "a loop device is free");
        Self(at)
    }

    /// From now on everything that reaches for the disk gets EIO, syncs too. Source: `EXT4_IOC_SHUTDOWN` of Linux.
    fn fail(&self) -> bool {
        let program = "import fcntl, os, struct, sys\n\
            fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";
        let status = Command::new("python3")
            .args(["-c", program])
            .arg(self.0)
            .status();
        status.is_ok_and(|status| status.success())
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    let status = Command::new("mount").args(arguments).arg(at).status();
    status.is_ok_and(|status| status.success())
}

fn large(id: u64) -> Op {
    Op::Accept(request(id, vec![9; 100_000], Options::default()))
}

/// Write batches of three until one is refused: the first id of that one, why, and whether for good.
fn until_refused(driven: &mut Driven, first: u64) -> (u64, String, bool) {
    for first in (first..).step_by(3) {
        driven.store.write((first..first + 3).map(large).collect());
        match driven.answer() {
            Answer::Committed(3) => {}
            Answer::NotCommitted {
                count,
                why,
                permanent,
            } => {
                assert_eq!(count, 3, "all of a batch or none");
                return (first, why, permanent);
            }
            other => panic!("{other:?}"),
        }
    }
    unreachable!("the disk is small")
}

#[test]
#[ignore = "mounts a file system, which needs root: sudo make test"]
fn a_full_disk_refuses_by_name_and_goes_on_when_there_is_room() {
    let directory = Directory::new();
    let _mount = Mount::new(directory.path(), "6m");
    let filler = directory.path().join("filler");
    std::fs::write(&filler, vec![0; 2 << 20]).expect("room");
    let (mut driven, _) = Driven::open(directory.path());
    let (refused, why, permanent) = until_refused(&mut driven, 1);
    assert!(!permanent, "{why}");
    assert!(
        why.contains("full") && why.contains("free some of the disk"),
        "{why}"
    );
    assert!(refused > 1, "there was room for some");
    // It stays so, and is tried each time.
    driven
        .store
        .write((refused..refused + 3).map(large).collect());
    assert!(matches!(
        driven.answer(),
        Answer::NotCommitted { count: 3, .. }
    ));
    std::fs::remove_file(&filler).expect("removed");
    driven.commit(vec![large(refused + 10), claim(1, 1), end(1)]);
    driven.store.close();

    let (_driven, recovery) = Driven::open(directory.path());
    let left: Vec<u64> = recovery
        .restored
        .iter()
        .map(|one| one.request.id.0)
        .collect();
    let committed: Vec<u64> = (2..refused).chain([refused + 10]).collect();
    assert_eq!(
        left, committed,
        "what was told, and nothing of what was refused"
    );
}

#[test]
#[ignore = "mounts a file system, which needs root: sudo make test"]
fn what_was_accepted_ends_on_a_full_disk_and_a_prune_makes_room() {
    let directory = Directory::new();
    let _mount = Mount::new(directory.path(), "32m");
    fill_and_prune(directory.path());
}

#[test]
#[ignore = "mounts a file system, which needs root: sudo make test"]
fn what_was_accepted_ends_on_a_full_ext4() {
    let directory = Directory::new();
    let [image, at] = ["image", "mount"].map(|name| directory.path().join(name));
    let _mount = Mount::disk(&image, &at, 32 << 20);
    fill_and_prune(&at);
}

fn fill_and_prune(state: &Path) {
    let (mut driven, _) = Driven::open(state);
    driven.commit((1..=40).map(large).collect());
    driven.commit((1..=20).flat_map(|id| [claim(id, 1), end(id)]).collect());
    // Another program takes all that is left.
    fill(state);
    let reserve = std::fs::metadata(state.join("reserve")).expect("held");
    assert!(reserve.len() > 1 << 20, "{} bytes", reserve.len());

    for id in 21..=40 {
        driven.commit(vec![claim(id, 1)]);
        driven.commit(vec![end(id)]);
    }
    let mut further = 0;
    let why = loop {
        driven.store.write(vec![large(50 + further)]);
        match driven.answer() {
            // A checkpoint gives some room back, which on a slow machine has come by now.
            Answer::Committed(1) if further < 40 => further += 1,
            Answer::NotCommitted {
                count: 1,
                why,
                permanent: false,
            } => break why,
            other => panic!("{other:?}"),
        }
    };
    assert!(
        why.contains("the ends of what was accepted: No space left"),
        "{why}"
    );
    driven.store.prune(PruneRule::default(), 5);
    match driven.answer() {
        Answer::Pruned { done, .. } => assert_eq!(done.expect("pruned").count, 40),
        other => panic!("{other:?}"),
    }

    std::fs::remove_file(state.join("filler")).expect("removed");
    driven.commit(vec![large(50 + further)]);
    driven.store.close();
    assert!(!state.join("reserve").exists(), "it goes with the store");
    let (_driven, recovery) = Driven::open(state);
    let left = recovery.restored.len() as u64;
    assert_eq!(left, further + 1, "all others ended, and went");
}

#[test]
#[ignore = "mounts a file system, which needs root: sudo make test"]
fn a_full_disk_takes_an_end_with_its_call_of_a_hook_or_neither() {
    const COUNT: u64 = 100;
    let directory = Directory::new();
    let _mount = Mount::new(directory.path(), "16m");
    let outbox = hook_outbox();
    let mut driven = with_hooks(directory.path(), &outbox);
    driven.commit((1..=COUNT).map(accept).collect());
    fill(directory.path());
    let failed = |id| {
        let why = Failure::Refused("no".repeat(50_000).into());
        end_with(id, Status::Failed, Outcome::Failed(why))
    };
    let reader = DatabaseReader::open(directory.path()).expect("opens");
    let called = || -> Vec<u64> {
        let waiting = reader.deliveries("ops", 1_000).expect("read");
        let ids = waiting.iter().map(|one| one.request.map_or(0, |id| id.0));
        ids.collect()
    };
    // The reserve takes some; then there is nothing.
    let mut id = 1;
    let refused = loop {
        driven.store.write(vec![failed(id)]);
        match driven.answer() {
            Answer::Committed(1) => id += 1,
            Answer::NotCommitted { count: 1, .. } => break id,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused > 1 && refused < COUNT, "{refused}");
    assert_eq!(called(), (1..refused).collect::<Vec<_>>());
    let status = reader.status(RequestId(refused)).expect("read");
    assert_eq!(status, Some(Status::Queued));
    std::fs::remove_file(directory.path().join("filler")).expect("removed");
    driven.commit(vec![failed(refused)]);
    assert_eq!(called(), (1..=refused).collect::<Vec<_>>());
}

fn hook_outbox() -> Arc<HookOutbox> {
    let rule = HookRule {
        hook: "ops".into(),
        failed: true,
        ..HookRule::default()
    };
    Arc::new(HookOutbox::new(vec![rule]).expect("an outbox"))
}

fn with_hooks(state: &Path, outbox: &Arc<HookOutbox>) -> Driven {
    let (driven, _) = Driven::with(StoreConfig {
        outbox: Some(Arc::clone(outbox)),
        ..config(state)
    });
    driven
}

/// A store with calls of a hook, of requests that failed.
fn with_calls(state: &Path, outbox: &Arc<HookOutbox>, count: u64) -> Driven {
    let mut driven = with_hooks(state, outbox);
    driven.commit((1..=count).map(accept).collect());
    let failed = |id| {
        let why = Failure::Refused("no".into());
        end_with(id, Status::Failed, Outcome::Failed(why))
    };
    driven.commit((1..=count).map(failed).collect());
    driven
}

/// What is left of a disk goes to another program.
fn fill(at: &Path) {
    let full = std::fs::write(at.join("filler"), vec![0; 64 << 20]).expect_err("a larger disk");
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
}

/// The first calls that wait, by the reports that they were answered.
fn answers(state: &Path, count: usize) -> Vec<OutboxReport> {
    let reader = DatabaseReader::open(state).expect("opens");
    let waiting = reader.deliveries("ops", count).expect("read");
    let answered = |one: Delivery| OutboxReport::Answered {
        number: one.number,
        token: one.token,
    };
    waiting.into_iter().map(answered).collect()
}

fn until_written(outbox: &HookOutbox) {
    let deadline = Some(Instant::now() + Duration::from_secs(30));
    while outbox.reports() > 0 {
        assert!(outbox.wait(deadline).expect("no signal"), "not written");
        outbox.clear();
    }
}

#[test]
#[ignore = "mounts a file system, which needs root: sudo make test"]
fn a_call_that_was_answered_goes_on_a_full_disk_from_the_reserve() {
    const COUNT: u64 = 40;
    let directory = Directory::new();
    let state = directory.path();
    let _mount = Mount::new(state, "32m");
    let outbox = hook_outbox();
    let _driven = with_calls(state, &outbox, COUNT);
    fill(state);
    for report in answers(state, 1_000) {
        assert!(outbox.report(report), "it has room");
        until_written(&outbox);
    }
    assert!(answers(state, 1).is_empty());
    assert!(!state.join("reserve").exists(), "it was needed");
}

/// Have a directory as a SIGKILL would leave that of a store now.
fn leave(killed: &Path, left: &Path) {
    std::fs::create_dir(left).expect("made");
    for entry in std::fs::read_dir(killed).expect("listed") {
        let entry = entry.expect("listed");
        if entry.file_type().expect("looked at").is_file() {
            std::fs::copy(entry.path(), left.join(entry.file_name())).expect("copied");
        } else {
            std::fs::create_dir(left.join(entry.file_name())).expect("made");
        }
    }
}

#[test]
#[ignore = "mounts a file system, which needs root: sudo make test"]
fn a_store_that_was_killed_beside_a_run_opens_on_a_full_disk() {
    let directory = Directory::new();
    let _mount = Mount::new(directory.path(), "64m");
    let [killed, left] = ["killed", "left"].map(|name| directory.path().join(name));
    let (mut driven, _) = Driven::open(&killed);
    driven.commit(vec![accept(1)]);
    assert!(driven.store.journal().note(RequestId(1), 1));
    leave(&killed, &left);
    driven.store.close();
    fill(directory.path());
    let (_driven, recovery) = Driven::open(&left);
    assert_eq!(recovery.restored[0].attempts, 1, "its run had begun");
}

#[test]
#[ignore = "mounts a file system, which needs root: sudo make test"]
fn the_reserve_that_a_killed_server_leaves_on_a_full_disk_serves_the_next() {
    let directory = Directory::new();
    let _mount = Mount::new(directory.path(), "64m");
    let [killed, left] = ["killed", "left"].map(|name| directory.path().join(name));
    let driven = with_calls(&killed, &hook_outbox(), 5);
    leave(&killed, &left);
    driven.store.close();
    fill(directory.path());
    let outbox = hook_outbox();
    let _driven = with_hooks(&left, &outbox);
    for report in answers(&left, 5) {
        assert!(outbox.report(report), "it has room");
    }
    until_written(&outbox);
    assert!(answers(&left, 1).is_empty());
}

#[test]
#[ignore = "mounts a file system, which needs root: sudo make test"]
fn a_result_that_has_no_room_leaves_its_request_unfinished() {
    let directory = Directory::new();
    let _mount = Mount::new(directory.path(), "4m");
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(1), accept(2), claim(1, 1)]);
    let huge = Outcome::Succeeded(blob(vec![1; 8 << 20]));
    driven
        .store
        .write(vec![claim(2, 1), end_with(1, Status::Succeeded, huge)]);
    let Answer::NotCommitted {
        count: 2,
        why,
        permanent: false,
    } = driven.answer()
    else {
        panic!("it was written");
    };
    assert!(why.contains("result"), "{why}");
    let files = std::fs::read_dir(directory.path().join("results")).expect("listed");
    assert_eq!(files.count(), 0, "what was written of it is gone");
    driven.commit(vec![claim(2, 1), end(1)]);
}

#[test]
#[ignore = "mounts a file system, which needs root: sudo make test"]
fn a_directory_that_may_not_be_written_is_refused_by_name() {
    let directory = Directory::new();
    let _mount = Mount::new(directory.path(), "4m");
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(1)]);
    driven.store.close();
    assert!(mount(&["-o", "remount,ro"], directory.path()));
    let error = Store::open(StoreConfig::new(directory.path())).expect_err("refused");
    let text = error.to_string();
    assert!(text.contains("Read-only file system"), "{text}");
    assert!(
        text.contains(&directory.path().display().to_string()),
        "{text}"
    );
    assert!(mount(&["-o", "remount,rw"], directory.path()));
    let (_driven, recovery) = Driven::open(directory.path());
    assert_eq!(recovery.restored.len(), 1);
}

#[test]
#[ignore = "mounts a file system, which needs root: sudo make test"]
fn a_disk_whose_syncs_fail_is_told_and_keeps_what_was_told_before() {
    let directory = Directory::new();
    let [image, at] = ["image", "mount"].map(|name| directory.path().join(name));
    let disk = Mount::disk(&image, &at, 16 << 20);
    let state = at.join("state");
    let (mut driven, _) = Driven::open(&state);
    driven.commit(vec![accept(1), accept(2), claim(1, 1), end(1)]);
    assert!(disk.fail(), "the disk fails, by python3");
    for first in [10, 20, 30] {
        // The first fails in its commit, the others while the database is opened anew.
        driven.store.write(vec![accept(first), accept(first + 1)]);
        match driven.answer() {
            Answer::NotCommitted { count: 2, why, .. } => {
                assert!(why.contains("cannot write"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
    driven.store.close();
    drop(disk);

    // A copy: whoever copied the mounts meanwhile, as other tests do, keeps the failed file system of the image alive.
    let back = directory.path().join("back");
    std::fs::copy(&image, &back).expect("copied");
    let back = back.to_str().expect("text");
    assert!(mount(&["-o", "loop", back], &at), "the disk is back");
    let _disk = Mount(&at);
    let (driven, recovery) = Driven::open(&state);
    let left: Vec<u64> = recovery
        .restored
        .iter()
        .map(|one| one.request.id.0)
        .collect();
    assert_eq!(left, [2]);
    driven.store.close();
}
