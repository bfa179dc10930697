//! Writes of one batch that go to the same bytes, which are written in any order.
//!
//! That is allowed, and hardly ever meant, so builds with debug assertions refuse such a batch and name both writes.
//! A release build does not look: sorting a list of writes costs more than submitting some of them.
//!
//! A sync orders the writes before it and those behind it, so only writes without one between them are compared.
//! What has no offsets, as a pipe, and what forgets, as `/dev/null`, is left out.
use crate::error::Error;
use crate::operation::{Checked, Kind};

/// Bytes of a file that an operation writes.
#[derive(Clone, Copy, Debug)]
struct Span {
    file: u16,
    start: u64,
    end: u64,
    index: usize,
}

/// Refuse a batch of which two writes overlap: its operations with their indices, and whether a file keeps what is written.
pub(crate) fn check(
    operations: impl Iterator<Item = (usize, Checked)>,
    keeps_bytes: impl Fn(u16) -> bool,
) -> Result<(), Error> {
    let Some((one, other)) = first_overlap(operations, keeps_bytes) else {
        return Ok(());
    };
    let (first, second) = if one.index < other.index {
        (one, other)
    } else {
        (other, one)
    };
    Err(Error::Operation {
        index: second.index,
        field: "offset",
        value: second.start,
        advice: "writes of one batch are in no order, and it overlaps operation",
        limit: first.index as u64,
    })
}

fn first_overlap(
    operations: impl Iterator<Item = (usize, Checked)>,
    keeps_bytes: impl Fn(u16) -> bool,
) -> Option<(Span, Span)> {
    let mut unordered = Vec::new();
    for (index, operation) in operations {
        match operation.kind {
            Kind::Read => {}
            Kind::Write if operation.length == 0 => {}
            Kind::Write => unordered.push(Span {
                file: operation.file,
                start: operation.offset,
                end: operation.offset + u64::from(operation.length),
                index,
            }),
            Kind::Fsync | Kind::Fdatasync => {
                let found = overlap(&mut unordered, &keeps_bytes);
                if found.is_some() {
                    return found;
                }
                unordered.clear();
            }
        }
    }
    overlap(&mut unordered, &keeps_bytes)
}

/// Two spans that share a byte, where their file keeps it: some two that do are neighbours once they are sorted.
fn overlap(spans: &mut [Span], keeps_bytes: impl Fn(u16) -> bool) -> Option<(Span, Span)> {
    spans.sort_unstable_by_key(|span| (span.file, span.start, span.index));
    spans.windows(2).find_map(|pair| {
        let (one, other) = (pair[0], pair[1]);
        let shares = one.file == other.file && other.start < one.end;
        (shares && keeps_bytes(one.file)).then_some((one, other))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::first_overlap;
    use crate::batch::{Batch, Files, Operations};
    use crate::error::Error;
    use crate::file::{BlockFile, Mode};
    use crate::operation::{Kind, Operation};
    use crate::sys::lent;

    /// An operation of a few bytes, so that many overlap.
    fn operations() -> impl Strategy<Value = Vec<Operation>> {
        let kind = prop_oneof![
            6 => Just(Kind::Write),
            1 => Just(Kind::Read),
            1 => Just(Kind::Fdatasync),
        ];
        let operation = (kind, 0_u16..2, 0_u64..200, 0_u32..8);
        let operation = operation.prop_map(|(kind, file, offset, length)| Operation {
            kind: kind as u8,
            file,
            offset,
            length,
            ..Operation::default()
        });
        prop::collection::vec(operation, 0..12)
    }

    /// Whether two of them write the same byte with no sync between them, by looking at each byte of each pair.
    fn overlap(operations: &[Operation]) -> bool {
        let bytes = |one: &Operation| one.offset..one.offset + u64::from(one.length);
        let is = |one: &Operation, kind: Kind| one.kind == kind as u8;
        operations.iter().enumerate().any(|(at, one)| {
            operations[at + 1..]
                .iter()
                .take_while(|other| !is(other, Kind::Fdatasync))
                .filter(|other| is(other, Kind::Write) && other.file == one.file)
                .any(|other| {
                    is(one, Kind::Write) && bytes(one).any(|at| bytes(other).contains(&at))
                })
        })
    }

    fn made(operations: &mut [Operation], files: [&str; 2]) -> Result<Batch, Error> {
        let mut bytes = [0; 16];
        let mut results = vec![0; operations.len()];
        let (listed, memory, results) = lent::whole(operations, &mut bytes, &mut results);
        let open = |path: &str| BlockFile::open(path, Mode::ReadWrite, false).expect("it is there");
        let files = Files::Many(files.map(open).to_vec());
        Batch::new(Operations::Listed(listed), files, memory, results, false)
    }

    proptest! {
        #[test]
        fn writes_that_share_a_byte_are_found_unless_a_sync_is_between_them(
            mut operations in operations(),
        ) {
            // Opened for writing, and not written: no batch is carried out.
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
            let expected = overlap(&operations);
            let outcome = made(&mut operations, [path; 2]);
            prop_assert_eq!(outcome.is_err(), expected && cfg!(debug_assertions), "{:?}", outcome);
            if let Err(Error::Operation { index, limit, .. }) = outcome {
                let other = usize::try_from(limit).expect("an index");
                let pair = [operations[other], operations[index]];
                prop_assert!(overlap(&pair), "{:?}", pair);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "fstat of a file that is written, which miri has not")]
    fn what_keeps_no_bytes_may_be_written_in_any_order() {
        let mut writes = [Operation {
            kind: Kind::Write as u8,
            length: 8,
            ..Operation::default()
        }; 2];
        let batch = made(&mut writes, ["/dev/null"; 2]).expect("nothing is kept");
        let checked = (0..2).map(|index| (index, batch.check(index).expect("as it was made")));
        let keeps_bytes = |number| batch.files.get(number).is_some_and(BlockFile::keeps_bytes);
        assert!(first_overlap(checked, keeps_bytes).is_none());
    }
}
