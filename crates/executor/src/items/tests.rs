//! Items in real files: epochs, numbers, files that are no such files.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::limit::{ITEM_BYTES_MOST, ITEM_LOOKS_MAX, ITEM_PIECE_BYTES, ITEM_PIECE_COUNT};

const ID: RequestId = RequestId(7);

/// The epoch, the number of the first item, and the items of a piece.
type Seen = (u64, u64, Vec<Vec<u8>>);

/// A state directory of this test's own, which goes with it.
struct Fixture {
    items: Items,
    state: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("forebay-items-{}-{number}", std::process::id());
        let state = std::env::temp_dir().join(name);
        fs::create_dir_all(state.join(ITEMS)).expect("a directory");
        let items = Items::new(&state);
        Self { items, state }
    }

    /// Write the file of an epoch anew, as a worker does.
    fn write(&self, epoch: u64, items: &[Vec<u8>]) {
        let length = |item: &Vec<u8>| u32::try_from(item.len()).expect("a length").to_le_bytes();
        let body: Vec<u8> = items
            .iter()
            .flat_map(|item| [&length(item)[..], item].concat())
            .collect();
        let end = HEAD_BYTES + body.len() as u64;
        let head = head(epoch, items.len() as u64, end);
        self.write_raw(&[head, body].concat());
    }

    fn write_raw(&self, bytes: &[u8]) {
        let (path, new) = (self.items.path(ID), self.state.join("new"));
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new);
        file.expect("a file")
            .write_all_at(bytes, 0)
            .expect("written");
        fs::rename(new, path).expect("renamed");
    }

    /// What a reader gets until there is nothing: epoch, first number and items of each piece, and how often it was
    /// told to come later.
    fn read(&self, reader: &mut ItemsReader) -> (Vec<Seen>, usize) {
        let (mut pieces, mut turns) = (Vec::new(), 0);
        loop {
            match reader.next(&self.items, ID).expect("read") {
                NextItems::Piece(piece) => {
                    let items = piece
                        .items
                        .iter()
                        .map(|item| piece.bytes[item.clone()].to_vec());
                    pieces.push((piece.epoch, piece.first, items.collect()));
                }
                NextItems::Later => turns += 1,
                NextItems::Nothing => return (pieces, turns),
            }
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.state));
    }
}

fn head(epoch: u64, count: u64, end: u64) -> Vec<u8> {
    let said = [epoch, count, end].map(u64::to_le_bytes).concat();
    let mut head = [&MAGIC[..], &said].concat();
    head.extend([0; 32]);
    head
}

fn numbered(numbers: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    numbers
        .map(|number| number.to_string().into_bytes())
        .collect()
}

#[test]
fn a_reader_gets_the_epoch_then_its_items_then_those_that_are_added() {
    let fixture = Fixture::new();
    let mut reader = ItemsReader::new(None, 0);
    assert_eq!(fixture.read(&mut reader).0, [], "no run has begun");
    fixture.write(1, &[]);
    assert_eq!(fixture.read(&mut reader).0, [(1, 1, vec![])]);
    fixture.write(1, &numbered(1..3));
    assert_eq!(fixture.read(&mut reader).0, [(1, 1, numbered(1..3))]);
    fixture.write(1, &numbered(1..6));
    assert_eq!(fixture.read(&mut reader).0, [(1, 3, numbered(3..6))]);
    assert_eq!(fixture.read(&mut reader).0, []);
}

#[test]
fn a_reader_that_comes_back_goes_on_behind_its_number() {
    let fixture = Fixture::new();
    fixture.write(2, &numbered(1..6));
    let behind = |epoch, after| fixture.read(&mut ItemsReader::new(epoch, after)).0;
    assert_eq!(behind(Some(2), 3), [(2, 4, numbered(4..6))]);
    assert_eq!(behind(None, 3), [(2, 4, vec![]), (2, 4, numbered(4..6))]);
    assert_eq!(behind(Some(2), 5), []);
    assert_eq!(
        behind(Some(2), 9),
        [],
        "what has not come yet is not passed over"
    );
    let mut ahead = ItemsReader::new(Some(2), 7);
    assert_eq!(fixture.read(&mut ahead).0, []);
    fixture.write(2, &numbered(1..10));
    assert_eq!(fixture.read(&mut ahead).0, [(2, 8, numbered(8..10))]);
}

#[test]
fn a_new_epoch_is_told_before_its_items_and_begins_with_the_first() {
    let fixture = Fixture::new();
    fixture.write(1, &numbered(1..6));
    let mut reader = ItemsReader::new(None, 4);
    fixture.read(&mut reader);
    fixture.write(2, &numbered(10..12));
    let expected = [(2, 1, vec![]), (2, 1, numbered(10..12))];
    assert_eq!(fixture.read(&mut reader).0, expected);
    assert_eq!(fixture.read(&mut ItemsReader::new(Some(1), 4)).0, expected);
}

