//! What the frames of calls mean where the models of calls and of streams seldom get: limits, failures and drivers.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::calls::answering::Answering;
use crate::calls::call::{Outcome, Taker};
use crate::calls::items::Next;
use crate::calls::state::ConnectionState;
use crate::calls::state_tests::{Script, ends, ends_with, running, stream};
use crate::calls::streaming::{StreamReadiness, Urgency};
use crate::error::{Cause, Error, Fault, Violation};
use crate::limit::{Limits, REFUSALS_BYTES_MAX};
use crate::link::admission::Handshake;
use crate::link::outbox::{Head, Payload};
use crate::sys::buffer::Buffer;
use crate::wire::frame::{Codec, HEADER_BYTES, Header, Incoming, Kind};
use crate::wire::preface::Preface;
use crate::wire::role::Role;
use forebay_base::waiters::Reader;

fn nothing() -> Head<'static> {
    Head::Borrowed(&[])
}

/// Move what the caller has sent; every other step would block.
fn deliver(caller: &mut ConnectionState<Script>, server: &mut ConnectionState<Script>) {
    for _ in 0..4 {
        caller.flush();
        server.receive();
    }
}

fn begin_stream(caller: &mut ConnectionState<Script>, id: u64, credit: u32) {
    let call = Header {
        stream: true,
        ..Header::control(Kind::Call, id)
    };
    caller.begin_stream(call, nothing(), Vec::new(), Taker::Queue, credit);
}

#[test]
fn grants_to_open_streams_are_kept_for_a_driver_alone() {
    for (reader, kept) in [(Reader::None, vec![]), (Reader::Driver, vec![2])] {
        let (mut caller, mut server) = ends(usize::MAX, usize::MAX, Errno::AGAIN);
        if reader == Reader::Driver {
            assert!(server.attach_driver());
        }
        begin_stream(&mut caller, 2, 1);
        deliver(&mut caller, &mut server);
        assert_eq!(server.take_granted(), [], "the first precedes its stream");
        caller.tell(Header {
            time: 1,
            ..Header::control(Kind::Credit, 2)
        });
        deliver(&mut caller, &mut server);
        assert_eq!(server.take_granted(), kept);
        assert_eq!(server.take_granted(), [], "once");
    }
}

#[test]
fn answers_that_nobody_takes_end_reading_unless_a_stream_is_open() {
    let limit = Limits::default().answers_bytes_max;
    for streams in [false, true] {
        let (mut caller, mut server) = ends(usize::MAX, usize::MAX, Errno::AGAIN);
        if streams {
            begin_stream(&mut caller, 1, 1);
            deliver(&mut caller, &mut server);
        }
        stream(&server).full.set(true);
        let mut fill = |bytes| {
            let queued = server.link.outbox().bytes();
            let more = vec![0; bytes - queued];
            server.link.outbox_mut().push_copy(&more);
            server.wants_read()
        };
        assert!(fill(limit), "as many as may wait");
        assert_eq!((fill(limit + 1), fill(2 * limit)), (streams, streams));
        stream(&caller).full.set(true);
        caller.link.outbox_mut().push_copy(&vec![0; 2 * limit]);
        assert!(caller.wants_read(), "a caller awaits answers");
    }
}

#[test]
fn a_failed_send_breaks_a_caller_unless_the_peer_has_closed_its_receiving_side() {
    for (errno, breaks) in [(Errno::PIPE, false), (Errno::TIMEDOUT, true)] {
        let (mut caller, _server) = running();
        stream(&caller).cut.set(Some(errno));
        caller.tell(Header::control(Kind::Ping, 0));
        let fault = Fault::Broken(Cause::Failed(errno));
        assert_eq!(caller.link.fault(), breaks.then_some(&fault));
    }
    let (limits, handshake) = (Limits::default(), Handshake::default());
    let mut caller = ConnectionState::<Script>::new(Role::Caller, limits, 0, handshake);
    caller.tell(Header::control(Kind::Ping, 0));
    let fault = Fault::Broken(Cause::Failed(Errno::PIPE));
    assert_eq!(caller.link.fault(), Some(&fault), "there is no stream");
}

