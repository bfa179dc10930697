//! What the events of one request cost the dispatcher: to append them, and to encode them for a reader.

use std::sync::Arc;
use std::time::Instant;

use forebay_executor::feed::{EventFilter, Feed, FeedBounds, FeedReader, Happening, Looks, Next};
use forebay_executor::id::RequestId;
use forebay_executor::message::FeedItem;
use forebay_executor::request::{Lane, Options, Request, Status, Submission};

const REQUESTS: u32 = 1_000_000;
const IN_FLIGHT: u32 = 1_024;

fn request(number: u32, submission: &Submission) -> Request {
    Request {
        id: RequestId(1 << 40 | u64::from(number)),
        accepted_at: 0,
        submission: submission.clone(),
    }
}

fn append(feed: &mut Feed, number: u32, submission: &Submission) {
    let accepted = Happening::Accepted {
        lane: Lane::Short,
        parent: None,
    };
    feed.append(1, &request(number, submission), accepted);
    if let Some(old) = number.checked_sub(IN_FLIGHT) {
        let request = request(old, submission);
        let started = Happening::Started {
            attempt: 1,
            worker: 1,
            queued_ms: 3,
        };
        feed.append(1, &request, started);
        let ended = Happening::Ended {
            status: Status::Succeeded,
            attempt: 1,
            queued_ms: 3,
            run_ms: 1,
            cause: None,
        };
        feed.append(1, &request, ended);
    }
}

/// Prints nanoseconds per event, 1,024 requests in flight, three events each.
#[test]
#[ignore = "a measurement: cargo test --release --test feed_cost -- --ignored --nocapture"]
fn nanoseconds_per_event() {
    let submission = Submission {
        name: "work".into(),
        code: "code".into(),
        submitter: "somebody".into(),
        arguments: Vec::new().into(),
        options: Arc::new(Options::default()),
    };
    let mut feed = Feed::new(1, FeedBounds::default());
    let begun = Instant::now();
    (0..REQUESTS).for_each(|number| append(&mut feed, number, &submission));
    let appended = begun.elapsed().as_nanos() / u128::from(3 * REQUESTS);
    let mut reader =
        FeedReader::open(&mut feed, EventFilter::default(), Some(0)).expect("a reader");
    let (begun, mut events, mut bytes) = (Instant::now(), 0_u128, 0);
    let (mut item, mut looks) = (FeedItem::new(), Looks::default());
    loop {
        match reader.next(&feed, &mut looks) {
            Next::Event(event) => {
                item.event(&event);
                events += 1;
            }
            Next::Gap { .. } => {}
            Next::Later => looks = Looks::default(),
            Next::Nothing => break,
        }
        if item.is_full() {
            bytes += std::mem::take(&mut item)
                .into_bytes()
                .map_or(0, |item| item.len());
        }
    }
    let encoded = begun.elapsed().as_nanos() / events.max(1);
    #[allow(clippy::print_stdout)]
    {
        println!("append {appended} ns, encode {encoded} ns, {bytes} bytes of {events} events");
    }
}
