//! Events of the feed on the wire: what a reader asks for, and the items that it gets.

use std::sync::Arc;

use super::{Reader, Value, Writer, call};
use crate::error::{Error, Refusal};
use crate::feed::{Event, EventFilter, EventKind, Happening, UNKNOWN_MS};
use crate::id::RequestId;
use crate::limit::{FILTER_IDS_MAX, OPTION_TEXT_BYTES_MAX};
use crate::request::{Cause, Lane, Status};

/// Events in one item.
const ITEM_EVENTS_MAX: u16 = 256;
/// Bytes from which on an item takes no further event.
const ITEM_BYTES_MAX: usize = 32 << 10;
/// The head of an array whose length follows in two bytes, in big-endian order.
const ARRAY_16: u8 = 0xdc;

/// Read what a reader of the feed wants: a map in msgpack, or nil for everything.
///
/// # Errors
/// A [`Refusal`] that names the member, its value and what is allowed.
pub fn filter(encoded: &[u8]) -> Result<EventFilter, Refusal> {
    let mut reader = Reader::new(encoded);
    let pairs = reader.map_or_nil().map_err(unreadable)?.unwrap_or(0);
    let mut filter = EventFilter::default();
    for _ in 0..pairs {
        let member = reader.text().map_err(unreadable)?;
        if is_nil(&reader) {
            reader.skip().map_err(unreadable)?;
            continue;
        }
        filter = match member {
            "names" => filter.with_names(list(&mut reader, member, text)?),
            "ids" => filter.with_ids(list(&mut reader, member, call::id)?),
            "submitter" => filter.with_submitter(text(&mut reader).map_err(unreadable)?),
            "events" => filter.with_kinds(kinds(&mut reader, member)?),
            other => {
                let next = "name names, ids, submitter or events";
                return Err(Refusal::unknown("member of a filter", other, next));
            }
        };
    }
    reader.end().map_err(unreadable)?;
    Ok(filter)
}

fn is_nil(reader: &Reader<'_>) -> bool {
    matches!(reader.clone().value(), Ok(Value::Nil))
}

fn list<'a, T>(
    reader: &mut Reader<'a>,
    member: &str,
    one: impl Fn(&mut Reader<'a>) -> crate::error::Result<T>,
) -> Result<Vec<T>, Refusal> {
    let count = reader.array().map_err(unreadable)?;
    if count > FILTER_IDS_MAX {
        let (limit, value) = (FILTER_IDS_MAX as u64, count as u64);
        let next = "use several readers, or none of it and choose yourself";
        return Err(Refusal::limit(member, "filter_ids_max", limit, value, next));
    }
    if count == 0 {
        let next = "leave it out for all of them";
        return Err(Refusal::invalid(member, "one of them at least", "[]", next));
    }
    (0..count)
        .map(|_| one(reader).map_err(unreadable))
        .collect()
}

fn text(reader: &mut Reader<'_>) -> crate::error::Result<Arc<str>> {
    let text = reader.text()?;
    if text.len() > OPTION_TEXT_BYTES_MAX {
        return Err(reader.malformed("a text of at most 256 bytes was expected"));
    }
    Ok(text.into())
}

fn kinds(reader: &mut Reader<'_>, member: &str) -> Result<Vec<EventKind>, Refusal> {
    let words = list(reader, member, text)?;
    let kinds = words.iter().map(|word| {
        EventKind::of_word(word).ok_or_else(|| {
            let known: Vec<_> = EventKind::ALL.iter().map(|kind| kind.word()).collect();
            Refusal::unknown("kind of event", word, known.join(", "))
        })
    });
    kinds.collect()
}

#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn unreadable(error: Error) -> Refusal {
    let next = "use a client of this version";
    Refusal::invalid("a filter", "its form", &error.to_string(), next)
}

/// An item of a stream of events while it is filled: an array of maps.
#[derive(Debug)]
pub struct FeedItem {
    writer: Writer,
    count: u16,
}

impl FeedItem {
    /// An empty item, whose length is written last.
    pub fn new() -> Self {
        let mut writer = Writer::with_room(512);
        writer.raw(&[ARRAY_16, 0, 0]);
        Self { writer, count: 0 }
    }

