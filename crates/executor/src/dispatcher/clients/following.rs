//! The output, the events and the items of requests, with the clients that follow them.
//!
//! Logs are sent as they are written. Readers of the feed are continued together, at most once in [`FEED_PAUSE_MS`]: a
//! client that is woken for each event of a busy server would cost more than the requests themselves. An event after a
//! pause is sent at once.

use std::time::{Duration, Instant};

use forebay_base::slots::Key;
use forebay_transport::calls::StreamReadiness;
use forebay_transport::link::{Head, Payload};
use forebay_transport::wire::{Codec, Reason};

use crate::dispatcher::clients::connections::{Connections, OpenCall, plain};
use crate::dispatcher::clients::item_streams::{items_behind, next_items};
use crate::dispatcher::clients::request_events::{NextItem, RequestEvents};
use crate::dispatcher::clients::streams::{StreamKey, StreamKind, Streams, Topic};
use crate::dispatcher::commits::refusals::unknown;
use crate::dispatcher::context::Context;
use crate::dispatcher::limit::{
    FEED_ITEMS_A_TURN, FEED_PAUSE_MS, ITEMS_A_TURN, LOG_PIECE_BYTES, REASONS_MS,
};
use crate::error::Refusal;
use crate::feed::{EventFilter, Feed, FeedReader, Looks, Next};
use crate::hash::ByNumber;
use crate::id::RequestId;
use crate::items::Items;
use crate::logs::{Log, Logs};
use crate::machine::RequestView;
use crate::message::{self, FeedItem};
use crate::request::Status;
use crate::store::Fetched;

/// Logs of requests, with the streams that follow those or the feed.
#[derive(Default)]
pub struct Following {
    logs: Option<Logs>,
    items: Option<Items>,
    /// The logs of running requests.
    writing: ByNumber<RequestId, Log>,
    streams: Streams,
    reasons_at: Option<Instant>,
    /// The newest event when the readers of the feed were continued last, and when they may be next.
    told: u64,
    tell_at: Option<Instant>,
    /// They wait for that.
    waits_to_tell: bool,
    /// Streams with more than a turn's worth.
    again: Vec<StreamKey>,
    /// Streams that wait until their clients have taken what was written to them.
    blocked: Vec<StreamKey>,
}

impl Following {
    pub fn new(logs: Option<Logs>, items: Option<Items>) -> Self {
        Self {
            logs,
            items,
            ..Self::default()
        }
    }

    /// When the reasons of waiting requests are checked again, or the readers of the feed are continued.
    pub fn deadline(&self) -> Option<Instant> {
        let tell_at = self.tell_at.filter(|_| self.waits_to_tell);
        [self.reasons_at, tell_at].into_iter().flatten().min()
    }

    pub fn has_more(&self) -> bool {
        !self.again.is_empty()
    }

    /// How many streams read the feed.
    pub fn readers(&self) -> usize {
        self.streams.readers().len()
    }

    /// Continue the streams that had more than a turn's worth.
    pub fn pump_more(&mut self, connections: &mut Connections, feed: &mut Feed) {
        for key in std::mem::take(&mut self.again) {
            self.pump(connections, feed, key);
        }
    }

    /// After a flush: continue the streams in the next turn whose clients have room again. The epoll reports that only
    /// where something was left to write.
    pub fn unblock(&mut self, connections: &Connections) {
        let again = &mut self.again;
        self.blocked.retain(|key| {
            let Some(connection) = connections.connection(key.0) else {
                return false;
            };
            if let Ok(StreamReadiness::Ready) = connection.readiness(key.1) {
                again.push(*key);
                return false;
            }
            connection.outbox_bytes() > 0 // else it waits for credit, which comes by itself
        });
    }

    /// Continue the readers of the feed, if something was appended and that is due.
    pub fn pump_readers(&mut self, connections: &mut Connections, feed: &mut Feed) {
        self.waits_to_tell = false;
        if self.streams.readers().is_empty() || self.told == feed.newest() {
            return;
        }
        let now = Instant::now();
        if self.tell_at.is_some_and(|at| at > now) {
            self.waits_to_tell = true;
            return;
        }
        self.told = feed.newest();
        self.tell_at = now.checked_add(Duration::from_millis(FEED_PAUSE_MS));
        for key in self.streams.readers().to_vec() {
            let stream = self.streams.get(key);
            let has_news = stream.is_some_and(|stream| match &stream.kind {
                StreamKind::Feed { reader, .. } => reader.has_news(feed),
                StreamKind::Events(events) => events.reader.has_news(feed),
                StreamKind::Logs { .. } | StreamKind::Items { .. } | StreamKind::Item(_) => false,
            });
            if has_news {
                self.pump(connections, feed, key);
            }
        }
    }
}

