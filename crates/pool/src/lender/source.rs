//! What the lender watches.

use std::os::fd::AsFd;

use forebay_base::poll::{Kind, Poll, Ready, Token};
use forebay_base::slots::Key;

use super::BorrowerId;
use crate::error::{Error, Result};

/// A watched descriptor. A key is a program's number, which is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LenderSource {
    Listener,
    /// The epoll of the pool itself.
    Pool,
    /// Tickets were granted.
    Granted,
    /// The descriptor that the caller of `run` gave.
    Caller,
    /// A program's connection.
    Program,
    /// The pidfd of a program's process.
    ProgramExit,
}

impl Kind for LenderSource {
    const ALL: &'static [Self] = &[
        Self::Listener,
        Self::Pool,
        Self::Granted,
        Self::Caller,
        Self::Program,
        Self::ProgramExit,
    ];

    fn index(self) -> usize {
        self as usize
    }
}

/// The event token of a source that belongs to one program.
pub(super) fn token_of(source: LenderSource, program: BorrowerId) -> Token<LenderSource> {
    let (index, generation) = (program, 0);
    Token::new(source, Key { index, generation })
}

/// The lender's epoll.
pub(super) type LenderPoll = Poll<LenderSource>;

/// Watch for something to read.
pub(super) fn watch(
    poll: &LenderPoll,
    descriptor: impl AsFd,
    token: Token<LenderSource>,
) -> Result<()> {
    poll.add(descriptor, token, Ready::READ)
        .map_err(Error::system("epoll_ctl"))
}
