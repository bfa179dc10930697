//! Moving bytes between a stream and the queues of a connection, whatever its frames mean.

use std::cell::RefCell;
use std::mem::MaybeUninit;

use crate::limit::RECEIVE_BYTES;
use crate::link::outbox::Outbox;
use crate::stream::{Stream, StreamFault};

thread_local! {
    static RECEIVE: RefCell<Box<[MaybeUninit<u8>]>> =
        RefCell::new(Box::new_uninit_slice(RECEIVE_BYTES));
}

/// Lend the thread's one receive buffer. Connections keep only unfinished frames, so that an idle one costs no buffer.
///
/// # Panics
/// If it is lent already.
pub fn with_receive_buffer<R>(act: impl FnOnce(&mut [MaybeUninit<u8>]) -> R) -> R {
    RECEIVE.with_borrow_mut(|buffer| act(buffer))
}

/// Write queued bytes until the kernel takes no more, then those that the stream itself holds.
pub fn flush<S: Stream>(stream: &mut Option<S>, outbox: &mut Outbox) -> Result<(), StreamFault> {
    let Some(stream) = stream else {
        return Ok(());
    };
    let mut outcome = Ok(());
    while !outbox.is_empty() {
        let slices = outbox.slices();
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let sent = taken(stream.send(&slices));
        drop(slices);
        match sent {
            Ok(sent) => {
                outbox.advance(sent);
                if sent < wanted {
                    break;
                }
            }
            Err(fault) => {
                outcome = Err(fault);
                break;
            }
        }
    }
    // Also after a fault: the stream may hold the record (a TLS alert) that tells the peer why.
    let flushed = taken(stream.flush().map(|()| 0)).map(drop);
    outcome.and(flushed)
}

/// How many bytes were taken: 0 if the stream would block.
pub fn taken(outcome: Result<usize, StreamFault>) -> Result<usize, StreamFault> {
    match outcome {
        Err(fault) if fault.is_transient() => Ok(0),
        outcome => outcome,
    }
}