/// Streams.
impl Following {
    /// Begin a stream about an unfinished request.
    pub fn follow(
        &mut self,
        connections: &mut Connections,
        cx: &mut Context,
        (key, topic): (StreamKey, Topic),
        id: RequestId,
        view: RequestView,
    ) {
        let kind = match topic {
            Topic::Logs { offset, follow } => StreamKind::Logs { offset, follow },
            Topic::Items {
                epoch,
                after,
                follow,
            } => items_behind(epoch, after, follow),
            Topic::Events { cursor } => {
                cx.append_news(); // how it stands is not ahead of what has happened
                match RequestEvents::of_unfinished(&mut cx.feed, id, view, cursor) {
                    Ok(events) => StreamKind::Events(events),
                    Err(ahead) => {
                        let refusal = not_given(&cx.feed, ahead);
                        return self.refuse(connections, &mut cx.feed, key, &refusal);
                    }
                }
            }
        };
        self.begin_stream(connections, &mut cx.feed, key, id, kind, false);
        self.notify_reason(cx, key, id);
        self.pump(connections, &mut cx.feed, key);
    }

    /// Begin a stream about a request that has ended.
    pub fn follow_ended(
        &mut self,
        connections: &mut Connections,
        feed: &mut Feed,
        (key, topic): (StreamKey, Topic),
        id: RequestId,
        found: &Fetched,
    ) {
        let Fetched::Ending(ending) = found else {
            return self.refuse(connections, feed, key, &unknown(id));
        };
        let (kind, over) = match topic {
            Topic::Logs { offset, follow } => (StreamKind::Logs { offset, follow }, true),
            Topic::Items {
                epoch,
                after,
                follow,
            } => (items_behind(epoch, after, follow), true),
            Topic::Events { cursor } => {
                let end = (ending.status, ending.attempts);
                match RequestEvents::of_ended(feed, id, end, cursor) {
                    Ok((events, over)) => (StreamKind::Events(events), over),
                    Err(ahead) => {
                        let refusal = not_given(feed, ahead);
                        return self.refuse(connections, feed, key, &refusal);
                    }
                }
            }
        };
        self.begin_stream(connections, feed, key, id, kind, over);
        self.pump(connections, feed, key);
    }

    /// Begin a stream of the server's events.
    ///
    /// # Errors
    /// The cursor is a number that was not given yet.
    pub fn read(
        &mut self,
        connections: &mut Connections,
        feed: &mut Feed,
        key: StreamKey,
        filter: EventFilter,
        cursor: Option<u64>,
    ) -> Result<(), Refusal> {
        let reader =
            FeedReader::open(feed, filter, cursor).map_err(|ahead| not_given(feed, ahead))?;
        // So that a client that comes back before anything has happened knows from where.
        let begin = cursor.is_none().then_some(feed.newest());
        let kind = StreamKind::Feed { reader, begin };
        self.begin_stream(connections, feed, key, RequestId(0), kind, false);
        self.pump(connections, feed, key);
        Ok(())
    }

    /// Answer a refused stream with the refusal as its only item.
    pub fn refuse(
        &mut self,
        connections: &mut Connections,
        feed: &mut Feed,
        key: StreamKey,
        refusal: &Refusal,
    ) {
        let kind = StreamKind::Item(Some(message::refused(refusal)));
        self.begin_stream(connections, feed, key, RequestId(0), kind, true);
        self.pump(connections, feed, key);
    }

    fn begin_stream(
        &mut self,
        connections: &mut Connections,
        feed: &mut Feed,
        key: StreamKey,
        id: RequestId,
        kind: StreamKind,
        over: bool,
    ) {
        if let Some(client) = connections.get_mut(key.0) {
            client.open(key.1, OpenCall::Stream);
            self.streams.add(key, id, kind, over);
        } else {
            close_reader(feed, kind);
        }
    }

