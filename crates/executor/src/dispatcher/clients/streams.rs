//! What clients follow: the logs of requests, and what happens to them.

use std::collections::{HashMap, VecDeque};

use forebay_transport::streaming::LastLook;

use crate::dispatcher::hash::ByNumber;
use crate::dispatcher::limit::EVENTS_QUEUED_MAX;
use crate::dispatcher::poll::SlotKey;
use crate::id::RequestId;

/// A call of a client that is answered by a stream.
pub type Key = (SlotKey, u64);

/// What is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The log from this offset on; with `follow` until the request ends.
    Logs { offset: u64, follow: bool },
    /// What happens, and has not been sent; the reason that was told last.
    Events {
        queue: VecDeque<Event>,
        reason: String,
    },
    /// One item, and the end.
    Refusal(Option<Vec<u8>>),
}

/// Something that happened, as an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub item: Vec<u8>,
    /// The next one of its kind takes its place where it was not sent: progress.
    pub replaceable: bool,
}

/// One stream.
pub struct Stream {
    pub id: RequestId,
    pub what: StreamKind,
    /// Nothing more will come.
    pub over: bool,
    pub look: LastLook,
}

/// All of them. Bounded by the calls that clients may have open.
#[derive(Default)]
pub struct Streams {
    streams: HashMap<Key, Stream>,
    requests: ByNumber<RequestId, Vec<Key>>,
}

impl Streams {
    pub fn add(&mut self, key: Key, id: RequestId, what: StreamKind, over: bool) {
        let look = LastLook::now();
        let stream = Stream {
            id,
            what,
            over,
            look,
        };
        self.streams.insert(key, stream);
        self.requests.entry(id).or_default().push(key);
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Stream> {
        self.streams.get_mut(&key)
    }

    pub fn remove(&mut self, key: Key) -> bool {
        let Some(stream) = self.streams.remove(&key) else {
            return false;
        };
        if let Some(keys) = self.requests.get_mut(&stream.id) {
            keys.retain(|one| *one != key);
            if keys.is_empty() {
                self.requests.remove(&stream.id);
            }
        }
        true
    }

    /// The streams about a request.
    pub fn of(&self, id: RequestId) -> Vec<Key> {
        self.requests.get(&id).cloned().unwrap_or_default()
    }

    /// Whether somebody follows a request.
    pub fn is_followed(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
    }

    /// The streams of a client.
    pub fn of_client(&self, client: SlotKey) -> Vec<Key> {
        let keys = self.streams.keys().copied();
        keys.filter(|key| key.0 == client).collect()
    }

    /// The streams of what happens, with their requests.
    pub fn events(&self) -> Vec<(Key, RequestId)> {
        let events = self.streams.iter();
        let events = events.filter(|(_, one)| matches!(one.what, StreamKind::Events { .. }));
        events.map(|(key, one)| (*key, one.id)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}

impl StreamKind {
    /// The stream of what happens, from now on.
    pub fn events() -> Self {
        Self::Events {
            queue: VecDeque::new(),
            reason: String::new(),
        }
    }
}

impl Stream {
    /// Queue what has happened, if that is followed.
    pub fn tell(&mut self, event: Event) {
        let StreamKind::Events { queue, .. } = &mut self.what else {
            return;
        };
        match queue.back_mut() {
            Some(last) if last.replaceable && event.replaceable => *last = event,
            _ => queue.push_back(event),
        }
        if queue.len() > EVENTS_QUEUED_MAX {
            queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: u8, replaceable: bool) -> Event {
        Event {
            item: vec![name],
            replaceable,
        }
    }

    #[test]
    fn progress_that_nobody_took_is_replaced_and_nothing_else_is() {
        let mut streams = Streams::default();
        let client = SlotKey {
            number: 0,
            generation: 0,
        };
        let (key, id) = ((client, 1), RequestId(7));
        streams.add(key, id, StreamKind::events(), false);
        let stream = streams.get_mut(key).expect("it was added");
        for (name, replaceable) in [(1, false), (2, true), (3, true), (4, false), (5, true)] {
            stream.tell(event(name, replaceable));
        }
        let StreamKind::Events { queue, .. } = &stream.what else {
            panic!("no events");
        };
        let names: Vec<_> = queue.iter().map(|event| event.item[0]).collect();
        assert_eq!(names, [1, 3, 4, 5]);
        assert_eq!(
            (streams.of(id), streams.events()),
            (vec![key], vec![(key, id)])
        );
        assert!(streams.remove(key) && !streams.remove(key) && !streams.is_followed(id));
    }
}
