//! The server's answers to clients.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Writer, put_blob};
use crate::error::Refusal;
use crate::id::RequestId;
use crate::items::ItemsPiece;
use crate::limit::{BLOB_SEGMENT_BYTES_MIN, ITEM_PIECE_BYTES};
use crate::request::{Blob, Ending, Outcome, Status};

/// A head, with a blob that travels beside it if it is large.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub head: Vec<u8>,
    pub segment: Option<Blob>,
}

/// `[0, protocol]`: what this server speaks.
pub fn protocol(ours: u64) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.array(2).unsigned(0).unsigned(ours);
    writer.into_bytes()
}

/// `[0, id]`: the submission is on disk.
pub fn accepted(id: RequestId) -> Vec<u8> {
    let mut writer = Writer::with_room(16);
    writer.array(2).unsigned(0);
    put_id(&mut writer, id);
    writer.into_bytes()
}

/// `[0, id, status, payload]`: the end of a request; the payload is its result, or its failure as JSON.
pub fn ended(id: RequestId, ending: &Ending) -> Message {
    let payload = match &ending.outcome {
        Outcome::Succeeded(result) => Blob::clone(result),
        other => super::cause_json(other).into_bytes().into(),
    };
    stood(id, ending.status, payload)
}

/// [`ended`] for an ending that was read back: its payload is as it was the first time.
pub fn stood(id: RequestId, status: Status, payload: Blob) -> Message {
    let mut writer =
        Writer::with_room(48 + payload.len().min(crate::limit::BLOB_SEGMENT_BYTES_MIN));
    writer.array(4).unsigned(0);
    put_id(&mut writer, id);
    writer.text(status.word());
    let inline = put_blob(&mut writer, &payload);
    Message {
        head: writer.into_bytes(),
        segment: (!inline).then_some(payload),
    }
}

/// [`ended`] for a result on disk that the client fetches when it wants it: the payload is nil.
pub fn ended_without(id: RequestId, status: Status) -> Vec<u8> {
    let mut writer = Writer::with_room(48);
    writer.array(4).unsigned(0);
    put_id(&mut writer, id);
    writer.text(status.word()).nil();
    writer.into_bytes()
}

/// [`ended`] for a result in a file: the payload is `[path, bytes]`, the path as the bytes of the file system.
pub fn in_file(id: RequestId, status: Status, path: &Path, bytes: u64) -> Message {
    let path = path.as_os_str().as_bytes();
    let mut writer = Writer::with_room(64 + path.len());
    writer.array(4).unsigned(0);
    put_id(&mut writer, id);
    writer.text(status.word());
    writer.array(2).binary(path).unsigned(bytes);
    Message {
        head: writer.into_bytes(),
        segment: None,
    }
}

/// `[0, how]`: "now", "asked" or "ended".
pub fn cancelled(how: &str) -> Vec<u8> {
    let mut writer = Writer::with_room(16);
    writer.array(2).unsigned(0).text(how);
    writer.into_bytes()
}

/// `[0]`, or `[0, value]` of a value that is msgpack already.
pub fn answered(value: Option<&[u8]>) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.array(1 + usize::from(value.is_some())).unsigned(0);
    if let Some(value) = value {
        writer.raw(value);
    }
    writer.into_bytes()
}

/// `[1, refusal]`.
pub fn refused(refusal: &Refusal) -> Vec<u8> {
    let fields = [
        ("code", refusal.code),
        ("message", &refusal.message),
        ("object", &refusal.object),
        ("limit", &refusal.limit),
        ("value", &refusal.value),
        ("next", &refusal.next),
    ];
    let mut writer = Writer::with_room(256);
    writer.array(2).unsigned(1).map(fields.len());
    for (name, value) in fields {
        writer.text(name).text(value);
    }
    writer.into_bytes()
}

/// An item of `logs`: its offset and its bytes.
pub fn logged(offset: u64, bytes: &[u8]) -> Vec<u8> {
    let mut writer = Writer::with_room(16 + bytes.len());
    writer.array(2).unsigned(offset).binary(bytes);
    writer.into_bytes()
}