    /// Append a run's output to its log.
    pub fn log(
        &mut self,
        connections: &mut Connections,
        feed: &mut Feed,
        id: RequestId,
        bytes: &[u8],
    ) {
        let Some(logs) = &self.logs else {
            return;
        };
        let log = self.writing.entry(id).or_insert_with(|| logs.log(id));
        // Logging is best effort: the log itself says what was lost once there is room again.
        drop(log.append(bytes));
        for key in self.streams.of_log(id) {
            self.pump(connections, feed, key);
        }
    }

    /// Have the readers of a request's items look at them in this turn, once however many were added.
    pub fn items_added(&mut self, id: RequestId) {
        for key in self.streams.of_items(id) {
            if !self.again.contains(key) {
                self.again.push(*key);
            }
        }
    }

    /// End the streams of the log and the items of a request that has ended, once they have sent everything.
    pub fn end(&mut self, connections: &mut Connections, feed: &mut Feed, id: RequestId) {
        self.writing.remove(&id);
        let mut keys = self.streams.of_log(id);
        keys.extend(self.streams.of_items(id));
        for key in keys {
            if let Some(stream) = self.streams.get_mut(key) {
                stream.over = true;
            }
            self.pump(connections, feed, key);
        }
    }

    /// End a stream that its client has cancelled.
    pub fn leave(&mut self, connections: &mut Connections, feed: &mut Feed, key: StreamKey) {
        if !self.remove(feed, key) {
            return;
        }
        if let Some(client) = connections.get_mut(key.0) {
            client.close(key.1);
        }
        if let Some(connection) = connections.connection(key.0) {
            let nothing = Head::Borrowed(&[]);
            // Fails if the client has disconnected.
            drop(connection.fail(key.1, Reason::Cancelled, Codec::Msgpack, nothing));
            connections.touch(key.0);
        }
    }

    fn remove(&mut self, feed: &mut Feed, key: StreamKey) -> bool {
        let Some(stream) = self.streams.remove(key) else {
            return false;
        };
        close_reader(feed, stream.kind);
        true
    }
}

/// Reasons.
impl Following {
    /// Have the reason why a request waits sent, unless it was already.
    fn notify_reason(&mut self, cx: &Context, key: StreamKey, id: RequestId) {
        let Some(StreamKind::Events(events)) =
            self.streams.get_mut(key).map(|stream| &mut stream.kind)
        else {
            return;
        };
        let Some(why) = cx.machine.why(cx.now, id) else {
            return;
        };
        let every = Duration::from_millis(REASONS_MS);
        self.reasons_at = Instant::now().checked_add(every);
        if why.status == Status::Queued && events.told != why.reason {
            events.reason = Some(message::reasoned(&why.reason));
            events.told = why.reason;
        }
    }

    /// Check the reasons of all followed requests that wait.
    pub fn notify_reasons(
        &mut self,
        connections: &mut Connections,
        cx: &mut Context,
        now: Instant,
    ) {
        if self.reasons_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        for (key, id) in self.streams.events() {
            self.notify_reason(cx, key, id);
            self.pump(connections, &mut cx.feed, key);
        }
    }
}

/// Sending.
impl Following {
    /// Send what a stream has, as far as its client's credit allows.
    pub fn pump(&mut self, connections: &mut Connections, feed: &mut Feed, key: StreamKey) {
        let reads_feed = matches!(
            self.streams.get(key).map(|stream| &stream.kind),
            Some(StreamKind::Feed { .. })
        );
        let items = if reads_feed {
            FEED_ITEMS_A_TURN
        } else {
            ITEMS_A_TURN
        };
        for _ in 0..items {
            match self.send_next(connections, feed, key) {
                Some(true) => {}
                Some(false) => break,
                None => return connections.touch(key.0),
            }
        }
        connections.touch(key.0);
        self.again.push(key);
    }

