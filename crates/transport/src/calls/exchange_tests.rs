//! What the frames of calls mean where the models of calls and of streams seldom get: limits, failures and drivers.

use rustix::io::Errno;

use crate::calls::call::{Outcome, Taker};
use crate::calls::items::Next;
use crate::calls::state::ConnectionState;
use crate::calls::state_tests::{Script, ends, running, stream};
use crate::error::{Cause, Fault};
use crate::limit::Limits;
use crate::link::admission::Handshake;
use crate::link::outbox::Head;
use crate::wire::frame::{Header, Kind};
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