/// An item of `items`: `[epoch, first, [item, ...]]`; a large one is alone, beside the head: `[epoch, first, nil]`.
pub fn items(piece: ItemsPiece) -> Message {
    let mut writer = Writer::with_room(32 + piece.bytes.len().min(ITEM_PIECE_BYTES));
    writer
        .array(3)
        .unsigned(piece.epoch)
        .unsigned(piece.first)
        .array(piece.items.len());
    if let [only] = &piece.items[..]
        && only.len() >= BLOB_SEGMENT_BYTES_MIN
    {
        let mut writer = Writer::with_room(32);
        writer.array(3).unsigned(piece.epoch).unsigned(piece.first);
        writer.nil();
        return Message {
            head: writer.into_bytes(),
            segment: Some(piece.bytes[only.clone()].into()),
        };
    }
    for item in piece.items {
        writer.binary(&piece.bytes[item]);
    }
    Message {
        head: writer.into_bytes(),
        segment: None,
    }
}

fn put_id(writer: &mut Writer, id: RequestId) {
    writer.text(&id.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Reader, Value};
    use crate::request::Failure;

    fn ending(outcome: Outcome) -> Ending {
        Ending {
            status: Status::Succeeded,
            attempts: 1,
            at: 5,
            peak_bytes: None,
            outcome,
        }
    }

    #[test]
    fn a_small_result_is_in_the_head_and_a_large_one_beside_it() {
        let id = RequestId(77);
        for (bytes, beside) in [(10, false), (70_000, true)] {
            let result: Blob = vec![3; bytes].into();
            let told = ended(id, &ending(Outcome::Succeeded(Blob::clone(&result))));
            assert_eq!(told.segment.is_some(), beside);
            let mut reader = Reader::new(&told.head);
            assert_eq!(reader.array().expect("array"), 4);
            assert_eq!(reader.unsigned().expect("code"), 0);
            assert_eq!(reader.text().expect("id").parse(), Ok(id));
            assert_eq!(reader.text().expect("status"), "succeeded");
            let payload = super::super::blob(&mut reader, told.segment.as_deref());
            assert_eq!(payload.expect("payload"), &*result);
            reader.end().expect("the end");
        }
    }

    #[test]
    fn a_result_in_a_file_is_told_by_its_path_and_its_length() {
        let told = in_file(RequestId(1), Status::Succeeded, Path::new("/r/1"), 70_000);
        assert_eq!(told.segment, None);
        let end = b"\xa9succeeded\x92\xc4\x04/r/1\xce\x00\x01\x11\x70";
        assert!(told.head.ends_with(end), "{:?}", told.head);
    }

    #[test]
    fn items_are_told_with_their_epoch_and_the_number_of_the_first() {
        let piece = |bytes: &[u8], items: &[std::ops::Range<usize>]| ItemsPiece {
            epoch: 2,
            first: 300,
            bytes: bytes.to_vec(),
            items: items.to_vec(),
        };
        let told = items(piece(b"xabyc", &[1..3, 4..5]));
        assert_eq!(told.head, b"\x93\x02\xcd\x01\x2c\x92\xc4\x02ab\xc4\x01c");
        let begun = items(piece(b"", &[]));
        assert_eq!(
            (begun.head, begun.segment),
            (b"\x93\x02\xcd\x01\x2c\x90".to_vec(), None)
        );
        let large = vec![7; BLOB_SEGMENT_BYTES_MIN];
        let only = 0..large.len();
        let alone = items(piece(&large, &[only]));
        assert_eq!(alone.head, b"\x93\x02\xcd\x01\x2c\xc0");
        assert_eq!(alone.segment.as_deref(), Some(&large[..]));
    }

    #[test]
    fn a_failure_is_told_as_json() {
        let outcome = Outcome::Failed(Failure::OutcomeUnknown);
        let told = ended(RequestId(1), &ending(outcome));
        let text = b"{\"kind\":\"outcome_unknown\"}";
        assert!(told.head.ends_with(text));
    }

    #[test]
    fn a_refusal_is_a_map_of_texts() {
        let refusal = Refusal::limit("queue", "max_queued", 2, 3, "wait");
        let head = refused(&refusal);
        let mut reader = Reader::new(&head);
        assert_eq!(reader.array().expect("array"), 2);
        assert_eq!(reader.unsigned().expect("code"), 1);
        assert_eq!(reader.value().expect("map"), Value::Map(6));
        assert_eq!(reader.text().expect("name"), "code");
        assert_eq!(reader.text().expect("value"), "limit");
    }
}
