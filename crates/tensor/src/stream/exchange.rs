//! One bounded turn of a state machine at a channel: send its output, and receive its input.
use std::time::Instant;

use super::channel::{Channel, Fault};
use crate::error::Error;
use crate::sys::span::Span;

/// Bytes moved per turn in each direction, so that one peer cannot starve the others of a thread.
const TURN_BYTES: usize = 2 << 20;
/// System calls per turn in each direction.
const TURN_CALLS: usize = 16;
/// Spans of one send: headers and rows of 128 answers.
pub(super) const PIECES: usize = 256;

/// A state machine of one peer, as the stream drives it.
pub(super) trait Machine {
    fn outgoing(&mut self, into: &mut [Span]) -> usize;
    fn sent(&mut self, bytes: usize, now: Instant);
    fn incoming(&mut self) -> [Span; 2];
    fn received(&mut self, bytes: usize, now: Instant) -> Result<(), Error>;
    fn feed(&mut self, bytes: &[u8], now: Instant) -> Result<(), Error>;
}

/// What a turn did, and what is left to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The socket is full: watch it for writability.
    pub blocked: bool,
    /// The budget ended the turn: there is more to do without waiting.
    pub again: bool,
    pub sent: usize,
    pub received: usize,
}

/// The spans of a send, allocated once.
pub(super) type Pieces = Box<[Span]>;

pub(super) fn pieces() -> Pieces {
    vec![Span::EMPTY; PIECES].into_boxed_slice()
}

/// Send the machine's output until it has none, the socket is full, or the budget is spent.
pub(super) fn send(
    channel: &mut Channel,
    machine: &mut impl Machine,
    pieces: &mut [Span],
    now: Instant,
    progress: &mut Progress,
) -> Result<(), Fault> {
    progress.blocked = channel.flush()?;
    for _ in 0..TURN_CALLS {
        if progress.blocked {
            return Ok(());
        }
        let count = machine.outgoing(pieces);
        if count == 0 {
            return Ok(());
        }
        let Some(sent) = channel.send(&pieces[..count])? else {
            progress.blocked = true;
            return Ok(());
        };
        machine.sent(sent, now);
        progress.sent += sent;
        progress.blocked = channel.flush()?;
        if progress.sent >= TURN_BYTES {
            break;
        }
    }
    progress.again = true;
    Ok(())
}

/// Receive for the machine until nothing is available or the budget is spent.
pub(super) fn receive(
    channel: &mut Channel,
    machine: &mut impl Machine,
    now: Instant,
    progress: &mut Progress,
) -> Result<(), Fault> {
    for _ in 0..TURN_CALLS {
        let more = if channel.is_sealed() {
            open(channel, machine, now, progress)?
        } else {
            receive_once(channel, machine, now, progress)?
        };
        if !more {
            return Ok(());
        }
        if progress.received >= TURN_BYTES {
            break;
        }
    }
    progress.again = true;
    Ok(())
}

/// One receive into the machine's spans; returns whether more is probably available.
fn receive_once(
    channel: &mut Channel,
    machine: &mut impl Machine,
    now: Instant,
    progress: &mut Progress,
) -> Result<bool, Fault> {
    let spans = machine.incoming();
    let room = spans[0].bytes() + spans[1].bytes();
    let count = match channel.receive(&spans)? {
        None => return Ok(false),
        Some(0) => return Err(Fault::Ended),
        Some(count) => count,
    };
    machine.received(count, now).map_err(Fault::Peer)?;
    progress.received += count;
    Ok(count == room)
}

fn open(
    channel: &mut Channel,
    machine: &mut impl Machine,
    now: Instant,
    progress: &mut Progress,
) -> Result<bool, Fault> {
    let bytes = match channel.open()? {
        None => return Ok(false),
        Some([]) => return Err(Fault::Ended),
        Some(bytes) => bytes,
    };
    machine.feed(bytes, now).map_err(Fault::Peer)?;
    progress.received += bytes.len();
    Ok(true)
}
