//! Logs in real files: limits, followers, a disk that is full.

use super::*;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, TryRecvError};

use crate::limit::{LOG_FILES_OPEN_MAX, LOG_HEAD_BYTES};

const ID: RequestId = RequestId(7);
const LIMIT: u64 = LOG_BYTES_LEAST;

/// Logs in a directory of this test's own, which goes with it.
struct Fixture {
    logs: Logs,
    directory: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-logs-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let logs = Logs::open(&directory, LIMIT).expect("open");
        Self { logs, directory }
    }

    fn read(&self, offset: u64, most: usize) -> Piece {
        self.logs.read(ID, offset, most).expect("read")
    }

    /// Everything that a reader gets who starts at the beginning: the pieces joined.
    fn all(&self) -> Vec<Piece> {
        let mut pieces = vec![self.read(0, 100_000)];
        while let Some(last) = pieces.last().filter(|piece| !piece.bytes.is_empty()) {
            pieces.push(self.read(last.next, 100_000));
        }
        pieces.pop();
        pieces
    }

    /// Where a follower who has read everything goes on.
    fn end(&self) -> u64 {
        self.all().last().map_or(0, |piece| piece.next)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Numbered lines of 100 bytes.
fn line(number: usize) -> String {
    format!("{number:>98}.\n")
}

fn fill(log: &mut Log, lines: std::ops::Range<usize>) {
    for from in lines.clone().step_by(40) {
        let text: String = (from..lines.end.min(from + 40)).map(line).collect();
        log.append(text.as_bytes()).expect("append");
    }
}

#[test]
fn the_file_is_made_with_the_first_byte() {
    let fixture = Fixture::new();
    let mut log = fixture.logs.log(ID);
    log.append(b"").expect("append");
    assert!(!fixture.logs.path(ID).exists());
    assert_eq!(fixture.read(5, 10), Piece::nothing(5));
    log.append(b"hello\n").expect("append");
    assert_eq!(fixture.read(0, 100).bytes, b"hello\n");
    assert_eq!(fixture.end(), 6);
}

#[test]
fn a_follower_is_an_offset() {
    let fixture = Fixture::new();
    let mut log = fixture.logs.log(ID);
    let (mut offset, mut seen) = (0, Vec::new());
    for number in 0..50 {
        log.append(line(number).as_bytes()).expect("append");
        let piece = fixture.read(offset, 64);
        assert_eq!(piece.offset, offset);
        seen.extend(piece.bytes);
        offset = piece.next;
    }
    seen.extend(fixture.read(offset, 100_000).bytes);
    assert_eq!(
        seen,
        (0..50)
            .flat_map(|n| line(n).into_bytes())
            .collect::<Vec<_>>()
    );
}

/// Head, marker, and the newest lines are kept; offsets of the stream stay what they were.
fn limited(fixture: &Fixture, mut log: Log) {
    const LINES: usize = 60_000;
    fill(&mut log, 0..LINES);
    assert_eq!(fixture.end(), LINES as u64 * 100);
    let disk = std::fs::metadata(fixture.logs.path(ID))
        .expect("stat")
        .blocks()
        * 512;
    assert!(
        disk <= LIMIT + LIMIT / 8 + (128 << 10),
        "{disk} bytes on disk"
    );

    let pieces = fixture.all();
    let marker = pieces
        .iter()
        .position(|piece| piece.bytes.starts_with(b"\n[forebay: "));
    let marker = &pieces[marker.expect("a marker")];
    assert_eq!(marker.offset, LOG_HEAD_BYTES);
    let text = String::from_utf8_lossy(&marker.bytes).into_owned();
    let told: u64 = text
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .expect("a number");
    assert_eq!(marker.next, LOG_HEAD_BYTES + told);

    for piece in pieces.iter().filter(|piece| piece.offset != marker.offset) {
        let expected: Vec<u8> = (piece.offset / 100..=piece.next / 100)
            .flat_map(|number| line(usize::try_from(number).expect("small")).into_bytes())
            .collect();
        let skip = usize::try_from(piece.offset % 100).expect("small");
        assert_eq!(piece.bytes, expected[skip..skip + piece.bytes.len()]);
    }
    assert_eq!(marker.next % 100, 0, "the tail begins with a line");
    let kept: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
    assert!(kept as u64 > LIMIT - (8 << 10), "{kept} bytes are kept");

    let within = fixture.read(LOG_HEAD_BYTES + 10, 100);
    assert_eq!(within.offset, marker.next, "what was given up is skipped");
}

#[test]
fn the_middle_is_given_up_by_a_hole() {
    let fixture = Fixture::new();
    limited(&fixture, fixture.logs.log(ID));
    let bytes = std::fs::metadata(fixture.logs.path(ID))
        .expect("stat")
        .len();
    let directory = fixture.directory.display();
    assert_eq!(bytes, 6_000_000, "the file system of {directory} has holes");
}

#[test]
fn the_middle_is_given_up_where_there_are_no_holes() {
    let fixture = Fixture::new();
    limited(&fixture, fixture.logs.log(ID).without_holes());
    let bytes = std::fs::metadata(fixture.logs.path(ID))
        .expect("stat")
        .len();
    assert!(bytes <= LIMIT + LIMIT / 8);
}

#[test]
fn a_log_is_gone_on_with_by_another_server() {
    for holes in [true, false] {
        let fixture = Fixture::new();
        for round in 0..6 {
            let log = fixture.logs.log(ID);
            let mut log = if holes { log } else { log.without_holes() };
            fill(&mut log, round * 5_000..(round + 1) * 5_000);
        }
        assert_eq!(fixture.end(), 3_000_000);
        let last = fixture.read(2_999_800, 10_000);
        assert_eq!(last.bytes, (line(29_998) + &line(29_999)).into_bytes());
        assert_eq!((last.offset, last.next), (2_999_800, 3_000_000));
    }
}

#[test]
fn a_full_disk_is_told_once_and_later_how_much_is_missing() {
    let fixture = Fixture::new();
    // As if all files that may stay open were: each write opens its own.
    fixture
        .logs
        .open
        .store(LOG_FILES_OPEN_MAX, Ordering::Relaxed);
    let path = fixture.logs.path(ID);
    std::os::unix::fs::symlink("/dev/full", &path).expect("link");
    let mut log = fixture.logs.log(ID);
    let error = log.append(b"12345").expect_err("the disk is full");
    assert!(error.to_string().contains("No space left"), "{error}");
    log.append(b"67890").expect("told once");
    assert_eq!(log.lost_bytes(), 10);
    std::fs::remove_file(&path).expect("remove");
    log.append(b"again\n").expect("append");
    let expected = b"\n[forebay: 10 bytes of output could not be written]\nagain\n";
    assert_eq!(fixture.read(0, 1_000).bytes, expected);
    assert_eq!(log.lost_bytes(), 0);
}

#[test]
fn files_that_stay_open_are_limited() {
    let fixture = Fixture::new();
    let mut logs: Vec<Log> = (0..LOG_FILES_OPEN_MAX as u64 + 20)
        .map(|number| fixture.logs.log(RequestId(number)))
        .collect();
    for _ in 0..2 {
        for log in &mut logs {
            log.append(b"x").expect("append");
        }
    }
    assert_eq!(
        fixture.logs.open.load(Ordering::Relaxed),
        LOG_FILES_OPEN_MAX
    );
    drop(logs);
    assert_eq!(fixture.logs.open.load(Ordering::Relaxed), 0);
    let last = RequestId(LOG_FILES_OPEN_MAX as u64 + 19);
    assert_eq!(fixture.logs.read(last, 0, 9).expect("read").bytes, b"xx");
}

#[test]
fn a_limit_without_room_for_head_and_tail_is_refused() {
    let error = Logs::open(&std::env::temp_dir(), LIMIT - 1).expect_err("too small");
    assert!(error.to_string().starts_with("max_log_bytes is"), "{error}");
}

/// Copies the log of [`ID`] to another folder, where it can be read.
fn copy_of(fixture: &Fixture) -> Fixture {
    let other = Fixture::new();
    let name = format!("{ID}.log");
    let bytes = copy_log(&fixture.directory.join(&name), &other.directory.join(&name));
    let found = std::fs::metadata(other.directory.join(&name)).expect("there");
    assert_eq!(bytes.expect("copied"), found.len());
    other
}

#[test]
fn a_copy_of_a_log_reads_as_the_log_and_takes_no_more_room() {
    let fixture = Fixture::new();
    let mut log = fixture.logs.log(ID);
    fill(&mut log, 0..100);
    assert_eq!(copy_of(&fixture).all(), fixture.all());
    // Twenty times the limit: most of the file is a hole.
    fill(&mut log, 100..200_000);
    let copy = copy_of(&fixture);
    assert_eq!(copy.all(), fixture.all());
    let name = format!("{ID}.log");
    let blocks = |of: &Fixture| {
        std::fs::metadata(of.directory.join(&name))
            .expect("there")
            .blocks()
    };
    assert!(
        blocks(&copy) <= blocks(&fixture) + 16,
        "{} blocks",
        blocks(&copy)
    );
    assert!(copy_log(Path::new("/nonexistent.log"), &copy.directory.join("x")).is_err());
}

#[test]
fn a_log_that_is_copied_while_it_is_written_has_no_line_that_was_not_written() {
    let fixture = Fixture::new();
    let mut log = fixture.logs.log(ID);
    fill(&mut log, 0..10_000);
    let (writing, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let _writing = writing; // dropped in a panic too, so that the writer ends
        let log = &mut log;
        scope.spawn(move || {
            let mut at = 10_000;
            while ended.try_recv() == Err(TryRecvError::Empty) {
                fill(log, at..at + 4_000);
                at += 4_000;
            }
        });
        for _ in 0..50 {
            let pieces = copy_of(&fixture).all();
            let text: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.bytes).collect();
            let text = String::from_utf8(text).expect("text, and no zeros");
            let strange = text.lines().find(|line| line.contains('\0'));
            assert_eq!(strange.map(str::len), None, "bytes of zeros");
        }
    });
}
