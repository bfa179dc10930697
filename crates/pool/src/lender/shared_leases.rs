//! The services of a program that several of its leases share: which lease is the last one.
//!
//! The lender grants further leases. A grant may cross the end of the last lease on its way; it is void then, and its
//! question is asked again once the lender was told that the service is given back, so that it is answered with another.
//!
//! Invariant: a service is here from the moment it is opened until it is given back, with at least one lease until its last
//! holder begins to give it back, and with none from then on.

use std::collections::BTreeMap;

use crate::wire::Handle;
use crate::wire::shared::Request;

/// A service that may be shared.
#[derive(Debug)]
struct SharedService {
    generation: u64,
    /// Leases that have begun and not ended.
    leases: u32,
    /// Questions that are asked again once it is given back.
    postponed: Vec<Request>,
}

/// What a grant of a further lease comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// The lease has begun.
    Begun,
    /// The service is being given back; the question is asked again after that.
    Postponed,
    /// The service was given back: this question is to be asked again.
    Void(Request),
}

/// Those of one program, by their slot.
#[derive(Debug, Default)]
pub(super) struct SharedLeases {
    by_slot: BTreeMap<u32, SharedService>,
}

impl SharedLeases {
    /// A service has settled, and others may join its first lease; false where it is open already.
    pub fn open(&mut self, handle: Handle) -> bool {
        if self.service(handle).is_some() {
            return false;
        }
        let service = SharedService {
            generation: handle.generation,
            leases: 1,
            postponed: Vec::new(),
        };
        self.by_slot.insert(handle.slot, service);
        true
    }

    /// The lender has granted a further lease in answer to a question.
    pub fn join(&mut self, handle: Handle, question: Request) -> Joined {
        match self.service(handle) {
            None => Joined::Void(question),
            Some(service) if service.leases == 0 => {
                service.postponed.push(question);
                Joined::Postponed
            }
            Some(service) => {
                service.leases += 1;
                Joined::Begun
            }
        }
    }

    /// Whether a service has a lease, so that a further one could begin.
    pub fn is_held(&mut self, handle: Handle) -> bool {
        self.service(handle)
            .is_some_and(|service| service.leases > 0)
    }

    /// A lease ends. Whether others are left; `None` for a service that was not opened.
    pub fn release(&mut self, handle: Handle) -> Option<bool> {
        let service = self.service(handle).filter(|service| service.leases > 0)?;
        service.leases -= 1;
        Some(service.leases > 0)
    }

    /// The lender was told that a service is given back, or is to be ended: the questions that are asked again now.
    pub fn give_back(&mut self, handle: Handle) -> Vec<Request> {
        if self.service(handle).is_none() {
            return Vec::new();
        }
        let service = self.by_slot.remove(&handle.slot);
        service.map_or_else(Vec::new, |service| service.postponed)
    }

    fn service(&mut self, handle: Handle) -> Option<&mut SharedService> {
        let service = self.by_slot.get_mut(&handle.slot);
        service.filter(|service| service.generation == handle.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: Handle = Handle {
        slot: 3,
        generation: 7,
    };
    const LATER: Handle = Handle {
        slot: 3,
        generation: 8,
    };

    const fn question(ticket: u64) -> Request {
        let (key, group) = (1, 2);
        Request::Ask { ticket, key, group }
    }

    /// A service that one lease holds.
    fn held() -> SharedLeases {
        let mut leases = SharedLeases::default();
        assert!(leases.open(HANDLE));
        leases
    }

    #[test]
    fn leases_share_a_service_until_the_last_of_them_ends() {
        let mut leases = held();
        assert_eq!(leases.join(HANDLE, question(5)), Joined::Begun);
        assert!(!leases.open(HANDLE), "it is open");
        assert_eq!(leases.release(HANDLE), Some(true));
        assert!(leases.is_held(HANDLE));
        assert_eq!(leases.release(HANDLE), Some(false));
        assert!(!leases.is_held(HANDLE));
        assert_eq!(leases.release(HANDLE), None, "it has none left");
        assert!(leases.give_back(HANDLE).is_empty());
        assert!(leases.by_slot.is_empty());
    }

    #[test]
    fn a_grant_that_crosses_the_end_of_the_last_lease_is_asked_for_again_after_it() {
        let mut leases = held();
        assert_eq!(leases.release(HANDLE), Some(false));
        assert_eq!(leases.join(HANDLE, question(5)), Joined::Postponed);
        assert_eq!(leases.join(HANDLE, question(6)), Joined::Postponed);
        assert_eq!(leases.give_back(HANDLE), [question(5), question(6)]);
        let late = leases.join(HANDLE, question(7));
        assert_eq!(late, Joined::Void(question(7)));
    }

    #[test]
    fn a_lease_of_the_slots_next_service_is_another_ones() {
        let mut leases = held();
        assert_eq!(leases.release(LATER), None);
        assert_eq!(
            leases.join(LATER, question(5)),
            Joined::Void(question(5)),
            "not open yet"
        );
        assert!(leases.open(LATER));
        assert_eq!(leases.release(HANDLE), None, "its lease has ended");
        assert!(leases.give_back(HANDLE).is_empty());
        assert!(leases.is_held(LATER));
    }

    #[test]
    fn a_service_that_nobody_may_share_is_unknown() {
        let mut leases = SharedLeases::default();
        assert_eq!(leases.release(HANDLE), None);
        assert!(!leases.is_held(HANDLE));
        assert!(leases.give_back(HANDLE).is_empty());
    }
}
