//! The events of one request, as a client follows them: how it stands, what happens to it, why it waits.
//!
//! A client that comes back names the last event that it had. Where everything since is kept, it gets that and nothing
//! else; where something may be lost, the gap, and how the request stands now, as at the beginning. The last item of how
//! it stands has the number of the newest event of the server, so that who has read it can come back behind it.

use std::collections::VecDeque;

use crate::feed::{EventFilter, EventKind, Feed, FeedReader, Looks, Next};
use crate::id::RequestId;
use crate::machine::RequestView;
use crate::message::{self, Message};
use crate::request::Status;

/// What a stream has for its client.
#[derive(Debug)]
pub enum NextItem {
    Item(Vec<u8>),
    /// The same, with a blob that may travel beside it.
    Message(Message),
    /// Nothing now.
    Nothing,
    /// Nothing that is there now would be sent, but there is more to look at.
    Later,
}

/// The events of one request: how it stands, then a reader of the feed, and between its events why it waits.
#[derive(Debug)]
pub struct RequestEvents {
    pub reader: FeedReader,
    /// Items that come before what the reader finds: a few at the beginning, one after a gap.
    first: VecDeque<Vec<u8>>,
    /// Why it waits, if that was not sent yet.
    pub reason: Option<Vec<u8>>,
    /// The reason that was sent or stands in `reason`.
    pub told: String,
}

impl RequestEvents {
    pub(super) fn new(reader: FeedReader) -> Self {
        Self {
            reader,
            first: VecDeque::new(),
            reason: None,
            told: String::new(),
        }
    }

    /// Of an unfinished request, behind a cursor or from how it stands now.
    ///
    /// # Errors
    /// The cursor, which was not given yet.
    pub fn of_unfinished(
        feed: &mut Feed,
        id: RequestId,
        view: RequestView,
        cursor: Option<u64>,
    ) -> Result<Self, u64> {
        let (reader, gap) = opened(feed, id, cursor)?;
        let mut events = Self::new(reader);
        if cursor.is_none() || gap.is_some() {
            events.first.extend(gap);
            events.first.extend(stands(feed, id, view));
        }
        Ok(events)
    }

    /// Of a request that has ended so, behind a cursor or only its end; whether nothing comes behind the first items.
    ///
    /// # Errors
    /// The cursor, which was not given yet.
    pub fn of_ended(
        feed: &mut Feed,
        id: RequestId,
        (status, attempts): (Status, u32),
        cursor: Option<u64>,
    ) -> Result<(Self, bool), u64> {
        let (reader, gap) = opened(feed, id, cursor)?;
        let kept = cursor.filter(|_| gap.is_none());
        let reads_end = kept.is_some_and(|had| feed.ends_behind(id, had));
        let has_had_end = kept.is_some() && !reader.has_news(feed);
        let mut events = Self::new(reader);
        if !reads_end && !has_had_end {
            let newest = Some(feed.newest());
            events.first.extend(gap);
            events
                .first
                .push_back(message::status_event(status, attempts, newest));
        }
        Ok((events, !reads_end))
    }

    /// The next item; `over`: nothing comes behind it.
    pub fn next_piece(&mut self, feed: &mut Feed, id: RequestId, over: &mut bool) -> NextItem {
        if let Some(item) = self.first.pop_front() {
            return NextItem::Item(item);
        }
        let mut looks = Looks::default();
        while !*over {
            match self.reader.next(feed, &mut looks) {
                Next::Event(event) => {
                    // One that could not be written ends so too.
                    *over = matches!(event.kind, EventKind::Ended | EventKind::Refused);
                    if let Some(item) = message::followed(&event) {
                        return NextItem::Item(item);
                    }
                }
                Next::Gap { first, last } => {
                    feed.metrics_mut().missed();
                    if let Some((status, attempt)) = feed.ended(id) {
                        *over = true;
                        let newest = Some(feed.newest());
                        let item = message::status_event(status, attempt, newest);
                        self.first.push_back(item);
                    }
                    return NextItem::Item(message::missed(first, last));
                }
                Next::Later => return NextItem::Later,
                Next::Nothing => break,
            }
        }
        let reason = self.reason.take().filter(|_| !*over);
        reason.map_or(NextItem::Nothing, NextItem::Item)
    }
}

/// A reader behind a cursor. Where events of the request may be lost it reads from now on, and comes with the item that
/// says so.
fn opened(
    feed: &mut Feed,
    id: RequestId,
    cursor: Option<u64>,
) -> Result<(FeedReader, Option<Vec<u8>>), u64> {
    let reader = FeedReader::open(feed, EventFilter::of_request(id), cursor)?;
    let Some(had) = cursor.filter(|_| reader.has_missed(feed)) else {
        return Ok((reader, None));
    };
    reader.close(feed);
    feed.metrics_mut().missed();
    let reader = FeedReader::open(feed, EventFilter::of_request(id), None)?;
    Ok((reader, Some(message::missed(had + 1, feed.newest()))))
}