#[test]
fn a_server_that_reads_nothing_more_may_go_on_with_a_stream_that_it_has_read() {
    let (mut caller, mut server) = ends(usize::MAX, usize::MAX, Errno::AGAIN);
    begin_stream(&mut caller, 1, 1);
    deliver(&mut caller, &mut server);
    stream(&caller).cut.set(Some(Errno::PIPE));
    begin_stream(&mut caller, 2, 1);
    assert!(caller.is_refused() && caller.link.fault().is_none());
    assert!(matches!(caller.items().take(1), Next::Nothing));
    let unsent = caller.items().take(2);
    assert!(
        matches!(unsent, Next::End(Some(Outcome::Broken { sent: false, .. }))),
        "{unsent:?}"
    );
}

#[test]
fn a_thread_that_enters_becomes_the_reader_until_it_leaves() {
    let (_caller, mut server) = ends(usize::MAX, usize::MAX, Errno::AGAIN);
    let lead = server.waiters().enter(true, None);
    assert_eq!(
        (lead, server.reader()),
        (Some(Reader::Thread(1)), Reader::Thread(1))
    );
    assert!(server.waiters().leave(lead));
    assert_eq!(server.reader(), Reader::None);
}

#[test]
fn a_frame_is_checked_by_its_bytes_and_its_segments() {
    let limits = Limits {
        frame_bytes_max: 10,
        segments_max: 2,
        ..Limits::default()
    };
    let caller = ConnectionState::<Script>::new(Role::Caller, limits, 0, Handshake::default());
    let check = |head: &[u8], segments: &[usize]| {
        let segment = |&bytes| Box::new(vec![0u8; bytes]) as Payload;
        let segments: Vec<Payload> = segments.iter().map(segment).collect();
        caller.check_limits(&Head::Borrowed(head), &segments)
    };
    for (head, segments) in [(10, &[][..]), (4, &[6]), (0, &[5, 5])] {
        let count = check(&vec![0; head], segments).ok();
        assert_eq!(count.map(usize::from), Some(segments.len()));
    }
    for (head, segments, limited, at, by) in [
        (11, &[][..], "frame_bytes_max", 10, 11),
        (4, &[3, 4], "frame_bytes_max", 10, 11),
        (0, &[0, 0, 0], "segments_max", 2, 3),
    ] {
        let Err(Error::Limit { name, limit, value }) = check(&vec![0; head], segments) else {
            panic!("{head} and {segments:?} are within the limits");
        };
        assert_eq!((name, limit, value), (limited, at, by));
    }
}

/// A server with one stream, which its driver runs unless it is only `queued`.
fn serving(time: u32, queued: bool) -> (ConnectionState<Script>, ConnectionState<Script>) {
    let (mut caller, mut server) = ends(usize::MAX, usize::MAX, Errno::AGAIN);
    let call = Header {
        stream: true,
        time,
        ..Header::control(Kind::Call, 1)
    };
    caller.begin_stream(call, nothing(), Vec::new(), Taker::Queue, 1);
    deliver(&mut caller, &mut server);
    assert!(queued || server.next_runnable().is_some());
    (caller, server)
}

#[test]
fn a_stream_is_urgent_while_it_runs_and_may_send_or_has_to_end() {
    const TIME_MS: u32 = 60_000;
    let now = Instant::now();
    let late = now + Duration::from_millis(2 * u64::from(TIME_MS));
    assert_eq!(serving(TIME_MS, true).1.urgency(now), None, "it is queued");
    let (mut caller, mut server) = serving(TIME_MS, false);
    assert_eq!(server.urgency(now), Some(Urgency::Send));
    assert_eq!(server.urgency(late), Some(Urgency::End), "it is late");
    let item = Header::control(Kind::Item, 1);
    server.send_item(item, nothing(), Vec::new(), Vec::new(), false);
    assert_eq!(server.urgency(now), None, "it has no credit");
    caller.cancel_stream(1);
    deliver(&mut caller, &mut server);
    assert_eq!(server.urgency(now), Some(Urgency::End), "it was left");
}

