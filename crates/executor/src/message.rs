//! The msgpack messages between clients, server and workers.
//!
//! The head of a call is `[method, [argument, ...], nil]`; a blob is a bin in the head below
//! [`BLOB_SEGMENT_BYTES_MIN`], else nil there and the only segment.

mod answer;
mod call;
mod event;
mod failure;
mod options;
mod reader;
mod work;
mod writer;

pub use answer::{
    Message, accepted, answered, cancelled, ended, ended_without, in_file, items, logged, protocol,
    refused, stood,
};
pub use call::{Call, Submit};
pub use event::{
    FeedItem, filter, followed, is_record, missed, progressed, reasoned, status_event,
};
pub use failure::{cause_json, failure_json, summary_json};
pub use options::{RequestedOptions, options};
pub use reader::{Reader, Value};
pub use work::{RunMessage, WorkerReply, leave, pickled, run};
pub use writer::Writer;

/// The protocol of this version; a client that says none speaks 1.
///
/// 1: the calls of `tests/executor/compat/1`. 2: `hello`, `feed`, `items`, the options `traceparent` and `parent`, filters and
/// cursors of `list`, the cursor of `events`, whose events have numbers. A number grows with each addition that a client
/// may rely on, and a server knows every smaller one.
pub const PROTOCOL: u64 = 2;

use crate::error::Result;
use crate::limit::BLOB_SEGMENT_BYTES_MIN;

/// A blob, from the head or the only segment.
fn blob<'a>(reader: &mut Reader<'a>, segment: Option<&'a [u8]>) -> Result<&'a [u8]> {
    match (reader.value()?, segment) {
        (Value::Bin(bytes), _) => Ok(bytes),
        (Value::Nil, Some(segment)) => Ok(segment),
        (Value::Nil, None) => Err(reader.malformed("a blob without its segment")),
        _ => Err(reader.malformed("bytes were expected")),
    }
}

/// Put a blob into a head. False if it must travel as the segment.
fn put_blob(writer: &mut Writer, blob: &[u8]) -> bool {
    if blob.len() >= BLOB_SEGMENT_BYTES_MIN {
        writer.nil();
        return false;
    }
    writer.binary(blob);
    true
}

/// The parts of a call's head: the method, how many arguments, and the reader before the first.
fn opened(head: &[u8]) -> Result<(&str, usize, Reader<'_>)> {
    let mut reader = Reader::new(head);
    if reader.array()? != 3 {
        return Err(reader.malformed("a call is [method, arguments, nil]"));
    }
    let method = reader.text()?;
    let count = reader.array()?;
    Ok((method, count, reader))
}