    /// Add an event.
    pub fn event(&mut self, event: &Event<'_>) {
        self.count += 1;
        put_event(&mut self.writer, event);
    }

    /// Add the number behind which a reader begins.
    pub fn begin(&mut self, number: u64) {
        self.count += 1;
        self.writer.map(2).text("event").text("begin");
        self.writer.text("seq").unsigned(number);
    }

    /// Add what a reader has missed.
    pub fn gap(&mut self, first: u64, last: u64) {
        self.count += 1;
        put_gap(&mut self.writer, first, last);
    }

    /// Whether it takes no further event.
    pub fn is_full(&self) -> bool {
        self.count >= ITEM_EVENTS_MAX || self.writer.bytes() >= ITEM_BYTES_MAX
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its bytes; `None`: it is empty.
    pub fn into_bytes(self) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        let mut bytes = self.writer.into_bytes();
        bytes[1..3].copy_from_slice(&self.count.to_be_bytes());
        Some(bytes)
    }
}

impl Default for FeedItem {
    fn default() -> Self {
        Self::new()
    }
}

fn put_gap(writer: &mut Writer, first: u64, last: u64) {
    writer.map(3).text("event").text("gap");
    writer.text("first").unsigned(first);
    writer.text("last").unsigned(last);
}

fn put_event(writer: &mut Writer, event: &Event<'_>) {
    let common = 3 + usize::from(event.id.is_some()) + usize::from(event.name.is_some());
    // The fields of a progress are those that the function gave.
    let record = match event.happening {
        Happening::Progress(record) => Reader::new(record).map_or_nil().ok().flatten(),
        _ => Some(fields_of(event)),
    };
    writer.map(common + record.unwrap_or(0));
    writer.text("seq").unsigned(event.number);
    writer.text("at_ms").unsigned(event.at);
    writer.text("event").text(event.kind.word());
    if let Some(id) = event.id {
        put_id(writer, "id", id);
    }
    if let Some(name) = event.name {
        writer.text("name").text(name);
    }
    put_fields(writer, event);
}

/// How many fields [`put_fields`] writes.
fn fields_of(event: &Event<'_>) -> usize {
    match event.happening {
        Happening::Queued { .. } | Happening::Server { .. } => 2,
        Happening::Accepted { .. }
        | Happening::Started { .. }
        | Happening::WorkerStarted { .. }
        | Happening::Service { .. } => 3,
        Happening::WorkerEnded { .. } => 4,
        Happening::Ended { .. } => 5,
        Happening::Refused(_) => 1,
        Happening::Progress(_)
        | Happening::Retried
        | Happening::Scheduled
        | Happening::Superseded => 0,
    }
}

fn put_fields(writer: &mut Writer, event: &Event<'_>) {
    match event.happening {
        Happening::Accepted { lane, parent } => {
            writer.text("lane").text(lane.word());
            put_optional(writer, "submitter", event.submitter);
            let parent = parent.map(|id| id.to_string());
            put_optional(writer, "parent", parent.as_deref());
        }
        Happening::Started {
            attempt,
            worker,
            queued_ms,
        } => {
            put_number(writer, "attempt", *attempt);
            put_number(writer, "worker", *worker);
            put_time(writer, "queued_ms", *queued_ms);
        }
        Happening::Progress(record) => {
            let mut reader = Reader::new(record);
            if reader.map_or_nil().is_ok() {
                writer.raw(&record[reader.offset()..]);
            }
        }
        Happening::Queued { attempt, reason } => {
            put_number(writer, "attempt", *attempt);
            writer.text("reason").text(reason.word());
        }
        Happening::Ended {
            status,
            attempt,
            queued_ms,
            run_ms,
            cause,
        } => {
            writer.text("status").text(status.word());
            put_number(writer, "attempt", *attempt);
            put_time(writer, "queued_ms", *queued_ms);
            put_time(writer, "run_ms", *run_ms);
            put_optional(writer, "cause", cause.map(Cause::word));
        }
        Happening::Refused(code) => {
            writer.text("code").text(code);
        }
        Happening::WorkerStarted { worker, lane, pid } => put_worker(writer, *worker, *lane, *pid),
        Happening::WorkerEnded {
            worker,
            lane,
            pid,
            cause,
        } => {
            put_worker(writer, *worker, *lane, *pid);
            writer.text("cause").text(cause.word());
        }
        Happening::Service {
            service,
            pid,
            cause,
            ..
        } => {
            writer.text("service").text(service);
            writer.text("pid").integer(i64::from(*pid));
            put_optional(writer, "cause", cause.map(Cause::word));
        }
        Happening::Server { state, reason } => {
            writer.text("state").text(state.word());
            put_optional(writer, "reason", reason.as_deref());
        }
        Happening::Retried | Happening::Scheduled | Happening::Superseded => {}
    }
}

