//! The output of requests, with the clients that follow it.

use std::time::{Duration, Instant};

use forebay_base::slots::Key;
use forebay_transport::calls::StreamReadiness;
use forebay_transport::link::Head;
use forebay_transport::wire::{Codec, Reason};

use crate::dispatcher::clients::OpenCall;
use crate::dispatcher::clients::streams::{Event, StreamKey, StreamKind, Streams};
use crate::dispatcher::commits::pending_writes::Purpose;
use crate::dispatcher::commits::store_answers::unknown;
use crate::dispatcher::driver::Driver;
use crate::dispatcher::hash::ByNumber;
use crate::dispatcher::limit::{ITEMS_A_TURN, LOG_PIECE_BYTES, REASONS_MS};
use crate::error::Refusal;
use crate::id::RequestId;
use crate::logs::{Log, Logs};
use crate::message;
use crate::request::Status;
use crate::store::{Fetched, Question};

/// Logs and progress of requests, with the streams that follow them.
#[derive(Default)]
pub struct Following {
    pub logs: Option<Logs>,
    /// The logs of running requests.
    writing: ByNumber<RequestId, Log>,
    progress: ByNumber<RequestId, Vec<u8>>,
    pub streams: Streams,
    reasons_at: Option<Instant>,
    /// Streams with more than a turn's worth.
    again: Vec<StreamKey>,
}

impl Following {
    /// When the reasons of waiting requests are checked again.
    pub fn deadline(&self) -> Option<Instant> {
        self.reasons_at
    }

    pub fn has_more(&self) -> bool {
        !self.again.is_empty()
    }

    pub fn take_again(&mut self) -> Vec<StreamKey> {
        std::mem::take(&mut self.again)
    }
}

impl Driver {
    /// Begin a stream about a request.
    pub fn follow(
        &mut self,
        key: StreamKey,
        id: RequestId,
        kind: StreamKind,
    ) -> Result<(), Refusal> {
        let view = self.machine.view(id);
        if view.is_none() {
            let pending = self.pending.as_mut().ok_or_else(|| unknown(id))?;
            pending.fetch(id, Question::Ending, Purpose::Follow(key, kind));
            self.clients.await_store(key.0, key.1);
            return Ok(());
        }
        self.begin_stream(key, id, kind, false);
        if let Some(view) = view {
            self.queue_event(key, status(view.status, view.attempt));
        }
        if let Some(item) = self.following.progress.get(&id).cloned() {
            self.queue_event(key, progress(item));
        }
        self.notify_reason(key, id);
        self.pump(key);
        Ok(())
    }

    /// Begin a stream about a request that has ended.
    pub fn follow_found(
        &mut self,
        key: StreamKey,
        id: RequestId,
        kind: StreamKind,
        found: &Fetched,
    ) {
        let Fetched::Ending(ending) = found else {
            return self.refuse_stream(key, &unknown(id));
        };
        self.begin_stream(key, id, kind, true);
        self.queue_event(key, status(ending.status, ending.attempts));
        self.pump(key);
    }

    /// Answer a refused stream with the refusal as its only item.
    pub fn refuse_stream(&mut self, key: StreamKey, refusal: &Refusal) {
        let item = Some(message::refused(refusal));
        self.begin_stream(key, RequestId(0), StreamKind::Refusal(item), true);
        self.pump(key);
    }

    fn begin_stream(&mut self, key: StreamKey, id: RequestId, kind: StreamKind, over: bool) {
        if let Some(client) = self.clients.get_mut(key.0) {
            client.open.insert(key.1, OpenCall::Stream);
            self.following.streams.add(key, id, kind, over);
        }
    }

    /// Append a run's output to its log.
    pub fn log(&mut self, id: RequestId, bytes: &[u8]) {
        let following = &mut self.following;
        let Some(logs) = &following.logs else {
            return;
        };
        let log = following.writing.entry(id).or_insert_with(|| logs.log(id));
        // Logging is best effort: the log itself says what was lost once there is room again.
        drop(log.append(bytes));
        for key in following.streams.of(id) {
            self.pump(key);
        }
    }

    /// Record the progress of a run.
    pub fn progress(&mut self, id: RequestId, map: &[u8]) {
        if let Some(item) = message::progressed(map) {
            self.following.progress.insert(id, item.clone());
            self.notify_followers(id, &progress(item));
        }
    }

