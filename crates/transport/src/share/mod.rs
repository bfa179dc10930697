//! Long segments of calls by reference, between processes of one user on one host.
//!
//! A connection begins without any of this, and most stay so. When the first long segment arrives as bytes, its receiver
//! says that it *borrows* (`Kind::Borrow`) and sends its return table, in which it will show what it has released. From
//! then on the sender copies long segments into its process's pool and sends names; the chunks in which they lie are
//! announced by `Kind::Chunk`. Descriptors travel on the connection's own socket; `local` explains how none is lost.
//!
//! A connection that one process after another calls on (`Connection::resume`) is *renewed* by each that takes it over: what
//! was lent belongs to the process before. The server forgets it as if that process had disconnected, and answers; until
//! then the caller ignores what is announced to it.
//!
//! A received segment lies in the sender's memory, mapped privately: the kernel copies a page when it is written, so a
//! callee may change its arguments as before, and no other process sees it.
//! The design note, with invariants, limits and the table of failures, is `docs/concepts/rpc.md`.
//!
//! | module | what |
//! |---|---|
//! | `local` | a Unix socket that carries descriptors |
//! | `pool` | the process's region |
//! | `lender` | what one peer is lent |
//! | `borrower` | what one peer lends us |
//! | `held` | received segments until they are released, and what a fork does to them |
//! | `steps` | all of it as steps of a connection |
//!
//! These serve messages of `shm://` too (`stream::shm`):
//!
//! | module | what |
//! |---|---|
//! | `ledger` | which blocks a peer may still read; pure |
//! | `return_table` | the words by which a peer releases them |
//! | `loans` | both, for every peer of this process, also after its connection |
//! | `windows` | the mapped chunks of a peer, and what its names refer to |

mod borrower;
mod held;
#[cfg(test)]
mod hostile_tests;
pub(crate) mod ledger;
mod lender;
pub(crate) mod loans;
pub(crate) mod local;
mod pool;
pub(crate) mod return_table;
#[cfg(test)]
mod split_tests;
mod steps;
#[cfg(test)]
mod tests;
pub(crate) mod windows;

use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use held::keep_borrowed;
pub use pool::sweep_lent;

use borrower::Borrower;
use held::Returns;
use lender::Lender;
use pool::ShareWriter;

use crate::wire::preface::LENDS;

/// What one connection lends and borrows, if its peer is the same user on a socket that carries descriptors.
#[derive(Debug, Default)]
pub(crate) struct Lending(Option<Box<ConnectionLoans>>);

#[derive(Debug, Default)]
struct ConnectionLoans {
    lender: Option<Lender>,
    borrower: Option<Borrower>,
    /// The descriptors of our `Borrow` frame, which goes before the next frame.
    due: Option<Vec<OwnedFd>>,
    /// There was no memory for a return table; it is not tried again.
    refused: bool,
    renewal: Renewal,
}

/// How far the two ends are with a [`Kind::Renew`].
///
/// It goes out before the next frame, and its answer too: neither end has anything to send or to read while no call is
/// made, so that the connection can be handed on.
///
/// [`Kind::Renew`]: crate::wire::frame::Kind::Renew
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Renewal {
    /// There is none.
    #[default]
    None,
    /// Ours, with this id, precedes our next frame.
    Due(u64),
    /// A caller's is sent. What the server announces until it answers with the id is for the process that called before.
    Asked(u64),
    /// The server has answered the caller, which it does only if it lends.
    Done,
}

impl ConnectionLoans {
    /// Nothing lent, and a renewal to send.
    fn renewed(id: u64) -> Self {
        Self {
            renewal: Renewal::Due(id),
            ..Self::default()
        }
    }
}

impl Lending {
    /// Be ready to lend and to borrow.
    pub fn open(&mut self) {
        self.0 = Some(Box::default());
    }

    /// Whether the peer may lend us memory: it was told so, or is about to be.
    pub fn borrows(&self) -> bool {
        let loans = self.0.as_ref();
        loans.is_some_and(|loans| loans.borrower.is_some() || loans.due.is_some())
    }

    /// Let go of what is lent and borrowed.
    pub fn close(&mut self) {
        self.0 = None;
    }

    /// The features of our preface for it.
    pub fn features(&self) -> u64 {
        self.0.as_ref().map_or(0, |_| LENDS)
    }

    /// Copies long segments before they are sent, once the peer borrows.
    pub fn writer(&self) -> Option<ShareWriter> {
        let lender = self.0.as_ref()?.lender.as_ref();
        lender.map(Lender::writer)
    }

    /// What to restore while idle, without the connection's lock.
    pub fn returns(&self) -> Option<Arc<Returns>> {
        let borrower = self.0.as_ref()?.borrower.as_ref();
        borrower.map(Borrower::returns)
    }

    /// Segments that the peer may still read.
    pub fn lent(&self) -> usize {
        let lender = self.0.as_ref().and_then(|loans| loans.lender.as_ref());
        lender.map_or(0, Lender::lent)
    }
}
