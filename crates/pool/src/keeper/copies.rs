//! The link from the keeper to one service: orders to it, and what it reports of copies of itself.
//!
//! A program has no link. The link is watched while a copy is due, and not once the service has closed it.

use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};

use super::report_of;
use super::source::{self, Poller, Token};
use crate::control::{self, Receiver};
use crate::error::{Error, Result};
use crate::wire::{Handle, Order, Report};

/// The service that was to be copied has ended meanwhile.
pub const ORIGINAL_ENDED: Error = Error::Malformed {
    what: "the service to be copied has ended",
};

/// The copies that a service was asked for, and the link on which it is asked.
#[derive(Debug, Default)]
pub struct Copies {
    link: Option<OwnedFd>,
    /// Asked for and not reported.
    due: BTreeSet<Handle>,
}

impl Copies {
    /// The service takes orders on this link.
    pub fn connect(&mut self, link: OwnedFd) {
        self.link = Some(link);
    }

    /// Whether a copy is due.
    pub fn any_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Watch for what the service reports, from its first copy on.
    pub fn expect(&mut self, poller: &Poller, token: Token, copy: Handle) -> Result<()> {
        if self.due.is_empty()
            && let Some(link) = &self.link
        {
            source::watch(poller, link, token)?;
        }
        self.due.insert(copy);
        Ok(())
    }

    /// A copy is due no more: it was reported, or it was not ordered.
    pub fn settle(&mut self, poller: &Poller, copy: Handle) {
        if self.due.remove(&copy)
            && self.due.is_empty()
            && let Some(link) = &self.link
        {
            poller.remove(link);
        }
    }

    /// Order a copy; never waits.
    pub fn order(&self, order: &Order, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let link = self.link.as_ref().ok_or(ORIGINAL_ENDED)?;
        control::send(link, &order.encode(), descriptors, SendFlags::DONTWAIT)
            .map_err(Error::system("the service takes no orders"))
    }

    /// Order the service not to wait for a copy. False where its link is too full for this order.
    pub fn skip(&self, copy: Handle) -> bool {
        let Some(link) = &self.link else {
            return true;
        };
        let skip = Order::Skip { handle: copy }.encode();
        control::send(link, &skip, &[], SendFlags::DONTWAIT).is_ok()
    }

    /// Its next report. None where there is none, and once it has closed the link, which is then watched no more.
    pub fn receive(&self, poller: &Poller, receiver: &mut Receiver) -> Option<Report> {
        let link = self.link.as_ref()?;
        match receiver.receive(link, RecvFlags::DONTWAIT) {
            Ok(Some(packet)) if !packet.bytes.is_empty() => Some(report_of(&packet.bytes)),
            Ok(None) | Err(Error::Interrupted) => None,
            Ok(Some(_)) | Err(_) => {
                poller.remove(link); // closed: the service is ending
                None
            }
        }
    }

    /// The service has ended: the copies that are due will not come.
    pub fn give_up(&mut self, poller: &Poller) -> BTreeSet<Handle> {
        if let Some(link) = &self.link {
            poller.remove(link);
        }
        std::mem::take(&mut self.due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::keeper::source::{Source, token};

    fn copy(generation: u64) -> Handle {
        Handle {
            slot: 1,
            generation,
        }
    }

    fn wakes(poller: &mut Poller) -> bool {
        poller.wait(Some(Duration::ZERO)).expect("an epoll set");
        poller.event(0).is_some()
    }

    #[test]
    fn the_link_is_watched_while_a_copy_is_due() {
        let mut poller = Poller::new().expect("an epoll set");
        let (ours, theirs) = control::pair().expect("sockets");
        let (handle, pid) = (copy(1), 5);
        let reported = Report::Forked { handle, pid };
        control::send(&theirs, &reported.encode(), &[], SendFlags::DONTWAIT).expect("room");

        let mut copies = Copies::default();
        copies.connect(ours);
        for handle in [copy(1), copy(2)] {
            let reports = token(Source::Branched, 0, 0);
            copies.expect(&poller, reports, handle).expect("watched");
        }
        assert!(wakes(&mut poller));
        copies.settle(&poller, copy(1));
        assert!(copies.any_due() && wakes(&mut poller));
        copies.settle(&poller, copy(2));
        assert!(!copies.any_due() && !wakes(&mut poller));
    }

    #[test]
    fn a_program_takes_no_orders_and_has_no_copies_to_skip() {
        let copies = Copies::default();
        assert!(copies.order(&Order::Skip { handle: copy(1) }, &[]).is_err());
        assert!(copies.skip(copy(1)));
    }

    #[test]
    fn a_closed_link_is_watched_no_more_and_its_copies_are_given_up() {
        let mut poller = Poller::new().expect("an epoll set");
        let (ours, theirs) = control::pair().expect("sockets");
        let mut copies = Copies::default();
        copies.connect(ours);
        let reports = token(Source::Branched, 0, 0);
        copies.expect(&poller, reports, copy(1)).expect("watched");
        drop(theirs);
        assert!(wakes(&mut poller));
        assert_eq!(copies.receive(&poller, &mut Receiver::default()), None);
        assert!(!wakes(&mut poller));
        assert_eq!(copies.give_up(&poller), BTreeSet::from([copy(1)]));
        assert!(!copies.any_due());
    }
}
