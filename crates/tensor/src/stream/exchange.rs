//! One bounded turn of a machine at a channel: what it wants to send, what came for it.
use std::time::Instant;

use super::channel::{Channel, Fault};
use crate::error::Error;
use crate::sys::span::Span;

/// Bytes moved in one turn in each direction, so that one peer cannot keep a thread from the others.
const TURN_BYTES: usize = 2 << 20;
/// System calls of one turn in each direction.
const TURN_CALLS: usize = 16;
/// Pieces of one send: headers and rows of 128 answers.
pub(super) const PIECES: usize = 256;

/// What a machine of one peer needs of a fabric.
pub(super) trait Machine {
    fn outgoing(&mut self, into: &mut [Span]) -> usize;
    fn sent(&mut self, bytes: usize, now: Instant);
    fn incoming(&mut self) -> [Span; 2];
    fn received(&mut self, bytes: usize, now: Instant) -> Result<(), Error>;
    fn feed(&mut self, bytes: &[u8], now: Instant) -> Result<(), Error>;
}

/// Where a turn led.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The socket takes no more: it is to be watched for room.
    pub blocked: bool,
    /// The budget ended the turn: there is more to do at once.
    pub again: bool,
    pub sent: usize,
    pub received: usize,
}

/// Room for the pieces of a send, made once.
pub(super) type Pieces = Box<[Span]>;

pub(super) fn pieces() -> Pieces {
    vec![Span::EMPTY; PIECES].into_boxed_slice()
}

/// Send what the machine has, until it has none, the socket takes none, or the budget is spent.
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

/// Receive what is there for the machine, until nothing is or the budget is spent.
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

/// One receive into where the machine wants it; whether there is probably more.
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
