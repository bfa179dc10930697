//! Long segments of calls by reference, between processes of one user on one host.
//!
//! A connection begins without any of this, and most stay so. The first long segment that arrives as bytes has its
//! receiver say that it *borrows* (`Kind::Borrow`), with the board on which it will show what it has done with. From then
//! on the sender copies such segments into its process's region, and sends names; the chunks that they lie in come
//! with `Kind::Chunk`. Descriptors travel on the connection's own socket; see [`local`] for how none is lost.
//!
//! What is received lies in the sender's memory, mapped so that it can be written: the kernel copies a page when it is
//! written, so a callee may change its arguments as ever, and nobody else sees it.
//! The design note, with invariants, limits and the table of failures, is `docs/concepts/rpc.md`.
//!
//! | module | what |
//! |---|---|
//! | `local` | a Unix socket that carries descriptors |
//! | `depot` | the process's region, and what all peers were lent of it |
//! | `lender` | what one peer is lent |
//! | `borrower` | what one peer lends us |
//! | `held` | received segments until they are given back, and what a fork does to them |
//! | `steps` | all of it as steps of a connection's state |

mod board;
mod borrower;
mod depot;
mod held;
mod lender;
#[cfg(test)]
mod liar_tests;
pub mod local;
#[cfg(test)]
mod split_tests;
mod steps;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;

pub use depot::{Desk, sweep_lent};
pub use held::{Returns, keep_borrowed};

use std::sync::Arc;

use borrower::Borrower;
use lender::Lender;

/// What one connection lends and borrows.
#[derive(Debug, Default)]
pub struct Lending {
    lender: Option<Lender>,
    borrower: Option<Borrower>,
    /// The descriptors of the word that we borrow, which goes before the next frame.
    due: Option<Vec<OwnedFd>>,
    /// There was no memory for a board; it is not tried again.
    refused: bool,
}

impl Lending {
    /// Where to put long segments before they are sent, once the peer borrows.
    pub fn desk(&self) -> Option<Desk> {
        self.lender.as_ref().map(Lender::desk)
    }

    /// What to tidy up where there is time, without the connection.
    pub fn returns(&self) -> Option<Arc<Returns>> {
        self.borrower.as_ref().map(Borrower::returns)
    }

    /// Segments that the peer may still read.
    pub fn lent(&self) -> usize {
        self.lender.as_ref().map_or(0, Lender::lent)
    }
}
