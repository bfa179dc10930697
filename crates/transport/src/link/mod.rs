//! What connections of either kind share: one framed link over a byte stream.
//!
//! [`framed::Link`] owns the stream, the decoder, the outbox and the life of a connection; what its frames mean is the
//! business of a [`framed::Handler`], that of calls or that of messages. Both are stepped under the lock of the
//! connection; nothing here waits or locks.
//!
//! | module | what |
//! |---|---|
//! | `life` | where a link is in its life, with the diagram |
//! | `framed` | the link, its handshake and its end |
//! | `receive` | from the stream through the decoder to the handler |
//! | `turn` | one turn of receiving |
//! | `send` | through the outbox to the stream |
//! | [`outbox`] | bytes that the kernel has not taken |
//! | `admission` | who is let in |
//! | `stall` | whether a peer makes progress |

pub(crate) mod admission;
pub(crate) mod framed;
mod life;
pub(crate) mod outbox;
mod receive;
mod send;
pub(crate) mod stall;
#[cfg(test)]
mod tests;
mod turn;

pub use admission::{Admission, Handshake};
pub use outbox::{Head, Outbox, Payload};