    /// Notify followers that the status of a request has changed.
    pub fn notify_status(&mut self, id: RequestId, now: Status, attempt: u32) {
        if self.following.streams.is_followed(id) {
            self.notify_followers(id, &status(now, attempt));
        }
    }

    /// End the streams about a request that has ended, once they have sent everything.
    pub fn end_following(&mut self, id: RequestId, now: Status, attempt: u32) {
        self.following.writing.remove(&id);
        self.following.progress.remove(&id);
        for key in self.following.streams.of(id) {
            self.queue_event(key, status(now, attempt));
            if let Some(stream) = self.following.streams.get_mut(key) {
                stream.over = true;
            }
            self.pump(key);
        }
    }

    fn notify_followers(&mut self, id: RequestId, event: &Event) {
        for key in self.following.streams.of(id) {
            self.queue_event(key, event.clone());
            self.pump(key);
        }
    }

    fn queue_event(&mut self, key: StreamKey, event: Event) {
        if let Some(stream) = self.following.streams.get_mut(key) {
            stream.push(event);
        }
    }

    /// Queue the reason why a request waits, unless it was sent already.
    fn notify_reason(&mut self, key: StreamKey, id: RequestId) {
        let Some(why) = self.machine.why(self.now, id) else {
            return;
        };
        let Some(stream) = self.following.streams.get_mut(key) else {
            return;
        };
        let StreamKind::Events { reason, .. } = &mut stream.kind else {
            return;
        };
        let every = Duration::from_millis(REASONS_MS);
        self.following.reasons_at = Instant::now().checked_add(every);
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
    pub fn notify_reasons(&mut self, now: Instant) {
        if self.following.reasons_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        for (key, id) in self.following.streams.events() {
            self.notify_reason(key, id);
            self.pump(key);
        }
    }

    /// Send what a stream has, as far as its client's credit allows.
    pub fn pump(&mut self, key: StreamKey) {
        for _ in 0..ITEMS_A_TURN {
            if !self.send_next(key) {
                return self.clients.touch(key.0);
            }
        }
        self.clients.touch(key.0);
        self.following.again.push(key);
    }

    /// Send one item; false if there is none, or the client has no credit.
    fn send_next(&mut self, (client, call): StreamKey) -> bool {
        let Some(connection) = self
            .clients
            .get_mut(client)
            .map(|client| &client.connection)
        else {
            return false;
        };
        match connection.readiness(call) {
            Ok(StreamReadiness::Ready) => {}
            Ok(StreamReadiness::Waiting) => return false,
            Ok(StreamReadiness::Cancelled | StreamReadiness::Expired) | Err(_) => {
                self.leave_stream((client, call));
                return false;
            }
        }
        // Only with credit, since an item that was taken out must be sent.
        let Some(item) = self.next_item((client, call)) else {
            return false;
        };
        let Some(client) = self.clients.get_mut(client) else {
            return false;
        };
        let Some(stream) = self.following.streams.get_mut((client.key, call)) else {
            return false;
        };
        let (head, look) = (Head::Borrowed(&item), &mut stream.look);
        client
            .connection
            .send_item(call, Codec::Msgpack, head, Vec::new(), true, look)
            .is_ok()
    }

    /// The next item of a stream. A finished stream without one ends here.
    fn next_item(&mut self, key: StreamKey) -> Option<Vec<u8>> {
        let following = &mut self.following;
        let stream = following.streams.get_mut(key)?;
        let item = match &mut stream.kind {
            StreamKind::Logs { offset, .. } => {
                let logs = following.logs.as_ref();
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
            following.streams.remove(key);
            let end = message::Message {
                head: Vec::new(),
                segment: None,
            };
            self.answer(key.0, key.1, end);
        }
        item
    }

    /// End a stream that its client has cancelled.
    pub fn leave_stream(&mut self, key: StreamKey) {
        if !self.following.streams.remove(key) {
            return;
        }
        if let Some(client) = self.clients.get_mut(key.0) {
            client.close(key.1);
            let nothing = Head::Borrowed(&[]);
            // Fails if the client has disconnected.
            drop(
                client
                    .connection
                    .fail(key.1, Reason::Cancelled, Codec::Msgpack, nothing),
            );
            self.clients.touch(key.0);
        }
    }

    /// Continue the streams of a client that can be written to again.
    pub fn pump_client(&mut self, client: Key) {
        if self.following.streams.is_empty() {
            return;
        }
        for key in self.following.streams.of_client(client) {
            self.pump(key);
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
