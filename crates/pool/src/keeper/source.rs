//! What the keeper watches, and to which process it belongs.
//!
//! A key is a slot, or a template's number, with the *serial* of the process that is watched: what the kernel queued
//! for an earlier process of the same number finds another serial.

use std::os::fd::AsFd;

use forebay_base::poll::{self, Kind, Poll, Ready};
use forebay_base::slots::Key;

use crate::error::{Error, Result};

/// What a watched descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The control socket: a message, room, or its end.
    Control,
    /// The client's pidfd: its process ended.
    Client,
    /// A template's socket: it reported.
    Report,
    /// A template's pidfd: its process ended.
    TemplateExit,
    /// A template's output.
    TemplateOutput,
    /// A service's pidfd: its process ended.
    Exit,
    /// A service's output.
    Output,
    /// A service's end of its keeper link: it reported a copy of itself.
    Branched,
    /// The directory of a starting service: it changed.
    File,
}

impl Kind for Source {
    const ALL: &'static [Self] = &[
        Self::Control,
        Self::Client,
        Self::Report,
        Self::TemplateExit,
        Self::TemplateOutput,
        Self::Exit,
        Self::Output,
        Self::Branched,
        Self::File,
    ];

    fn index(self) -> usize {
        self as usize
    }
}

/// Serials are generations of keys, which have 24 bits: far more than events that can be queued at once.
pub const SERIAL_MASK: u32 = 0x00ff_ffff;

/// The keeper's epoll.
pub type Poller = Poll<Source>;
/// What an event is about.
pub type Token = poll::Token<Source>;

/// The event token of a source that belongs to the process `serial` of a slot or template.
pub fn token(source: Source, index: u32, serial: u32) -> Token {
    let generation = serial;
    Token::new(source, Key { index, generation })
}

/// Watch for something to read.
pub fn watch(poller: &Poller, descriptor: impl AsFd, token: Token) -> Result<()> {
    poller
        .add(descriptor, token, Ready::READ)
        .map_err(Error::system("epoll_ctl"))
}
