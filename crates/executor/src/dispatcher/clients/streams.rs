//! The streams that clients follow, about logs or events of requests.

use std::collections::{HashMap, VecDeque};

use forebay_base::slots::Key;
use forebay_transport::calls::LastLook;

use crate::dispatcher::hash::ByNumber;
use crate::dispatcher::limit::EVENTS_QUEUED_MAX;
use crate::id::RequestId;

/// A call of a client that a stream answers.
pub type StreamKey = (Key, u64);

/// What a stream carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The log from this offset on; with `follow` until the request ends.
    Logs { offset: u64, follow: bool },
    /// Events that were not sent yet, and the reason that was sent last.
    Events {
        queue: VecDeque<Event>,
        reason: String,
    },
    /// One item, then the end.
    Refusal(Option<Vec<u8>>),
}

/// An event as an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub item: Vec<u8>,
    /// The next one of its kind replaces it if it was not sent: progress.
    pub replaceable: bool,
}

/// One stream.
pub struct Stream {
    pub id: RequestId,
    pub kind: StreamKind,
    /// No further item will come.
    pub over: bool,
    pub look: LastLook,
}

/// All streams. Bounded by the open calls of the clients.
#[derive(Default)]
pub struct Streams {
    streams: HashMap<StreamKey, Stream>,
    requests: ByNumber<RequestId, Vec<StreamKey>>,
}

impl Streams {
    pub fn add(&mut self, key: StreamKey, id: RequestId, kind: StreamKind, over: bool) {
        let look = LastLook::now();
        let stream = Stream {
            id,
            kind,
            over,
            look,
        };
        self.streams.insert(key, stream);
        self.requests.entry(id).or_default().push(key);
    }

    pub fn get_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.streams.get_mut(&key)
    }

    pub fn remove(&mut self, key: StreamKey) -> bool {
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
    pub fn of(&self, id: RequestId) -> Vec<StreamKey> {
        self.requests.get(&id).cloned().unwrap_or_default()
    }

    /// Whether a client follows a request.
    pub fn is_followed(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
    }

    /// The streams of a client.
    pub fn of_client(&self, client: Key) -> Vec<StreamKey> {
        let keys = self.streams.keys().copied();
        keys.filter(|key| key.0 == client).collect()
    }

    /// The event streams with their requests.
    pub fn events(&self) -> Vec<(StreamKey, RequestId)> {
        let events = self.streams.iter();
        let events = events.filter(|(_, one)| matches!(one.kind, StreamKind::Events { .. }));
        events.map(|(key, one)| (*key, one.id)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}

impl StreamKind {
    /// A stream of events from now on.
    pub fn events() -> Self {
        Self::Events {
            queue: VecDeque::new(),
            reason: String::new(),
        }
    }
}

impl Stream {
    /// Queue an event if the stream carries events.
    pub fn push(&mut self, event: Event) {
        let StreamKind::Events { queue, .. } = &mut self.kind else {
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
    fn unread_progress_is_replaced_and_nothing_else_is() {
        let mut streams = Streams::default();
        let client = Key::default();
        let (key, id) = ((client, 1), RequestId(7));
        streams.add(key, id, StreamKind::events(), false);
        let stream = streams.get_mut(key).expect("it was added");
        for (name, replaceable) in [(1, false), (2, true), (3, true), (4, false), (5, true)] {
            stream.push(event(name, replaceable));
        }
        let StreamKind::Events { queue, .. } = &stream.kind else {
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