#[test]
fn a_stream_waits_while_much_of_what_was_sent_waits_for_the_peer() {
    let (_caller, mut server) = serving(u32::MAX, false);
    stream(&server).full.set(true);
    let high = server.link.limits().outbox_bytes_high;
    let queued = server.link.outbox().bytes();
    server.link.outbox_mut().push_copy(&vec![0; high - queued]);
    let now = Instant::now();
    assert_eq!(server.readiness(1, now), StreamReadiness::Ready);
    server.link.outbox_mut().push_copy(b"more");
    assert_eq!(server.readiness(1, now), StreamReadiness::Waiting);
}

#[test]
fn pickled_calls_are_taken_of_the_same_user_and_runtime_alone() {
    for (trusted, runtime, expected) in [
        (true, 0, None),
        (false, 0, Some(Violation::Pickle)),
        (true, 7, Some(Violation::Runtime { peer: 7, own: 0 })),
    ] {
        let none = [Handshake::default(), Handshake::default()];
        let (_, mut server) = ends_with(usize::MAX, usize::MAX, Errno::AGAIN, none, trusted);
        assert_eq!(server.allows_pickle(), trusted);
        let call = Header {
            codec: Codec::Pickle,
            ..Header::control(Kind::Call, 1)
        };
        let preface = Preface::new(Role::Caller, &Limits::default(), runtime).encode();
        let sent = [&preface[..], &call.encode()].concat();
        stream(&server).into.replace(sent.into());
        server.receive();
        server.receive(); // the first one would block
        let violation = match server.link.fault() {
            Some(Fault::Protocol { violation, .. }) => Some(violation.clone()),
            _ => None,
        };
        assert_eq!(server.inbox().queued(), usize::from(expected.is_none()));
        assert_eq!(violation, expected);
    }
}

#[test]
fn pings_are_answered_and_counted_unless_too_much_waits() {
    let (mut caller, mut server) = serving(u32::MAX, false); // it is read whatever waits
    for pongs in 1..4 {
        caller.tell(Header::control(Kind::Ping, 0));
        deliver(&mut caller, &mut server);
        deliver(&mut server, &mut caller);
        assert_eq!(
            (caller.counters().pongs, server.counters().pongs),
            (pongs, 0)
        );
    }
    stream(&server).full.set(true);
    let high = server.link.limits().outbox_bytes_high;
    server.link.outbox_mut().push_copy(&vec![0; high + 1]);
    let queued = server.counters().outbox_bytes;
    caller.tell(Header::control(Kind::Ping, 0));
    deliver(&mut caller, &mut server);
    assert_eq!(server.counters().outbox_bytes, queued);
}

#[test]
fn what_a_process_sent_before_it_died_is_delivered() {
    let (mut caller, mut server) = running();
    let reply = Header::control(Kind::Reply, 1);
    server.answer(reply, None, nothing(), Vec::new());
    server.flush();
    server.flush(); // every other step would block
    stream(&caller).blocked[1].set(true);
    caller.peer_died();
    let outcome = caller.calls().take_finished().pop_front();
    assert!(
        matches!(outcome, Some((1, Outcome::Reply(_)))),
        "{outcome:?}"
    );
    let fault = Fault::Broken(Cause::PeerDied);
    assert_eq!(caller.link.fault(), Some(&fault));
}

fn long(kind: Kind, id: u64, bytes: usize) -> Incoming {
    let mut segment = Buffer::with_capacity(bytes, 16).expect("memory");
    segment.append(&vec![0; bytes]);
    Incoming {
        header: Header::control(kind, id),
        head: Buffer::empty(),
        segments: vec![segment],
    }
}

