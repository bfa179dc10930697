//! What a table says of tensors that come, change and go.
use super::*;
use crate::dtype::{Dtype, Number};
use crate::version_table::Missed;

fn description(rows: u64, columns: u64) -> Description {
    Description {
        dtype: Dtype {
            number: Number::Unsigned,
            item_bytes: 4,
            text: "<u4".into(),
        },
        shape: vec![rows, columns],
    }
}

fn publish(
    table: &mut Table<&'static str>,
    name: &'static str,
    memory: &mut [u8],
    columns: u64,
) -> Key {
    let span = Span::of(memory);
    let about = description(memory.len() as u64 / 4 / columns, columns);
    let row_bytes = table.check(name, &about, span).expect("it is right");
    table.publish(name, about, row_bytes, (span, Exports::default()), name)
}

fn current(table: &Table<&'static str>, key: Key) -> Option<u32> {
    match table.find(key) {
        Found::Live(tensor) => Some(tensor.generation),
        Found::Stale { current, .. } => Some(current),
        Found::Never => None,
    }
}

#[test]
fn a_handle_from_before_a_drop_is_refused_for_ever() {
    let mut memory = [0; 64];
    let mut table = Table::new(4);
    let first = publish(&mut table, "a", &mut memory, 2);
    assert!(matches!(table.find(first), Found::Live(_)));
    table.drop_tensor("a").expect("it is there");
    assert_eq!(table.storages.take_retired(), Some("a"));
    assert!(matches!(
        table.find(first),
        Found::Stale {
            current: 0,
            row_bytes: Some(8)
        }
    ));
    let second = publish(&mut table, "b", &mut memory, 2);
    assert_eq!((second.id, second.generation), (first.id, 2));
    assert!(matches!(table.find(first), Found::Stale { current: 2, .. }));
    assert_eq!(
        current(
            &table,
            Key {
                id: 0,
                generation: 3
            }
        ),
        None
    );
    assert_eq!(
        current(
            &table,
            Key {
                id: 0,
                generation: 0
            }
        ),
        None
    );
    assert_eq!(
        current(
            &table,
            Key {
                id: 1,
                generation: 1
            }
        ),
        None
    );
}

/// Otherwise the rest of a request with a push to it could not be found.
#[test]
fn an_id_keeps_its_row_size() {
    let mut memory = [0; 64];
    let mut table = Table::new(4);
    let narrow = publish(&mut table, "a", &mut memory, 1);
    let wide = publish(&mut table, "a", &mut memory, 4);
    assert_ne!(narrow.id, wide.id);
    assert!(matches!(
        table.find(narrow),
        Found::Stale {
            current: 0,
            row_bytes: Some(4)
        }
    ));
    let again = publish(&mut table, "c", &mut memory, 1);
    assert_eq!((again.id, again.generation), (narrow.id, 2));
}

#[test]
fn memory_is_given_back_when_the_last_answer_has_gone() {
    let mut memory = [0; 64];
    let mut table = Table::new(4);
    let key = publish(&mut table, "a", &mut memory, 2);
    let Found::Live(tensor) = table.find(key) else {
        panic!("it is there");
    };
    let storage = tensor.storage;
    table.storages.hold(storage, 0, 2);
    publish(&mut table, "a", &mut [0; 64], 2);
    table.storages.release(storage, 0, 1);
    assert_eq!(table.storages.take_retired(), None);
    table.storages.release(storage, 0, 1);
    assert_eq!(table.storages.take_retired(), Some("a"));
}