#[test]
fn a_message_takes_so_many_items_and_so_many_bytes() {
    let fixture = Fixture::new();
    let many = vec![vec![1]; ITEM_PIECE_COUNT + 1];
    fixture.write(1, &many);
    let mut reader = ItemsReader::new(Some(1), 0);
    let counts: Vec<_> = fixture
        .read(&mut reader)
        .0
        .iter()
        .map(|piece| piece.2.len())
        .collect();
    assert_eq!(counts, [ITEM_PIECE_COUNT, 1]);
    let sizes = [
        10,
        ITEM_PIECE_BYTES - 4,
        ITEM_PIECE_BYTES,
        3 * ITEM_PIECE_BYTES,
        10,
    ];
    let items: Vec<_> = sizes.iter().map(|size| vec![7; *size]).collect();
    fixture.write(2, &items);
    let mut reader = ItemsReader::new(Some(2), 0);
    let pieces = fixture.read(&mut reader).0;
    assert_eq!(
        pieces.iter().map(|piece| piece.1).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    assert_eq!(
        pieces
            .into_iter()
            .flat_map(|piece| piece.2)
            .collect::<Vec<_>>(),
        items
    );
}

#[test]
fn many_items_are_passed_over_in_several_turns() {
    let fixture = Fixture::new();
    let many = 2 * ITEM_LOOKS_MAX as u64 + 10;
    fixture.write(1, &numbered(1..many + 1));
    let mut reader = ItemsReader::new(Some(1), many - 2);
    let (pieces, turns) = fixture.read(&mut reader);
    assert_eq!(pieces, [(1, many - 1, numbered(many - 1..many + 1))]);
    assert_eq!(turns, 2);
    let large = vec![vec![1; 100_000]; 150];
    fixture.write(2, &large);
    let (pieces, turns) = fixture.read(&mut ItemsReader::new(Some(2), 149));
    assert_eq!((pieces.len(), pieces[0].1, turns), (1, 150, 2));
}

#[test]
fn what_lies_behind_the_end_that_the_head_names_is_no_item_yet() {
    let fixture = Fixture::new();
    let whole = [1, 0, 0, 0, 9];
    let half = [8, 0, 0, 0, 1, 2];
    let end = HEAD_BYTES + whole.len() as u64;
    fixture.write_raw(&[&head(1, 1, end)[..], &whole, &half].concat());
    let mut reader = ItemsReader::new(Some(1), 0);
    assert_eq!(fixture.read(&mut reader).0, [(1, 1, vec![vec![9]])]);
}

#[test]
fn a_file_that_is_damaged_or_foreign_is_an_error_once() {
    let fixture = Fixture::new();
    let body = |length: u32, bytes: &[u8]| [&length.to_le_bytes()[..], bytes].concat();
    let most = u32::try_from(ITEM_BYTES_MOST).expect("a length");
    let damaged = [
        b"FBITEMS".to_vec(),
        [b"XBITEMS1", &head(1, 0, HEAD_BYTES)[8..]].concat(),
        head(1, 0, HEAD_BYTES - 1),
        head(1, 1, HEAD_BYTES + 5),
        [head(1, 1, HEAD_BYTES + 5), body(0, b"x")].concat(),
        [head(1, 1, HEAD_BYTES + 5), body(2, b"x")].concat(),
        [head(1, 1, HEAD_BYTES + 5), body(most + 1, b"x")].concat(),
        [head(1, 1, HEAD_BYTES + 2), body(1, b"x")].concat(),
        head(1, 1, u64::MAX),
    ];
    for bytes in damaged {
        fixture.write_raw(&bytes);
        for after in [0, 5] {
            let mut reader = ItemsReader::new(Some(1), after);
            assert!(
                reader.next(&fixture.items, ID).is_err(),
                "{bytes:?} {after}"
            );
            assert_eq!(
                reader.next(&fixture.items, ID).expect("nothing"),
                NextItems::Nothing
            );
        }
    }
    let other = fixture.state.join("other");
    fixture.write(1, &numbered(1..2));
    fs::rename(fixture.items.path(ID), &other).expect("renamed");
    symlink(&other, fixture.items.path(ID)).expect("a link");
    assert!(
        ItemsReader::new(None, 0).next(&fixture.items, ID).is_err(),
        "a link"
    );
}

#[test]
fn a_file_with_any_bytes_wrong_is_read_or_refused() {
    let fixture = Fixture::new();
    fixture.write(1, &numbered(1..40));
    let whole = fs::read(fixture.items.path(ID)).expect("a file");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below as u64).expect("an index")
    };
    for _ in 0..400 {
        let mut bytes = whole.clone();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            bytes[at] = [0, 1, 0xff, bytes[at].wrapping_add(1)][next(4)];
        }
        bytes.truncate(bytes.len() - next(2) * next(whole.len()));
        fixture.write_raw(&bytes);
        let mut reader = ItemsReader::new(Some(1), next(50) as u64);
        let mut looks = 0;
        while let Ok(found) = reader.next(&fixture.items, ID) {
            looks += 1;
            assert!(looks < 100, "it ends");
            match found {
                NextItems::Piece(piece) => {
                    assert!(piece.items.iter().all(|item| item.end <= piece.bytes.len()));
                }
                NextItems::Later => {}
                NextItems::Nothing => break,
            }
        }
    }
}