fn put_worker(writer: &mut Writer, worker: u32, lane: Lane, pid: i32) {
    put_number(writer, "worker", worker);
    writer.text("lane").text(lane.word());
    writer.text("pid").integer(i64::from(pid));
}

fn put_number(writer: &mut Writer, name: &str, value: u32) {
    writer.text(name).unsigned(u64::from(value));
}

/// A time of a request, which is nil where it is not known.
fn put_time(writer: &mut Writer, name: &str, ms: u32) {
    match ms {
        UNKNOWN_MS => writer.text(name).nil(),
        known => writer.text(name).unsigned(u64::from(known)),
    };
}

fn put_optional(writer: &mut Writer, name: &str, value: Option<&str>) {
    writer.text(name);
    match value {
        Some(text) => writer.text(text),
        None => writer.nil(),
    };
}

fn put_id(writer: &mut Writer, name: &str, id: RequestId) {
    writer.text(name).text(&id.to_string());
}

/// Whether a worker's progress is a map in msgpack, and nothing behind it.
pub fn is_record(record: &[u8]) -> bool {
    let mut reader = Reader::new(record);
    let Ok(Some(count)) = reader.map_or_nil() else {
        return false;
    };
    (0..2 * count).all(|_| reader.skip().is_ok()) && reader.end().is_ok()
}

/// An item of the stream of one request, if the event changes what its follower knows: its status, its progress.
pub fn followed(event: &Event<'_>) -> Option<Vec<u8>> {
    let item = match event.happening {
        Happening::Started { attempt, .. } => {
            status_event(Status::Running, *attempt, Some(event.number))
        }
        Happening::Queued { attempt, .. } => {
            status_event(Status::Queued, *attempt, Some(event.number))
        }
        Happening::Ended {
            status, attempt, ..
        } => status_event(*status, *attempt, Some(event.number)),
        Happening::Retried => status_event(Status::Queued, 0, Some(event.number)),
        Happening::Refused(_) => status_event(Status::Failed, 0, Some(event.number)),
        Happening::Progress(record) => progressed(record, Some(event.number))?,
        _ => return None,
    };
    Some(item)
}

/// An item of the stream of one request: its status has changed, or is this at the beginning.
pub fn status_event(status: Status, attempt: u32, number: Option<u64>) -> Vec<u8> {
    let mut writer = Writer::with_room(64);
    writer.map(3 + usize::from(number.is_some()));
    writer.text("event").text("status");
    writer.text("status").text(status.word());
    put_number(&mut writer, "attempt", attempt);
    put_sequence(&mut writer, number);
    writer.into_bytes()
}

/// An item of the stream of one request: why it waits.
pub fn reasoned(reason: &str) -> Vec<u8> {
    let mut writer = Writer::with_room(32 + reason.len());
    writer.map(2).text("event").text("reason");
    writer.text("reason").text(reason);
    writer.into_bytes()
}

/// An item of the stream of one request: events that its follower has missed.
pub fn missed(first: u64, last: u64) -> Vec<u8> {
    let mut writer = Writer::with_room(48);
    put_gap(&mut writer, first, last);
    writer.into_bytes()
}

/// An item of the stream of one request from a progress record, a msgpack map; `None` if the record is not one.
pub fn progressed(record: &[u8], number: Option<u64>) -> Option<Vec<u8>> {
    let mut reader = Reader::new(record);
    let count = reader.map_or_nil().ok()??;
    let pairs = &record[reader.offset()..];
    let mut writer = Writer::with_room(40 + pairs.len());
    writer.map(count + 1 + usize::from(number.is_some()));
    writer.text("event").text("progress");
    put_sequence(&mut writer, number);
    writer.raw(pairs);
    Some(writer.into_bytes())
}

