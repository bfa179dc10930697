//! What is written is read again, and hostile messages are errors.

use forebay_executor::message::{Reader, Value, Writer};
use proptest::prelude::*;

/// A message, as a tree.
#[derive(Clone, Debug, PartialEq)]
enum Tree {
    Nil,
    Bool(bool),
    Int(i64),
    Unsigned(u64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    Ext(i8, Vec<u8>),
    Array(Vec<Tree>),
    Map(Vec<(Tree, Tree)>),
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Nil),
        any::<bool>().prop_map(Tree::Bool),
        any::<i64>().prop_map(Tree::Int),
        (-70_000..70_000_i64).prop_map(Tree::Int),
        any::<u64>().prop_map(Tree::Unsigned),
        (-1e9..1e9_f64).prop_map(Tree::Float),
        "\\PC{0,40}".prop_map(Tree::Text),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Tree::Bytes),
        (any::<i8>(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(k, b)| Tree::Ext(k, b)),
    ];
    leaf.prop_recursive(4, 64, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Tree::Array),
            prop::collection::vec((inner.clone(), inner), 0..20).prop_map(Tree::Map),
        ]
    })
}

fn write(tree: &Tree, writer: &mut Writer) {
    match tree {
        Tree::Nil => writer.nil(),
        Tree::Bool(value) => writer.boolean(*value),
        Tree::Int(value) => writer.integer(*value),
        Tree::Unsigned(value) => writer.unsigned(*value),
        Tree::Float(value) => writer.float(*value),
        Tree::Text(text) => writer.text(text),
        Tree::Bytes(bytes) => writer.binary(bytes),
        Tree::Ext(kind, bytes) => writer.ext(*kind, bytes),
        Tree::Array(values) => {
            writer.array(values.len());
            for value in values {
                write(value, writer);
            }
            writer
        }
        Tree::Map(pairs) => {
            writer.map(pairs.len());
            for (key, value) in pairs {
                write(key, writer);
                write(value, writer);
            }
            writer
        }
    };
}

fn read(reader: &mut Reader<'_>) -> Tree {
    match reader.value().expect("a value") {
        Value::Nil => Tree::Nil,
        Value::Bool(value) => Tree::Bool(value),
        Value::Int(value) => Tree::Int(value),
        Value::Large(value) => Tree::Unsigned(value),
        Value::Float(value) => Tree::Float(value),
        Value::Str(text) => Tree::Text(text.into()),
        Value::Bin(bytes) => Tree::Bytes(bytes.into()),
        Value::Ext(kind, bytes) => Tree::Ext(kind, bytes.into()),
        Value::Array(count) => Tree::Array((0..count).map(|_| read(reader)).collect()),
        Value::Map(count) => {
            let pairs = (0..count).map(|_| (read(reader), read(reader)));
            Tree::Map(pairs.collect())
        }
    }
}

/// One integer has one form, whatever it was written as.
fn plain(tree: Tree) -> Tree {
    match tree {
        Tree::Unsigned(value) => i64::try_from(value).map_or(tree, Tree::Int),
        Tree::Array(values) => Tree::Array(values.into_iter().map(plain).collect()),
        Tree::Map(pairs) => Tree::Map(
            pairs
                .into_iter()
                .map(|(k, v)| (plain(k), plain(v)))
                .collect(),
        ),
        other => other,
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again_and_skipped_as_one(tree in tree()) {
        let mut writer = Writer::default();
        write(&tree, &mut writer);
        let bytes = writer.into_bytes();
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(read(&mut reader), plain(tree));
        prop_assert!(reader.end().is_ok());
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(reader.skip().expect("a value"), &bytes[..]);
    }

    #[test]
    fn a_message_that_was_cut_is_an_error(tree in tree(), part in 0.0..1.0_f64) {
        let mut writer = Writer::default();
        write(&tree, &mut writer);
        let bytes = writer.into_bytes();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let cut = (bytes.len() as f64 * part) as usize;
        prop_assert!(Reader::new(&bytes[..cut]).skip().is_err());
    }
}

#[test]
fn depth_and_claimed_lengths_cost_nothing() {
    let deep = vec![0x91; 1 << 20];
    assert!(Reader::new(&deep).skip().is_err());
    for claim in [
        &b"\xdd\xff\xff\xff\xff"[..],
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff",
    ] {
        assert!(Reader::new(claim).skip().is_err(), "{claim:?}");
        assert!(Reader::new(claim).value().is_err(), "{claim:?}");
    }
}