#[test]
fn rows_are_set_and_added_to_and_each_write_is_a_version() {
    let mut memory = [0; 32];
    let mut table = Table::new(4);
    let key = publish(&mut table, "a", &mut memory, 1);
    let values = |numbers: &[u32]| {
        numbers
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let slice = Rows::Slice { first: 1, count: 2 };
    let version = table.write(
        key.id,
        slice,
        Operation::Set,
        Span::sending(&values(&[5, 6])),
    );
    assert_eq!(version, 1);
    let twice: Vec<u8> = [2_u64, 2, 7].iter().flat_map(|n| n.to_ne_bytes()).collect();
    let indices = Rows::Indices(Words::new(Span::sending(&twice)));
    let version = table.write(
        key.id,
        indices,
        Operation::Add,
        Span::sending(&values(&[10, 100, 1])),
    );
    assert_eq!(version, 2);
    assert_eq!(memory.to_vec(), values(&[0, 5, 116, 0, 0, 0, 0, 1]));
    assert_eq!(table.meaning("a").map(|meaning| meaning.version), Ok(2));
}

#[test]
fn what_cannot_be_published_is_refused() {
    let mut memory = [0; 64];
    let span = Span::of(&mut memory);
    let mut table = Table::<&'static str>::new(1);
    let class = |result: Result<u64, Error>| result.map_err(|error| error.class());
    let right = description(8, 2);
    assert_eq!(class(table.check("a", &right, span)), Ok(8));
    for name in ["", "a\nb", &"x".repeat(256)] {
        assert_eq!(
            class(table.check(name, &right, span)),
            Err(crate::Class::Config)
        );
    }
    for wrong in [
        description(8, 3),
        description(8, 0),
        description(1 << 62, 1 << 62),
    ] {
        assert_eq!(
            class(table.check("a", &wrong, span)),
            Err(crate::Class::Config)
        );
    }
    publish(&mut table, "a", &mut memory, 2);
    assert_eq!(
        class(table.check("b", &right, span)),
        Err(crate::Class::Limit)
    );
    assert_eq!(
        class(table.check("a", &right, span)),
        Ok(8),
        "one is replaced"
    );
}

#[test]
fn an_unknown_name_is_answered_with_those_near_it() {
    let mut memory = [0; 64];
    let mut table = Table::new(4);
    publish(&mut table, "embedding", &mut memory, 2);
    let unknown = table.meaning("embeddings").expect_err("it is not there");
    assert_eq!(unknown.nearest, ["embedding"]);
    let error = table
        .drop_tensor("embeddings")
        .expect_err("it is not there");
    assert!(error.to_string().contains("\"embedding\""), "{error}");
}

#[test]
fn a_version_table_follows_the_tensors() {
    let mut words = [0; 2];
    let mut readers = words;
    let (mine, theirs) = (Span::of_words(&mut words), Span::of_words(&mut readers));
    let read = |key: Key| {
        theirs.copy_from(mine);
        VersionTable::new(theirs)
            .expect("words are aligned")
            .read(key, || {})
    };
    let mut memory = [0; 32];
    let mut table = Table::new(4);
    let first = publish(&mut table, "a", &mut memory, 1);
    let row = Rows::Slice { first: 0, count: 1 };
    table.write(first.id, row, Operation::Set, Span::sending(&[1; 4]));
    table.attach_versions(VersionTable::new(mine).expect("words are aligned"));
    assert_eq!(read(first), Ok(1));
    table.write(first.id, row, Operation::Set, Span::sending(&[2; 4]));
    assert_eq!(read(first), Ok(2));
    let second = publish(&mut table, "a", &mut memory, 1);
    assert_eq!(read(first), Err(Missed::Stale(second.generation)));
    assert_eq!(read(second), Ok(0));
    table.drop_tensor("a").expect("it is there");
    assert_eq!(read(second), Err(Missed::Stale(0)));
}

/// Of ever different row sizes: the table does not grow, and says of old handles what it can.
#[test]
fn ids_are_used_again_for_other_row_sizes_once_there_are_many() {
    let mut memory = vec![0; 4096];
    let mut table = Table::new(4);
    let mut keys = Vec::new();
    for columns in 1..1000 {
        let span = Span::of(&mut memory[..4 * columns]);
        let about = description(1, columns as u64);
        let row_bytes = table.check("a", &about, span).expect("it is right");
        keys.push(table.publish("a", about, row_bytes, (span, Exports::default()), "a"));
    }
    let most = keys.iter().map(|key| key.id).max();
    assert!(most < Some(70), "{most:?}");
    let found = |key: &Key| match table.find(*key) {
        Found::Stale { row_bytes, .. } => row_bytes,
        _ => panic!("{key:?} is from before"),
    };
    assert_eq!(found(&keys[0]), None, "that is long ago");
    let before: Vec<_> = keys[998 - free::REMEMBERED..998]
        .iter()
        .map(found)
        .collect();
    let sizes = 999 - free::REMEMBERED as u64..999;
    assert_eq!(
        before,
        sizes.map(|columns| Some(4 * columns)).collect::<Vec<_>>()
    );
}