fn put_sequence(writer: &mut Writer, number: Option<u64>) {
    if let Some(number) = number {
        writer.text("seq").unsigned(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{Feed, FeedBounds, FeedReader, Looks, Next};

    fn encoded(fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut writer = Writer::default();
        fill(&mut writer);
        writer.into_bytes()
    }

    #[test]
    fn a_filter_is_what_its_members_say() {
        let id = RequestId(7);
        let map = encoded(|writer| {
            writer.map(4).text("names").array(1).text("work");
            writer.text("ids").array(1).text(&id.to_string());
            writer.text("submitter").text("ann");
            writer.text("events").array(2).text("ended").text("started");
        });
        let expected = EventFilter::default()
            .with_names(vec!["work".into()])
            .with_ids(vec![id])
            .with_submitter("ann".into())
            .with_kinds([EventKind::Started, EventKind::Ended]);
        assert_eq!(filter(&map), Ok(expected));
        let nothing = encoded(|writer| {
            writer.map(1).text("names").nil();
        });
        assert_eq!(filter(&nothing), Ok(EventFilter::default()));
        assert_eq!(filter(b"\xc0"), Ok(EventFilter::default()));
    }

    #[test]
    fn a_filter_that_is_wrong_names_what_is() {
        let kinds = encoded(|writer| {
            writer.map(1).text("events").array(1).text("gap");
        });
        assert_eq!(filter(&kinds).unwrap_err().value, "gap");
        let many = encoded(|writer| {
            writer.map(1).text("ids").array(FILTER_IDS_MAX + 1);
            for id in 0..=FILTER_IDS_MAX {
                writer.unsigned(id as u64);
            }
        });
        assert_eq!(filter(&many).unwrap_err().limit, "filter_ids_max");
        let none = encoded(|writer| {
            writer.map(1).text("names").array(0);
        });
        assert_eq!(filter(&none).unwrap_err().object, "names");
        let other = encoded(|writer| {
            writer.map(1).text("name").text("work");
        });
        assert_eq!(filter(&other).unwrap_err().code, "unknown");
        for broken in [&b""[..], b"\x81", b"\x80\x80", b"\x01"] {
            assert_eq!(filter(broken).unwrap_err().code, "invalid", "{broken:?}");
        }
    }

    #[test]
    fn an_item_is_an_array_of_maps_and_ends_when_it_is_full() {
        let mut feed = Feed::new(1, FeedBounds::default());
        let reason: Arc<str> = "r".repeat(1_000).into();
        for _ in 0..100 {
            let state = crate::feed::ServerState::Held;
            let reason = Some(Arc::clone(&reason));
            feed.note(5, Happening::Server { state, reason });
        }
        let mut reader =
            FeedReader::open(&mut feed, EventFilter::default(), Some(0)).expect("a reader");
        let mut item = FeedItem::new();
        while !item.is_full() {
            let Next::Event(event) = reader.next(&feed, &mut Looks::default()) else {
                panic!("more are there");
            };
            item.event(&event);
        }
        let bytes = item.into_bytes().expect("an item");
        assert!(bytes.len() >= ITEM_BYTES_MAX && bytes.len() < ITEM_BYTES_MAX + 1_100);
        let mut read = Reader::new(&bytes);
        let count = read.array().expect("an array");
        for _ in 0..count {
            read.skip().expect("a map");
        }
        read.end().expect("nothing more");
        assert_eq!(FeedItem::new().into_bytes(), None);
    }

    #[test]
    fn progress_passes_through_as_it_is() {
        let record = b"\x82\xa4done\x03\xa5total\x0a";
        assert!(is_record(record));
        let item = progressed(record, None).expect("an item");
        assert_eq!(item, b"\x83\xa5event\xa8progress\xa4done\x03\xa5total\x0a");
        for wrong in [&b"\x91\x01"[..], b"\x81\xa4done", b"", b"\x80\x01", b"\xc0"] {
            assert!(!is_record(wrong), "{wrong:?}");
        }
    }
}
