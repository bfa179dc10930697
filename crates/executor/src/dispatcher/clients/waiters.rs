//! The calls that wait for an event of a request.

use forebay_base::slots::Key;

use crate::hash::ByNumber;
use crate::id::RequestId;

/// The event that a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The submission is on disk.
    Accepted,
    /// The end is on disk; the answer carries it.
    End,
    /// The same, for a call that cancelled the request.
    Cancelled,
}

/// A call of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub client: Key,
    pub call: u64,
    pub wants: Awaited,
}

/// The waiting calls by request. Bounded by the open calls of the clients.
#[derive(Debug, Default)]
pub struct Waiters {
    requests: ByNumber<RequestId, Vec<Waiter>>,
}

impl Waiters {
    pub fn add(&mut self, id: RequestId, waiter: Waiter) {
        self.requests.entry(id).or_default().push(waiter);
    }

    /// The row is on disk: the calls that waited for that.
    pub fn accepted(&mut self, id: RequestId) -> Vec<Waiter> {
        let Some(waiters) = self.requests.get_mut(&id) else {
            return Vec::new();
        };
        if waiters
            .iter()
            .all(|waiter| waiter.wants == Awaited::Accepted)
        {
            return self.requests.remove(&id).unwrap_or_default();
        }
        waiters
            .extract_if(.., |waiter| waiter.wants == Awaited::Accepted)
            .collect()
    }

    /// The clients that wait for the end.
    pub fn for_end(&self, id: RequestId) -> Vec<Key> {
        let waiters = self.requests.get(&id).into_iter().flatten();
        let waiters = waiters.filter(|waiter| waiter.wants == Awaited::End);
        waiters.map(|waiter| waiter.client).collect()
    }

    /// The request has ended or was refused: all waiting calls.
    pub fn ended(&mut self, id: RequestId) -> Vec<Waiter> {
        self.requests.remove(&id).unwrap_or_default()
    }

    /// A call was abandoned.
    pub fn leave(&mut self, id: RequestId, client: Key, call: u64) {
        if let Some(waiters) = self.requests.get_mut(&id) {
            waiters.retain(|waiter| (waiter.client, waiter.call) != (client, call));
            if waiters.is_empty() {
                self.requests.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(call: u64, wants: Awaited) -> Waiter {
        let client = Key {
            index: 1,
            ..Key::default()
        };
        Waiter {
            client,
            call,
            wants,
        }
    }

    #[test]
    fn a_call_that_waits_for_the_end_is_not_answered_at_the_commit() {
        let id = RequestId(5);
        let mut waiters = Waiters::default();
        waiters.add(id, waiter(1, Awaited::Accepted));
        waiters.add(id, waiter(2, Awaited::End));
        assert_eq!(waiters.accepted(id), [waiter(1, Awaited::Accepted)]);
        assert_eq!(waiters.ended(id), [waiter(2, Awaited::End)]);
        assert!(waiters.ended(id).is_empty());
    }

    #[test]
    fn an_abandoned_call_is_not_answered() {
        let id = RequestId(5);
        let mut waiters = Waiters::default();
        waiters.add(id, waiter(1, Awaited::End));
        waiters.leave(id, waiter(1, Awaited::End).client, 1);
        assert!(waiters.ended(id).is_empty() && waiters.requests.is_empty());
    }
}
