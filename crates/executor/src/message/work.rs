//! The messages between the server and its workers.

use super::{Message, Reader, Value, Writer, blob, put_blob};
use crate::error::Result;
use crate::id::RequestId;
use crate::request::Blob;

/// A run to start.
#[derive(Clone, Copy, Debug)]
pub struct RunMessage<'a> {
    pub name: &'a str,
    pub arguments: &'a Blob,
    pub id: RequestId,
    pub attempt: u32,
    /// The time that this run may take.
    pub deadline_ms: Option<u64>,
    pub traceparent: Option<&'a str>,
    /// The request that submitted it.
    pub parent: Option<RequestId>,
}

/// What a worker replied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WorkerReply<'a> {
    Succeeded(&'a [u8]),
    /// The same; its result, of this many bytes, is in the file of this run.
    InFile(u64),
    /// The exception of the work, as the worker encoded it.
    Raised(&'a [u8]),
    Cancelled,
    /// It was recalled before it began, which the worker has reported on its side socket.
    Returned,
}

/// `["run", [name, arguments, id, attempt, deadline in seconds, traceparent, parent], nil]`.
pub fn run(run: &RunMessage<'_>) -> Message {
    let room = 112
        + run.traceparent.map_or(0, str::len)
        + run.name.len()
        + run
            .arguments
            .len()
            .min(crate::limit::BLOB_SEGMENT_BYTES_MIN);
    let mut writer = Writer::with_room(room);
    writer.array(3).text("run").array(7).text(run.name);
    let inline = put_blob(&mut writer, run.arguments);
    writer.text(&run.id.to_string());
    writer.unsigned(u64::from(run.attempt));
    #[allow(clippy::cast_precision_loss)] // exact up to 285,000 years
    match run.deadline_ms {
        Some(deadline) => writer.float(deadline as f64 / 1e3),
        None => writer.nil(),
    };
    match run.traceparent {
        Some(span) => writer.text(span),
        None => writer.nil(),
    };
    match run.parent {
        Some(parent) => writer.text(&parent.to_string()),
        None => writer.nil(),
    };
    writer.nil();
    Message {
        head: writer.into_bytes(),
        segment: (!inline).then(|| Blob::clone(run.arguments)),
    }
}

/// `["call", [pickle], nil]`: a function with its arguments.
pub fn pickled(pickle: &Blob) -> Message {
    let room = 24 + pickle.len().min(crate::limit::BLOB_SEGMENT_BYTES_MIN);
    let mut writer = Writer::with_room(room);
    writer.array(3).text("call").array(1);
    let inline = put_blob(&mut writer, pickle);
    writer.nil();
    Message {
        head: writer.into_bytes(),
        segment: (!inline).then(|| Blob::clone(pickle)),
    }
}

/// `["end", [], nil]`: asks the worker to leave.
pub fn leave() -> Vec<u8> {
    let mut writer = Writer::default();
    writer.array(3).text("end").array(0).nil();
    writer.into_bytes()
}

impl<'a> WorkerReply<'a> {
    /// Read the reply to [`run`] or [`pickled`], and the blob in its segment where it has one.
    ///
    /// # Errors
    /// `Malformed`, with the place.
    pub fn read(head: &'a [u8], segment: Option<&'a [u8]>) -> Result<Self> {
        let mut reader = Reader::new(head);
        let count = reader.array()?;
        let reply = match (reader.unsigned()?, count) {
            (0, 2) => Self::Succeeded(blob(&mut reader, segment)?),
            (1, 2) => Self::Raised(raised(&mut reader, segment)?),
            (2, 1) => Self::Cancelled,
            (3, 1) => Self::Returned,
            (4, 2) => Self::InFile(reader.unsigned()?),
            _ => {
                return Err(reader.malformed(
                    "a worker's reply is [0, result], [1, failure], [2], [3] or [4, bytes]",
                ));
            }
        };
        reader.end()?;
        Ok(reply)
    }
}

/// The description of a failure: a map in place, or a blob.
fn raised<'a>(reader: &mut Reader<'a>, segment: Option<&'a [u8]>) -> Result<&'a [u8]> {
    let mut ahead = reader.clone();
    if let Value::Map(_) = ahead.value()? {
        return reader.skip();
    }
    blob(reader, segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_names_id_and_attempt() {
        let arguments: Blob = b"\x80".as_slice().into();
        let mut told = RunMessage {
            name: "f",
            arguments: &arguments,
            id: RequestId(1),
            attempt: 2,
            deadline_ms: Some(1_500),
            traceparent: None,
            parent: None,
        };
        assert_eq!(run(&told).segment, None);
        let mut expected = b"\x93\xa3run\x97\xa1f\xc4\x01\x80\xac000000000001\x02\xcb".to_vec();
        expected.extend(1.5_f64.to_be_bytes());
        let start = expected.clone();
        expected.extend(b"\xc0\xc0\xc0");
        assert_eq!(run(&told).head, expected);
        (told.traceparent, told.parent) = (Some("00-7"), Some(RequestId(2)));
        let expected = [&start[..], b"\xa400-7\xac000000000002\xc0"].concat();
        assert_eq!(run(&told).head, expected);
    }

    #[test]
    fn the_five_replies_are_told_apart() {
        let read = |head| WorkerReply::read(head, None).ok();
        assert_eq!(
            read(b"\x92\x00\xc4\x01\x07"),
            Some(WorkerReply::Succeeded(&[7]))
        );
        assert_eq!(read(b"\x92\x01\x80"), Some(WorkerReply::Raised(&[0x80])));
        assert_eq!(
            read(b"\x92\x01\xc4\x01\x07"),
            Some(WorkerReply::Raised(&[7]))
        );
        assert_eq!(read(b"\x91\x02"), Some(WorkerReply::Cancelled));
        assert_eq!(read(b"\x91\x03"), Some(WorkerReply::Returned));
        assert_eq!(
            read(b"\x92\x04\xce\x04\x00\x00\x00"),
            Some(WorkerReply::InFile(64 << 20))
        );
        for wrong in [
            &b"\x91\x00"[..],
            b"\x92\x00\x00",
            b"\x92\x02\xc0",
            b"\x91\x02\x00",
            b"\x92\x04\xff",
            b"\x92\x04\xa1a",
            b"",
            b"\x92\x00\xc0",
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        let segment = [1; 9];
        let beside = WorkerReply::read(b"\x92\x00\xc0", Some(&segment)).expect("read");
        assert_eq!(beside, WorkerReply::Succeeded(&segment));
    }
}
