//! What a worker's reply means for its request.

use std::sync::Arc;

use forebay_transport::Buffer;
use forebay_transport::calls::Outcome as Reply;
use forebay_transport::wire::Incoming;

use crate::error::Result;
use crate::message::WorkerReply;
use crate::request::{Failure, Outcome};

/// The outcome of a run by its worker's reply. `None` if the worker is gone, since its death is reported elsewhere, or
/// if it returned the run, which its side socket reports.
///
/// Without a store (`kept` is false) a result in a file is a failure.
pub fn outcome_of(reply: &Reply, kept: bool) -> Option<Outcome> {
    let frame = match reply {
        Reply::Reply(frame) => frame,
        Reply::Failure(_, frame) => {
            let why = String::from_utf8_lossy(frame.head.as_slice());
            return Some(refused(&format!("its worker could not accept it: {why}")));
        }
        Reply::Broken { .. } => return None,
    };
    match read(frame) {
        Ok(Some(Outcome::InFile(_))) if !kept => {
            Some(refused("its worker left a file, and there is no store"))
        }
        Ok(outcome) => outcome,
        Err(error) => Some(refused(&format!("its worker replied with {error}"))),
    }
}

fn read(frame: &Incoming) -> Result<Option<Outcome>> {
    let segment = frame.segments.first().map(Buffer::as_slice);
    Ok(Some(
        match WorkerReply::read(frame.head.as_slice(), segment)? {
            WorkerReply::Succeeded(result) => Outcome::Succeeded(result.into()),
            WorkerReply::InFile(bytes) => Outcome::InFile(bytes),
            WorkerReply::Raised(described) => Outcome::Failed(Failure::Raised(described.into())),
            WorkerReply::Cancelled => Outcome::Cancelled,
            WorkerReply::Returned => return Ok(None),
        },
    ))
}

fn refused(why: &str) -> Outcome {
    Outcome::Failed(Failure::Refused(Arc::from(why)))
}
