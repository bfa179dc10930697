//! The streams that clients follow: the log of a request, its events, or those of the whole server.

use std::collections::HashMap;

use forebay_base::slots::Key;
use forebay_transport::calls::LastLook;

use crate::dispatcher::clients::request_events::RequestEvents;
use crate::feed::FeedReader;
use crate::hash::ByNumber;
use crate::id::RequestId;
use crate::items::ItemsReader;

/// A call of a client that a stream answers.
pub type StreamKey = (Key, u64);

/// What a client follows of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// The log from this offset on; with `follow` until the request ends.
    Logs { offset: u64, follow: bool },
    /// The events behind this number, or from how it stands now.
    Events { cursor: Option<u64> },
    /// The items behind this number of this epoch; with `follow` until the request ends.
    Items {
        epoch: Option<u64>,
        after: u64,
        follow: bool,
    },
}

/// What a stream carries.
#[derive(Debug)]
pub enum StreamKind {
    /// The log from this offset on; with `follow` until the request ends.
    Logs { offset: u64, follow: bool },
    /// Events of one request.
    Events(RequestEvents),
    /// Items of one request; with `follow` until it ends.
    Items { reader: ItemsReader, follow: bool },
    /// Events of the server; `begin` is the number behind which it begins, until that was sent.
    Feed {
        reader: FeedReader,
        begin: Option<u64>,
    },
    /// One item, then the end.
    Item(Option<Vec<u8>>),
}

/// One stream.
#[derive(Debug)]
pub struct Stream {
    /// Its request; 0 for the events of the server.
    pub id: RequestId,
    pub kind: StreamKind,
    /// No further item will come.
    pub over: bool,
    pub look: LastLook,
}

/// All streams. Bounded by the open calls of the clients.
#[derive(Default)]
pub struct Streams {
    all: HashMap<StreamKey, Stream>,
    /// The streams of logs by request.
    logs: ByNumber<RequestId, Vec<StreamKey>>,
    /// The streams of items by request.
    items: ByNumber<RequestId, Vec<StreamKey>>,
    /// Those that read the feed, in no order.
    readers: Vec<StreamKey>,
}

impl Streams {
    pub fn add(&mut self, key: StreamKey, id: RequestId, kind: StreamKind, over: bool) {
        match kind {
            StreamKind::Logs { .. } => self.logs.entry(id).or_default().push(key),
            StreamKind::Items { .. } => self.items.entry(id).or_default().push(key),
            StreamKind::Events(_) | StreamKind::Feed { .. } => self.readers.push(key),
            StreamKind::Item(_) => {}
        }
        let look = LastLook::now();
        let stream = Stream {
            id,
            kind,
            over,
            look,
        };
        self.all.insert(key, stream);
    }

    pub fn get(&self, key: StreamKey) -> Option<&Stream> {
        self.all.get(&key)
    }

    pub fn get_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        self.all.get_mut(&key)
    }

    pub fn remove(&mut self, key: StreamKey) -> Option<Stream> {
        let stream = self.all.remove(&key)?;
        match stream.kind {
            StreamKind::Logs { .. } => remove_from(&mut self.logs, stream.id, key),
            StreamKind::Items { .. } => remove_from(&mut self.items, stream.id, key),
            StreamKind::Events(_) | StreamKind::Feed { .. } => {
                if let Some(index) = self.readers.iter().position(|one| *one == key) {
                    self.readers.swap_remove(index);
                }
            }
            StreamKind::Item(_) => {}
        }
        Some(stream)
    }

    /// The streams of a request's log.
    pub fn of_log(&self, id: RequestId) -> Vec<StreamKey> {
        self.logs.get(&id).cloned().unwrap_or_default()
    }

    /// The streams of a request's items.
    pub fn of_items(&self, id: RequestId) -> &[StreamKey] {
        self.items.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The streams that read the feed.
    pub fn readers(&self) -> &[StreamKey] {
        &self.readers
    }

    /// The streams of a client.
    pub fn of_client(&self, client: Key) -> Vec<StreamKey> {
        let keys = self.all.keys().copied();
        keys.filter(|key| key.0 == client).collect()
    }

    /// The streams of single requests' events.
    pub fn events(&self) -> Vec<(StreamKey, RequestId)> {
        let readers = self.readers.iter();
        let readers = readers.filter_map(|key| Some((*key, self.get(*key)?)));
        let events = readers.filter(|(_, one)| matches!(one.kind, StreamKind::Events(_)));
        events.map(|(key, one)| (key, one.id)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

fn remove_from(all: &mut ByNumber<RequestId, Vec<StreamKey>>, id: RequestId, key: StreamKey) {
    let Some(keys) = all.get_mut(&id) else {
        return;
    };
    keys.retain(|one| *one != key);
    if keys.is_empty() {
        all.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{EventFilter, Feed, FeedBounds};

    #[test]
    fn a_stream_that_is_removed_is_in_no_list() {
        let mut feed = Feed::new(1, FeedBounds::default());
        let mut streams = Streams::default();
        let (client, id) = (Key::default(), RequestId(7));
        let log = StreamKind::Logs {
            offset: 0,
            follow: true,
        };
        streams.add((client, 1), id, log, false);
        let reader =
            FeedReader::open(&mut feed, EventFilter::of_request(id), None).expect("a reader");
        let events = StreamKind::Events(RequestEvents::new(reader));
        streams.add((client, 2), id, events, false);
        let reader = FeedReader::open(&mut feed, EventFilter::default(), None).expect("a reader");
        let begin = None;
        let all = StreamKind::Feed { reader, begin };
        streams.add((client, 3), RequestId(0), all, false);
        let (reader, follow) = (ItemsReader::new(None, 0), true);
        streams.add((client, 4), id, StreamKind::Items { reader, follow }, false);
        assert_eq!(streams.of_log(id), [(client, 1)]);
        assert_eq!(streams.of_items(id), [(client, 4)]);
        assert_eq!(streams.events(), [((client, 2), id)]);
        assert_eq!(streams.readers(), [(client, 2), (client, 3)]);
        for call in 1..=4 {
            assert!(streams.remove((client, call)).is_some());
        }
        assert!(streams.remove((client, 1)).is_none() && streams.is_empty());
        assert!(streams.readers().is_empty() && streams.of_log(id).is_empty());
        assert!(streams.of_items(id).is_empty());
    }
}
