//! The output of requests, with the clients that follow it.

use std::time::{Duration, Instant};

use forebay_base::slots::Key;
use forebay_transport::calls::StreamReadiness;
use forebay_transport::link::Head;
use forebay_transport::wire::{Codec, Reason};

use crate::dispatcher::clients::connections::{Connections, OpenCall, plain};
use crate::dispatcher::clients::streams::{Event, StreamKey, StreamKind, Streams};
use crate::dispatcher::commits::refusals::unknown;
use crate::dispatcher::context::Context;
use crate::dispatcher::hash::ByNumber;
use crate::dispatcher::limit::{ITEMS_A_TURN, LOG_PIECE_BYTES, REASONS_MS};
use crate::error::Refusal;
use crate::id::RequestId;
use crate::logs::{Log, Logs};
use crate::machine::RequestView;
use crate::message;
use crate::request::Status;
use crate::store::Fetched;

/// Logs and progress of requests, with the streams that follow them.
#[derive(Default)]
pub struct Following {
    logs: Option<Logs>,
    /// The logs of running requests.
    writing: ByNumber<RequestId, Log>,
    progress: ByNumber<RequestId, Vec<u8>>,
    streams: Streams,
    reasons_at: Option<Instant>,
    /// Streams with more than a turn's worth.
    again: Vec<StreamKey>,
}

impl Following {
    pub fn new(logs: Option<Logs>) -> Self {
        Self {
            logs,
            ..Self::default()
        }
    }

    /// When the reasons of waiting requests are checked again.
    pub fn deadline(&self) -> Option<Instant> {
        self.reasons_at
    }

    pub fn has_more(&self) -> bool {
        !self.again.is_empty()
    }

    /// Continue the streams that had more than a turn's worth.
    pub fn pump_more(&mut self, connections: &mut Connections) {
        for key in std::mem::take(&mut self.again) {
            self.pump(connections, key);
        }
    }

    /// Begin a stream about an unfinished request.
    pub fn follow(
        &mut self,
        connections: &mut Connections,
        cx: &Context,
        key: StreamKey,
        id: RequestId,
        kind: StreamKind,
        view: RequestView,
    ) {
        self.begin_stream(connections, key, id, kind, false);
        self.queue_event(key, status(view.status, view.attempt));
        if let Some(item) = self.progress.get(&id).cloned() {
            self.queue_event(key, progress(item));
        }
        self.notify_reason(cx, key, id);
        self.pump(connections, key);
    }

    /// Begin a stream about a request that has ended.
    pub fn follow_ended(
        &mut self,
        connections: &mut Connections,
        key: StreamKey,
        id: RequestId,
        kind: StreamKind,
        found: &Fetched,
    ) {
        let Fetched::Ending(ending) = found else {
            return self.refuse(connections, key, &unknown(id));
        };
        self.begin_stream(connections, key, id, kind, true);
        self.queue_event(key, status(ending.status, ending.attempts));
        self.pump(connections, key);
    }

    /// Answer a refused stream with the refusal as its only item.
    pub fn refuse(&mut self, connections: &mut Connections, key: StreamKey, refusal: &Refusal) {
        let item = Some(message::refused(refusal));
        self.begin_stream(
            connections,
            key,
            RequestId(0),
            StreamKind::Refusal(item),
            true,
        );
        self.pump(connections, key);
    }

    fn begin_stream(
        &mut self,
        connections: &mut Connections,
        key: StreamKey,
        id: RequestId,
        kind: StreamKind,
        over: bool,
    ) {
        if let Some(client) = connections.get_mut(key.0) {
            client.open(key.1, OpenCall::Stream);
            self.streams.add(key, id, kind, over);
        }
    }

    /// Append a run's output to its log.
    pub fn log(&mut self, connections: &mut Connections, id: RequestId, bytes: &[u8]) {
        let Some(logs) = &self.logs else {
            return;
        };
        let log = self.writing.entry(id).or_insert_with(|| logs.log(id));
        // Logging is best effort: the log itself says what was lost once there is room again.
        drop(log.append(bytes));
        for key in self.streams.of(id) {
            self.pump(connections, key);
        }
    }

    /// Record the progress of a run.
    pub fn progress(&mut self, connections: &mut Connections, id: RequestId, map: &[u8]) {
        if let Some(item) = message::progressed(map) {
            self.progress.insert(id, item.clone());
            self.notify_followers(connections, id, &progress(item));
        }
    }

    /// Notify followers that the status of a request has changed.
    pub fn notify_status(
        &mut self,
        connections: &mut Connections,
        id: RequestId,
        now: Status,
        attempt: u32,
    ) {
        if self.streams.is_followed(id) {
            self.notify_followers(connections, id, &status(now, attempt));
        }
    }