    /// Send one item; `None`: there is none, or the client has no credit. False: there may be one in the next turn.
    fn send_next(
        &mut self,
        connections: &mut Connections,
        feed: &mut Feed,
        key: StreamKey,
    ) -> Option<bool> {
        let (client, call) = key;
        let connection = connections.connection(client)?;
        match connection.readiness(call) {
            Ok(StreamReadiness::Ready) => {}
            Ok(StreamReadiness::Waiting) => {
                if connection.outbox_bytes() > 0 && !self.blocked.contains(&key) {
                    self.blocked.push(key);
                }
                return None;
            }
            Ok(StreamReadiness::Cancelled | StreamReadiness::Expired) | Err(_) => {
                self.leave(connections, feed, key);
                return None;
            }
        }
        // Only with credit, since an item that was taken out must be sent.
        let (item, blob) = match self.next_piece(feed, key)? {
            NextItem::Item(item) => (item, None),
            NextItem::Message(message) => (message.head, message.segment),
            NextItem::Later => return Some(false),
            NextItem::Nothing => {
                self.end_if_over(connections, feed, key);
                return None;
            }
        };
        let connection = connections.connection(client)?;
        let look = &mut self.streams.get_mut(key)?.look;
        let head = Head::Borrowed(&item);
        let segments = blob.into_iter().map(|blob| Box::new(blob) as Payload);
        let segments = segments.collect();
        let sent = connection.send_item(call, Codec::Msgpack, head, segments, true, look);
        sent.is_ok().then_some(true)
    }

    /// End a stream that has nothing and will have nothing.
    fn end_if_over(&mut self, connections: &mut Connections, feed: &mut Feed, key: StreamKey) {
        let over = self.streams.get(key).is_some_and(|stream| {
            let follows = match stream.kind {
                StreamKind::Logs { follow, .. } | StreamKind::Items { follow, .. } => follow,
                StreamKind::Events(_) | StreamKind::Feed { .. } | StreamKind::Item(_) => true,
            };
            stream.over || !follows
        });
        if over {
            self.remove(feed, key);
            connections.answer(key.0, key.1, plain(Vec::new()));
        }
    }

    /// The next item of a stream.
    fn next_piece(&mut self, feed: &mut Feed, key: StreamKey) -> Option<NextItem> {
        let stream = self.streams.get_mut(key)?;
        let item = match &mut stream.kind {
            StreamKind::Logs { offset, .. } => {
                let logs = self.logs.as_ref();
                let piece =
                    logs.and_then(|logs| logs.read(stream.id, *offset, LOG_PIECE_BYTES).ok());
                piece.filter(|piece| !piece.bytes.is_empty()).map(|piece| {
                    *offset = piece.next;
                    message::logged(piece.offset, &piece.bytes)
                })
            }
            StreamKind::Events(events) => {
                return Some(events.next_piece(feed, stream.id, &mut stream.over));
            }
            StreamKind::Feed { reader, begin } => return Some(next_item(feed, reader, begin)),
            StreamKind::Items { reader, .. } => {
                let Some(items) = &self.items else {
                    return Some(NextItem::Nothing);
                };
                return Some(next_items(items, stream.id, reader, &mut stream.over));
            }
            StreamKind::Item(item) => item.take(),
        };
        Some(item.map_or(NextItem::Nothing, NextItem::Item))
    }

    /// Continue the streams of a client that can be written to again.
    pub fn pump_client(&mut self, connections: &mut Connections, feed: &mut Feed, client: Key) {
        if self.streams.is_empty() {
            return;
        }
        for key in self.streams.of_client(client) {
            self.pump(connections, feed, key);
        }
    }
}

fn close_reader(feed: &mut Feed, kind: StreamKind) {
    match kind {
        StreamKind::Feed { reader, .. } => reader.close(feed),
        StreamKind::Events(events) => events.reader.close(feed),
        StreamKind::Logs { .. } | StreamKind::Items { .. } | StreamKind::Item(_) => {}
    }
}

/// The refusal of a reader that names a number which no event has yet.
fn not_given(feed: &Feed, ahead: u64) -> Refusal {
    let next = "begin without a cursor; this one is of another server";
    let allowed = format!("a number up to {}", feed.newest());
    Refusal::invalid("cursor", &allowed, &ahead.to_string(), next)
}

/// The next item of a reader of the feed: as many events as fit.
fn next_item(feed: &mut Feed, reader: &mut FeedReader, begin: &mut Option<u64>) -> NextItem {
    let (mut item, mut looks) = (FeedItem::new(), Looks::default());
    if let Some(number) = begin.take() {
        item.begin(number);
    }
    while !item.is_full() {
        match reader.next(feed, &mut looks) {
            Next::Event(event) => item.event(&event),
            Next::Gap { first, last } => {
                feed.metrics_mut().missed();
                item.gap(first, last);
            }
            Next::Later if item.is_empty() => return NextItem::Later,
            Next::Later | Next::Nothing => break,
        }
    }
    item.into_bytes().map_or(NextItem::Nothing, NextItem::Item)
}
