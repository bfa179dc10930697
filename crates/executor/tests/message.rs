//! What is written is read again, and hostile messages are errors.
//!
//! `FOREBAY_MUTATIONS` sets how many mutated messages are tried (default 20,000, under a second).

#[path = "../../transport/tests/random/mod.rs"]
mod random;

use std::sync::Arc;

use forebay_executor::id::RequestId;
use forebay_executor::message::{
    Call, Reader, Run, Value, WorkerReply, Writer, options, progressed, run,
};
use forebay_executor::request::Options;
use proptest::prelude::*;
use random::Random;

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

fn mutate(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        let interesting =
            [0, 0x7f, 0x80, 0xc1, 0xc6, 0xc9, 0xdb, 0xdd, 0xdf, 0xff][random.below(10)];
        match random.below(4) {
            0 if !bytes.is_empty() => bytes[at] = interesting,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            _ => bytes.insert(at.min(bytes.len()), interesting),
        }
    }
    bytes
}

fn seeds() -> Vec<Vec<u8>> {
    let call = |method: &str, fill: &dyn Fn(&mut Writer), count| {
        let mut writer = Writer::default();
        writer.array(3).text(method).array(count);
        fill(&mut writer);
        writer.nil();
        writer.into_bytes()
    };
    let id = RequestId(7).to_string();
    let submit = |w: &mut Writer| {
        w.text("f").binary(b"\x81\xa1x\x05").map(3);
        w.text("after")
            .array(1)
            .text(&id)
            .text("timeout_s")
            .float(0.5);
        w.text("key").text("k").unsigned(9);
    };
    let arguments = b"\x80".as_slice().into();
    let order = Run {
        name: "f",
        arguments: &arguments,
        id: RequestId(1),
        attempt: 1,
        deadline_ms: None,
        traceparent: None,
    };
    vec![
        call("submit", &submit, 4),
        call("run", &submit, 4),
        call(
            "logs",
            &|w| {
                w.text(&id).unsigned(4).boolean(true);
            },
            3,
        ),
        call(
            "list",
            &|w| {
                w.map(1).text("status").text("queued");
            },
            1,
        ),
        run(&order).head,
        b"\x92\x00\xc4\x01\x80".to_vec(),
        b"\x92\x01\x81\xa7message\xa1x".to_vec(),
        b"\x82\xa4done\x03\xa5total\x0a".to_vec(),
    ]
}

#[test]
fn mutated_messages_are_errors_and_never_more() {
    let count = std::env::var("FOREBAY_MUTATIONS").ok();
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let seeds = seeds();
    let defaults = Arc::new(Options::default());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut refused = 0;
    for _ in 0..count {
        let bytes = mutate(&seeds[random.below(seeds.len())], &mut random);
        match Call::read(&bytes, None) {
            Ok(Call::Submit(submit) | Call::Run(submit)) => {
                let _ = options(submit.options, &defaults, 0);
                assert!(submit.arguments.len() <= bytes.len());
            }
            Ok(_) => {}
            Err(_) => refused += 1,
        }
        let _ = (WorkerReply::read(&bytes, None), progressed(&bytes));
    }
    assert!(refused > count / 100, "the mutations reach the checks");
    assert!(refused < count, "and do not break everything");
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