    /// End the streams about a request that has ended, once they have sent everything.
    pub fn end(&mut self, connections: &mut Connections, id: RequestId, now: Status, attempt: u32) {
        self.writing.remove(&id);
        self.progress.remove(&id);
        for key in self.streams.of(id) {
            self.queue_event(key, status(now, attempt));
            if let Some(stream) = self.streams.get_mut(key) {
                stream.over = true;
            }
            self.pump(connections, key);
        }
    }

    fn notify_followers(&mut self, connections: &mut Connections, id: RequestId, event: &Event) {
        for key in self.streams.of(id) {
            self.queue_event(key, event.clone());
            self.pump(connections, key);
        }
    }

    fn queue_event(&mut self, key: StreamKey, event: Event) {
        if let Some(stream) = self.streams.get_mut(key) {
            stream.push(event);
        }
    }

    /// Queue the reason why a request waits, unless it was sent already.
    fn notify_reason(&mut self, cx: &Context, key: StreamKey, id: RequestId) {
        let Some(why) = cx.machine.why(cx.now, id) else {
            return;
        };
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        let StreamKind::Events { reason, .. } = &mut stream.kind else {
            return;
        };
        let every = Duration::from_millis(REASONS_MS);
        self.reasons_at = Instant::now().checked_add(every);
        if why.status != Status::Queued || *reason == why.reason {
            return;
        }
        let item = message::reasoned(&why.reason);
        *reason = why.reason;
        stream.push(Event {
            item,
            replaceable: false,
        });
    }

    /// Check the reasons of all followed requests that wait.
    pub fn notify_reasons(&mut self, connections: &mut Connections, cx: &Context, now: Instant) {
        if self.reasons_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        for (key, id) in self.streams.events() {
            self.notify_reason(cx, key, id);
            self.pump(connections, key);
        }
    }

    /// Send what a stream has, as far as its client's credit allows.
    pub fn pump(&mut self, connections: &mut Connections, key: StreamKey) {
        for _ in 0..ITEMS_A_TURN {
            if !self.send_next(connections, key) {
                return connections.touch(key.0);
            }
        }
        connections.touch(key.0);
        self.again.push(key);
    }

    /// Send one item; false if there is none, or the client has no credit.
    fn send_next(&mut self, connections: &mut Connections, key: StreamKey) -> bool {
        let (client, call) = key;
        let Some(connection) = connections.connection(client) else {
            return false;
        };
        match connection.readiness(call) {
            Ok(StreamReadiness::Ready) => {}
            Ok(StreamReadiness::Waiting) => return false,
            Ok(StreamReadiness::Cancelled | StreamReadiness::Expired) | Err(_) => {
                self.leave(connections, key);
                return false;
            }
        }
        // Only with credit, since an item that was taken out must be sent.
        let Some(item) = self.next_item(connections, key) else {
            return false;
        };
        let (Some(connection), Some(stream)) =
            (connections.connection(client), self.streams.get_mut(key))
        else {
            return false;
        };
        let (head, look) = (Head::Borrowed(&item), &mut stream.look);
        connection
            .send_item(call, Codec::Msgpack, head, Vec::new(), true, look)
            .is_ok()
    }

    /// The next item of a stream. A finished stream without one ends here.
    fn next_item(&mut self, connections: &mut Connections, key: StreamKey) -> Option<Vec<u8>> {
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
            StreamKind::Events { queue, .. } => queue.pop_front().map(|event| event.item),
            StreamKind::Refusal(item) => item.take(),
        };
        let follows =
            !stream.over && !matches!(stream.kind, StreamKind::Logs { follow: false, .. });
        if item.is_none() && !follows {
            self.streams.remove(key);
            connections.answer(key.0, key.1, plain(Vec::new()));
        }
        item
    }

    /// End a stream that its client has cancelled.
    pub fn leave(&mut self, connections: &mut Connections, key: StreamKey) {
        if !self.streams.remove(key) {
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

    /// Continue the streams of a client that can be written to again.
    pub fn pump_client(&mut self, connections: &mut Connections, client: Key) {
        if self.streams.is_empty() {
            return;
        }
        for key in self.streams.of_client(client) {
            self.pump(connections, key);
        }
    }
}

fn status(now: Status, attempt: u32) -> Event {
    Event {
        item: message::status_event(now, attempt),
        replaceable: false,
    }
}

fn progress(item: Vec<u8>) -> Event {
    Event {
        item,
        replaceable: true,
    }
}
