//! Runs that began before their claim was committed.

use std::os::unix::fs::FileExt;

use forebay_executor::id::RequestId;
use forebay_executor::journal::{Journal, Note};
use forebay_executor::request::Status;
use forebay_executor::store::StoreError;

use crate::given::{Directory, Driven, accept, claim, end};

const ENTRIES: usize = 1_024;

#[test]
fn a_run_that_only_the_journal_knows_has_begun() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(1), accept(2), accept(3), claim(3, 1), end(3)]);
    let journal = driven.store.journal();
    assert!(journal.note(RequestId(1), 1));
    assert!(journal.note(RequestId(3), 2), "of one that has ended");
    assert!(
        journal.note(RequestId(9), 1),
        "of one that was never accepted"
    );
    driven.store.close();

    for opened in 0..2 {
        let (driven, recovery) = Driven::open(directory.path());
        let stands: Vec<_> = recovery
            .restored
            .iter()
            .map(|one| (one.request.id.0, one.status, one.attempts))
            .collect();
        assert_eq!(
            stands,
            [(1, Status::Running, 1), (2, Status::Queued, 0)],
            "open {opened}"
        );
        assert!(driven.store.journal().notes().is_empty());
    }
}

#[test]
fn a_commit_clears_the_notes_up_to_its_claim_and_no_later_one() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(1), accept(2)]);
    let journal = std::sync::Arc::clone(driven.store.journal());
    assert!(journal.note(RequestId(1), 1) && journal.note(RequestId(2), 2));
    let second = Note {
        id: RequestId(2),
        attempt: 2,
    };
    driven.commit(vec![claim(1, 1)]);
    assert_eq!(journal.notes(), [second]);
    // The second run was noted before the claim of the first came to the disk.
    driven.commit(vec![claim(2, 1)]);
    assert_eq!(journal.notes(), [second]);
    driven.commit(vec![claim(2, 2)]);
    assert!(journal.notes().is_empty());
}

#[test]
fn an_end_frees_what_was_noted_after_its_claim_was_committed() {
    let directory = Directory::new();
    let (mut driven, _) = Driven::open(directory.path());
    driven.commit(vec![accept(1), claim(1, 1)]);
    let journal = std::sync::Arc::clone(driven.store.journal());
    assert!(journal.note(RequestId(1), 1) && journal.note(RequestId(1), 1));
    driven.commit(vec![end(1)]);
    assert!(journal.notes().is_empty());
}

#[test]
fn a_journal_has_room_for_what_it_says_and_then_refuses() {
    let directory = Directory::new();
    let journal = Journal::open(&directory.path().join("journal"), ENTRIES).expect("opens");
    let id = |number: u64| RequestId(1 << 40 | number);
    let mut noted = Vec::new();
    let refused = (0..=ENTRIES as u64).find(|&number| {
        let there = journal.note(id(number), 1);
        noted.extend(there.then_some(number));
        !there
    });
    let refused = refused.expect("it is bounded");
    assert!(refused > ENTRIES as u64 * 6 / 10, "refused after {refused}");
    assert_eq!(journal.notes().len(), noted.len());
    for number in noted {
        journal.clear(id(number), 1);
    }
    assert!(journal.notes().is_empty());
    assert!(journal.note(id(refused), 1), "there is room again");
}

#[test]
fn a_note_that_is_not_whole_is_none() {
    let directory = Directory::new();
    let path = directory.path().join("journal");
    let journal = Journal::open(&path, ENTRIES).expect("opens");
    assert!(journal.note(RequestId(7), 1));
    drop(journal);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("opens");
    // An id without its seal in the first entry, unless that is the one in use.
    let mut word = [0; 8];
    let place = 64;
    std::fs::File::open(&path)
        .expect("opens")
        .read_exact_at(&mut word, place)
        .expect("read");
    assert_eq!(word, [0; 8], "the entry is free");
    file.write_all_at(&8_u64.to_ne_bytes(), place)
        .expect("written");
    let journal = Journal::open(&path, ENTRIES).expect("opens");
    let whole = Note {
        id: RequestId(7),
        attempt: 1,
    };
    assert_eq!(journal.notes(), [whole]);
}

#[test]
fn another_file_is_refused() {
    let directory = Directory::new();
    let path = directory.path().join("journal");
    std::fs::write(&path, [b'x'; 4_096]).expect("written");
    let error = Journal::open(&path, ENTRIES).expect_err("refused");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[test]
fn a_second_store_is_told_who_has_the_directory() {
    let directory = Directory::new();
    let (_driven, _) = Driven::open(directory.path());
    let config = forebay_executor::store::StoreConfig::new(directory.path());
    let error = forebay_executor::store::Store::open(config).expect_err("in use");
    let text = error.to_string();
    assert!(
        text.contains(&format!("process {}", std::process::id())),
        "{text}"
    );
}