#[test]
fn reading_stops_at_the_limit_of_what_waits_and_goes_on_below_half() {
    let eighth = Limits::default().inbox_bytes_max / 8;
    let (mut caller, mut server) = ends(usize::MAX, usize::MAX, Errno::AGAIN);
    for id in 1..=8 {
        assert!(caller.wants_read() && server.wants_read());
        caller.calls().begin(id, Taker::Queue, 0);
        caller.calls().finish(long(Kind::Reply, id, eighth));
        let call = long(Kind::Call, id, eighth);
        let accepted = server.inbox().accept(call, Instant::now());
        assert!(matches!(accepted, Ok(None)));
    }
    assert!(!caller.wants_read() && !server.wants_read());
    while server.counters().inbox_bytes >= 4 * eighth {
        assert!(!server.wants_read());
        assert!(server.next_runnable().is_some());
    }
    assert!(server.wants_read());
    assert_eq!(caller.calls().take_finished().len(), 8);
    assert!(caller.wants_read());
}

#[test]
fn an_item_goes_out_at_once_unless_it_may_wait() {
    for hold in [false, true] {
        let (_caller, mut server) = serving(u32::MAX, false);
        server.flush();
        server.flush(); // every other step would block
        stream(&server).blocked[0].set(true);
        let item = Header::control(Kind::Item, 1);
        server.send_item(item, nothing(), Vec::new(), Vec::new(), hold);
        assert_eq!(server.link.outbox().is_empty(), !hold);
    }
}

#[test]
fn nothing_is_sent_for_what_was_cancelled_nor_on_a_link_that_broke() {
    let reply = Header::control(Kind::Reply, 1);
    let (mut caller, mut server) = running();
    server.flush();
    server.flush(); // every other step would block
    caller.calls().begin(1, Taker::Queue, 0);
    caller.cancel_call(1);
    deliver(&mut caller, &mut server);
    let queued = server.link.outbox().end();
    server.answer(reply, None, nothing(), Vec::new());
    assert_eq!(server.link.outbox().end(), queued);
    let (mut caller, mut server) = serving(u32::MAX, false);
    caller.cancel_stream(1);
    deliver(&mut caller, &mut server);
    server.flush();
    server.flush();
    stream(&server).blocked[0].set(true);
    server.break_with(Fault::Closed);
    let sent = server.counters().sent_bytes;
    server.answer(reply, None, nothing(), Vec::new());
    assert_eq!(server.counters().sent_bytes, sent);
}

#[test]
fn a_caller_that_hung_up_is_read_to_its_end_before_it_counts_as_gone() {
    let (_caller, mut server) = running();
    stream(&server).closed.set(true);
    stream(&server).cut.set(Some(Errno::PIPE));
    assert!(!server.caller_gone() && !server.link.life().has_ended());
    assert!(!server.inbox().is_cancelled(1));
    for _ in 0..4 {
        server.receive();
    }
    assert!(server.link.life().has_ended() && server.inbox().is_cancelled(1));
}

#[test]
fn nothing_is_lent_over_a_stream_that_carries_no_descriptors() {
    let (caller, server) = ends(usize::MAX, usize::MAX, Errno::AGAIN);
    let features = |state: &ConnectionState<Script>| state.lending().features();
    assert_eq!((features(&caller), features(&server)), (0, 0));
}

#[test]
fn refusals_count_from_where_the_peer_last_took_all() {
    let mut answering = Answering::default();
    let most = REFUSALS_BYTES_MAX / HEADER_BYTES + 1;
    let mut end = 0;
    for _ in 0..2 * most {
        let sent = end; // it took all
        end += HEADER_BYTES as u64;
        answering.note_refusal(sent, end);
        assert!(!answering.refusals_are_many(sent) && !answering.refusals_are_many(end));
    }
    let sent = end;
    for waiting in 1..=most {
        end += HEADER_BYTES as u64;
        answering.note_refusal(sent, end);
        assert_eq!(
            answering.refusals_are_many(sent),
            waiting * HEADER_BYTES > REFUSALS_BYTES_MAX
        );
    }
    assert!(!answering.refusals_are_many(end), "it took all");
}
