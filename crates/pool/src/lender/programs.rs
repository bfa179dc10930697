//! What the next holder of a program has to know of it, as the program that started it has reported.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What is known of a program, beyond its process.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The port that it was given; 0: none.
    pub port: u16,
    /// What its starter learned of it. Only programs read it.
    pub report: Vec<u8>,
    /// The holder's end of its own socket.
    own: Option<OwnedFd>,
}

impl Known {
    /// The holder's end of its own socket, where it has one.
    pub fn own(&self) -> Option<BorrowedFd<'_>> {
        self.own.as_ref().map(AsFd::as_fd)
    }
}

/// What is known, by slot.
#[derive(Debug, Default)]
pub(super) struct Programs(BTreeMap<u32, Known>);

impl Programs {
    /// A program is launched in a slot.
    pub fn launch(&mut self, slot: u32, port: u16, own: Option<OwnedFd>) {
        let report = Vec::new();
        self.0.insert(slot, Known { port, report, own });
    }

    /// The program that started the service in a slot has reported what it learned.
    pub fn report(&mut self, slot: u32, report: Vec<u8>) {
        if !report.is_empty() {
            self.0.entry(slot).or_default().report = report;
        }
    }

    /// What is known of the service in a slot.
    pub fn get(&self, slot: u32) -> Option<&Known> {
        self.0.get(&slot)
    }

    /// The service in a slot is gone, or will be.
    pub fn forget(&mut self, slot: u32) {
        self.0.remove(&slot);
    }
}