/// How an unfinished request stands: its status, its newest progress; the last of them with the number of now.
fn stands(feed: &Feed, id: RequestId, view: RequestView) -> impl Iterator<Item = Vec<u8>> + use<> {
    let newest = Some(feed.newest());
    let record = feed.progress(id);
    let progress = record.and_then(|record| message::progressed(record, newest));
    let number = newest.filter(|_| progress.is_none());
    let status = message::status_event(view.status, view.attempt, number);
    [Some(status), progress].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::feed::{FeedBounds, Happening};
    use crate::request::{Options, Request, Submission};

    const ID: RequestId = RequestId(7);
    const VIEW: RequestView = RequestView {
        status: Status::Running,
        accepted: true,
        attempt: 1,
        slot: None,
    };
    const END: (Status, u32) = (Status::Succeeded, 1);

    fn feed(events_max: usize) -> Feed {
        let bytes_max = 1 << 20;
        Feed::new(
            1,
            FeedBounds {
                events_max,
                bytes_max,
            },
        )
    }

    fn append(feed: &mut Feed, id: RequestId, happening: Happening) -> u64 {
        let submission = Submission {
            name: "work".into(),
            code: "code".into(),
            submitter: "ann".into(),
            arguments: Vec::new().into(),
            options: Arc::new(Options::default()),
        };
        let request = Request {
            id,
            accepted_at: 0,
            submission,
        };
        feed.append(1, &request, happening);
        feed.newest()
    }

    fn start(feed: &mut Feed, id: RequestId) -> u64 {
        let (attempt, worker, queued_ms) = (1, 1, 0);
        let started = Happening::Started {
            attempt,
            worker,
            queued_ms,
        };
        append(feed, id, started)
    }

    fn end(feed: &mut Feed) -> u64 {
        let (status, attempt) = END;
        let ended = Happening::Ended {
            status,
            attempt,
            queued_ms: 0,
            run_ms: 0,
            cause: None,
        };
        append(feed, ID, ended)
    }

    /// What a stream sends until it has nothing, and whether that was its end.
    fn sent(feed: &mut Feed, mut events: RequestEvents, mut over: bool) -> (Vec<Vec<u8>>, bool) {
        let items = std::iter::from_fn(|| match events.next_piece(feed, ID, &mut over) {
            NextItem::Item(item) => Some(item),
            NextItem::Nothing | NextItem::Later | NextItem::Message(_) => None,
        });
        let items = items.collect();
        events.reader.close(feed);
        (items, over)
    }

    fn of_unfinished(feed: &mut Feed, cursor: Option<u64>) -> (Vec<Vec<u8>>, bool) {
        let events = RequestEvents::of_unfinished(feed, ID, VIEW, cursor).expect("a cursor");
        sent(feed, events, false)
    }

    fn of_ended(feed: &mut Feed, cursor: Option<u64>) -> (Vec<Vec<u8>>, bool) {
        let (events, over) = RequestEvents::of_ended(feed, ID, END, cursor).expect("a cursor");
        sent(feed, events, over)
    }

    fn status((status, attempt): (Status, u32), number: u64) -> Vec<u8> {
        message::status_event(status, attempt, Some(number))
    }

    #[test]
    fn how_it_stands_has_the_number_behind_which_a_client_comes_back() {
        let mut feed = feed(100);
        let started = start(&mut feed, ID);
        let running = (Status::Running, 1);
        assert_eq!(of_unfinished(&mut feed, None).0, [status(running, started)]);
        let record: Arc<[u8]> = b"\x81\xa4done\x03"[..].into();
        let told = append(&mut feed, ID, Happening::Progress(Arc::clone(&record)));
        let now = [
            message::status_event(Status::Running, 1, None),
            message::progressed(&record, Some(told)).expect("a progress"),
        ];
        assert_eq!(of_unfinished(&mut feed, None), (now.to_vec(), false));
        let only = message::progressed(&record, Some(told)).expect("a progress");
        assert_eq!(of_unfinished(&mut feed, Some(started)).0, [only]);
        assert!(of_unfinished(&mut feed, Some(told)).0.is_empty());
    }

    #[test]
    fn what_happened_while_a_client_was_away_is_told_to_its_end() {
        let mut feed = feed(100);
        let before = start(&mut feed, RequestId(8));
        let started = start(&mut feed, ID);
        let ended = end(&mut feed);
        let (running, last) = (status((Status::Running, 1), started), status(END, ended));
        assert_eq!(
            of_ended(&mut feed, Some(before)),
            (vec![running, last.clone()], true)
        );
        assert_eq!(
            of_ended(&mut feed, Some(started)),
            (vec![last.clone()], true)
        );
        assert_eq!(
            of_ended(&mut feed, Some(ended)),
            (vec![], true),
            "it had it"
        );
        assert_eq!(of_ended(&mut feed, None), (vec![last], true));
    }

    #[test]
    fn what_may_be_lost_is_a_gap_before_how_it_stands() {
        let mut feed = feed(4);
        let started = start(&mut feed, ID);
        for _ in 0..9 {
            start(&mut feed, RequestId(8));
        }
        assert!(
            of_unfinished(&mut feed, Some(started)).0.is_empty(),
            "only others' are"
        );
        let newest = feed.newest();
        let expected = |had: u64, stands: (Status, u32)| {
            vec![message::missed(had + 1, newest), status(stands, newest)]
        };
        let running = (Status::Running, 1);
        for had in [started - 1, 5] {
            assert_eq!(
                of_unfinished(&mut feed, Some(had)),
                (expected(had, running), false)
            );
            assert_eq!(of_ended(&mut feed, Some(had)), (expected(had, END), true));
        }
        assert_eq!(feed.requests_known(), 1, "nothing stays pinned");
    }

    #[test]
    fn a_number_that_was_not_given_yet_is_refused() {
        let mut feed = feed(4);
        let ahead = feed.newest() + 1;
        let refused = RequestEvents::of_unfinished(&mut feed, ID, VIEW, Some(ahead));
        assert_eq!(refused.err(), Some(ahead));
        let refused = RequestEvents::of_ended(&mut feed, ID, END, Some(ahead));
        assert_eq!(refused.err(), Some(ahead));
    }
}
