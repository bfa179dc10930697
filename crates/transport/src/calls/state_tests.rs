//! The state over a scripted stream: short sends and receives, EAGAIN and errors at every byte.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::rc::Rc;

use rustix::io::Errno;

use crate::calls::call::{Outcome, Taker};
use crate::calls::state::ConnectionState;
use crate::error::{Cause, Fault, Violation};
use crate::limit::{GROW_BYTES, HANDSHAKE_BYTES_MAX, Limits, REFUSALS_BYTES_MAX};
use crate::link::admission::{Admission, Handshake};
use crate::link::outbox::{Head, Payload};
use crate::stream::{Stream, StreamFault};
use crate::wire::frame::{Codec, HEADER_BYTES, Header, Kind};
use crate::wire::role::Role;
use forebay_base::waiters::Reader;

type Pipe = Rc<RefCell<VecDeque<u8>>>;

/// One end of a stream that moves at most `step` bytes, then would block once.
pub(super) struct Script {
    out: Pipe,
    pub(super) into: Pipe,
    step: usize,
    pub(super) blocked: [Cell<bool>; 2],
    /// Bytes that may still move before `errno` strikes.
    left: Cell<usize>,
    errno: Errno,
    /// The other end takes nothing.
    pub(super) full: Cell<bool>,
    /// Sends fail with this.
    pub(super) cut: Cell<Option<Errno>>,
    /// The other end sends nothing after what is there; gone in both directions where sends fail too.
    pub(super) closed: Cell<bool>,
    /// How much the last receive could have taken.
    room: Cell<usize>,
}

impl Script {
    fn allow(&self, wanted: usize, way: usize) -> Result<usize, StreamFault> {
        if self.left.get() == 0 {
            return Err(self.errno.into());
        }
        if !self.blocked[way].replace(!self.blocked[way].get()) {
            return Err(Errno::AGAIN.into());
        }
        let count = wanted.min(self.step).min(self.left.get());
        Ok(count)
    }

    fn pay(&self, count: usize) {
        self.left.set(self.left.get() - count);
    }
}

impl Stream for Script {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        if self.full.get() {
            return Err(Errno::AGAIN.into());
        }
        if let Some(errno) = self.cut.get() {
            return Err(errno.into());
        }
        let bytes: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| piece.iter().copied())
            .collect();
        let count = self.allow(bytes.len(), 0)?;
        self.pay(count);
        self.out.borrow_mut().extend(&bytes[..count]);
        Ok(count)
    }

    #[allow(clippy::incompatible_msrv)] // tests run on the repository's toolchain
    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        self.room.set(into.len());
        let mut queue = self.into.borrow_mut();
        let count = self.allow(into.len(), 1)?.min(queue.len());
        if count == 0 && self.closed.get() {
            return Ok(&mut []);
        }
        if count == 0 {
            return Err(Errno::AGAIN.into());
        }
        self.pay(count);
        let bytes: Vec<u8> = queue.drain(..count).collect();
        Ok(into[..count].write_copy_of_slice(&bytes))
    }

    fn hung_up(&self) -> bool {
        self.left.get() == 0 || (self.closed.get() && self.cut.get().is_some())
    }
}

pub(super) fn ends(
    step: usize,
    left: usize,
    errno: Errno,
) -> (ConnectionState<Script>, ConnectionState<Script>) {
    ends_with(
        step,
        left,
        errno,
        [Handshake::default(), Handshake::default()],
        true,
    )
}

/// The same, with what the caller and the server want of each other, and whether the server trusts the caller.
pub(super) fn ends_with(
    step: usize,
    left: usize,
    errno: Errno,
    [caller, server]: [Handshake; 2],
    trusted: bool,
) -> (ConnectionState<Script>, ConnectionState<Script>) {
    let (there, back) = (Pipe::default(), Pipe::default());
    let end = |out: &Pipe, into: &Pipe, role, left, handshake| {
        let (out, into, left) = (out.clone(), into.clone(), Cell::new(left));
        let script = Script {
            out,
            into,
            step,
            blocked: Default::default(),
            left,
            errno,
            full: Cell::new(false),
            cut: Cell::new(None),
            closed: Cell::new(false),
            room: Cell::new(0),
        };
        let trusted = role == Role::Caller || trusted;
        let mut state = ConnectionState::new(role, Limits::default(), 0, handshake);
        state.connect(script, trusted);
        state.link.queue_preface();
        state.flush();
        state
    };
    (
        end(&there, &back, Role::Caller, left, caller),
        end(&back, &there, Role::Server, usize::MAX, server),
    )
}

fn frame(kind: Kind, id: u64, head: &[u8], segments: &[Payload]) -> Header {
    Header {
        head_bytes: u32::try_from(head.len()).expect("short"),
        segments: u16::try_from(segments.len()).expect("few"),
        codec: Codec::Pickle,
        ..Header::control(kind, id)
    }
}

/// Two calls with a segment, echoed; stops when both are done or the caller's end is broken.
fn exchange(
    caller: &mut ConnectionState<Script>,
    server: &mut ConnectionState<Script>,
) -> Vec<Outcome> {
    for _ in 0..2 {
        if caller.link.life().is_broken() {
            break; // a real caller is refused here
        }
        let segments: Vec<Payload> = vec![Box::new(vec![5u8; 30])];
        let id = caller.calls().next_id();
        caller.calls().begin(id, Taker::Queue, u64::MAX);
        let end = caller.send(
            frame(Kind::Call, id, b"head", &segments),
            Head::Borrowed(b"head"),
            segments,
        );
        if !caller.link.life().is_broken() {
            caller.calls().begin(id, Taker::Queue, end);
        }
    }
    let mut outcomes = Vec::new();
    for _ in 0..10_000 {
        caller.flush();
        server.receive();
        while let Some(Ok(call)) = server.inbox().next(std::time::Instant::now()) {
            let segments: Vec<Payload> = call
                .segments
                .into_iter()
                .map(|s| Box::new(s) as Payload)
                .collect();
            let header = frame(Kind::Reply, call.id, b"head", &segments);
            server.answer(header, None, Head::Borrowed(call.head.as_slice()), segments);
        }
        server.flush();
        caller.receive();
        outcomes.extend(
            caller
                .calls()
                .take_finished()
                .into_iter()
                .map(|(_, outcome)| outcome),
        );
        if outcomes.len() == 2 || caller.calls().in_flight() == 0 {
            break;
        }
    }
    outcomes
}

#[test]
fn any_step_with_blocking_between_gives_the_same_replies() {
    for step in 1..=200 {
        let (mut caller, mut server) = ends(step, usize::MAX, Errno::AGAIN);
        let outcomes = exchange(&mut caller, &mut server);
        assert_eq!(outcomes.len(), 2, "step {step}");
        for outcome in outcomes {
            let Outcome::Reply(frame) = outcome else {
                panic!("step {step}: {outcome:?}")
            };
            assert_eq!(frame.head.as_slice(), b"head");
            assert_eq!(frame.segments[0].as_slice(), [5u8; 30]);
        }
    }
}

/// A caller that shows this, and a server that asks for "secret".
fn guarded(
    step: usize,
    token: Option<&[u8]>,
) -> (ConnectionState<Script>, ConnectionState<Script>) {
    let shows = Handshake {
        token: token.map(<[u8]>::to_vec),
        ..Handshake::default()
    };
    let asks = Handshake {
        admission: Admission::Token(b"secret".to_vec()),
        ..Handshake::default()
    };
    ends_with(step, usize::MAX, Errno::AGAIN, [shows, asks], true)
}

#[test]
fn a_token_lets_calls_in_however_it_is_cut() {
    for step in 1..=120 {
        let (mut caller, mut server) = guarded(step, Some(b"secret"));
        assert!(
            !server.link.life().is_open() && server.link.outbox().is_empty(),
            "it says nothing yet"
        );
        let outcomes = exchange(&mut caller, &mut server);
        assert!(matches!(
            outcomes[..],
            [Outcome::Reply(_), Outcome::Reply(_)]
        ));
        assert!(caller.link.life().is_open() && server.link.life().is_open());
    }
}

#[test]
fn without_the_right_token_nothing_is_said_or_run() {
    for (shown, expected) in [
        (None, Violation::Uninvited),
        (Some(&b"guess"[..]), Violation::Token),
        (Some(&b"secret "[..]), Violation::Token),
        (Some(&b""[..]), Violation::Token),
    ] {
        for step in [1, 7, 1_000] {
            let (mut caller, mut server) = guarded(step, shown);
            assert!(exchange(&mut caller, &mut server).is_empty());
            let Some(Fault::Protocol { violation, .. }) = server.link.fault() else {
                panic!("{:?}", server.link.fault())
            };
            assert_eq!(violation, &expected);
            assert_eq!(server.inbox().queued(), 0);
            assert!(caller.link.peer().is_none(), "not even the preface");
        }
    }
}

#[test]
fn a_long_frame_is_refused_before_the_token_and_taken_after_it() {
    let long = vec![0u8; usize::try_from(HANDSHAKE_BYTES_MAX).expect("short") + 1];
    for (shown, refused) in [(None, true), (Some(&b"secret"[..]), false)] {
        let (mut caller, mut server) = guarded(usize::MAX, shown);
        let header = frame(Kind::Call, 1, &long, &[]);
        caller.send(header, Head::Borrowed(&long), Vec::new());
        for _ in 0..8 {
            caller.flush();
            server.receive();
        }
        let limit = Violation::FrameBytes {
            limit: HANDSHAKE_BYTES_MAX,
            value: HANDSHAKE_BYTES_MAX + 1,
        };
        let found = server.link.fault().map(|fault| match fault {
            Fault::Protocol { violation, .. } => violation.clone(),
            other => panic!("{other:?}"),
        });
        assert_eq!(found, refused.then_some(limit));
        assert_eq!(server.inbox().queued(), usize::from(!refused));
    }
}

#[test]
fn a_token_that_nobody_asked_for_makes_no_stranger_trusted() {
    let handshakes = [Handshake::default(), Handshake::default()];
    let (mut caller, mut server) =
        ends_with(usize::MAX, usize::MAX, Errno::AGAIN, handshakes, false);
    caller.send(
        frame(Kind::Token, 0, b"any", &[]),
        Head::Borrowed(b"any"),
        Vec::new(),
    );
    let announced = Header {
        head_bytes: 64 << 20,
        ..Header::control(Kind::Call, 1)
    };
    caller.send(announced, Head::Borrowed(&[]), Vec::new());
    for _ in 0..4 {
        caller.flush();
        server.receive();
    }
    assert_eq!(server.link.fault(), None);
    let room = server.link.stream().expect("open").room.get();
    assert_eq!(room, GROW_BYTES);
}

#[test]
fn an_error_at_any_byte_ends_every_call_once() {
    let mut broken = 0;
    for left in 0..400 {
        let (mut caller, mut server) = ends(7, left, Errno::CONNRESET);
        let outcomes = exchange(&mut caller, &mut server);
        for outcome in outcomes {
            match outcome {
                Outcome::Reply(frame) => assert_eq!(frame.segments[0].as_slice(), [5u8; 30]),
                Outcome::Broken { fault, .. } => {
                    assert_eq!(fault, Fault::Broken(Cause::Failed(Errno::CONNRESET)));
                    broken += 1;
                }
                Outcome::Failure(..) => panic!("nothing failed remotely"),
            }
        }
        assert_eq!(caller.calls().in_flight(), 0);
    }
    assert!(broken > 100);
}

#[test]
fn cancels_of_running_calls_are_kept_for_a_driver_alone() {
    for (reader, kept) in [(Reader::None, vec![]), (Reader::Driver, vec![1])] {
        let (mut caller, mut server) = ends(usize::MAX, usize::MAX, Errno::AGAIN);
        if reader == Reader::Driver {
            assert!(server.attach_driver());
        }
        let mut send = |server: &mut ConnectionState<Script>, kind| {
            let header = frame(kind, 1, b"", &[]);
            caller.send(header, Head::Borrowed(b""), Vec::new());
            for _ in 0..4 {
                caller.flush();
                server.receive();
            }
        };
        send(&mut server, Kind::Call);
        let running = server.inbox().next(std::time::Instant::now());
        assert!(running.is_some_and(|call| call.is_ok()));
        send(&mut server, Kind::Cancel);
        assert!(server.inbox().is_cancelled(1));
        assert_eq!(server.take_cancelled(), kept);
    }
}

#[test]
fn refusals_that_nobody_takes_end_reading_though_a_stream_is_open() {
    let (mut caller, mut server) = ends(usize::MAX, usize::MAX, Errno::AGAIN);
    let call = Header {
        stream: true,
        ..Header::control(Kind::Call, 1)
    };
    caller.begin_stream(call, Head::Borrowed(b""), Vec::new(), Taker::Queue, 1);
    let fill = |server: &ConnectionState<Script>, full| {
        let stream = server.link.stream().expect("open");
        stream.full.set(full);
    };
    fill(&server, true);
    for id in 2..6_000 {
        let stale = Header {
            generation: u32::MAX,
            ..Header::control(Kind::Call, id)
        };
        caller.send(stale, Head::Borrowed(b""), Vec::new());
        server.receive();
    }
    assert!(server.credits().contains(1) && !server.wants_read());
    assert!(server.link.outbox().bytes() <= REFUSALS_BYTES_MAX + 4 * HEADER_BYTES);
    fill(&server, false);
    for _ in 0..16 {
        caller.flush();
        server.flush();
        server.receive();
    }
    assert_eq!(server.inbox().stale, 6_000 - 2);
    assert!(server.wants_read() && server.link.outbox().is_empty());
}

/// A call that runs at the server, under the id 1.
pub(super) fn running() -> (ConnectionState<Script>, ConnectionState<Script>) {
    let (mut caller, mut server) = ends(usize::MAX, usize::MAX, Errno::AGAIN);
    let end = caller.send(
        frame(Kind::Call, 1, b"", &[]),
        Head::Borrowed(b""),
        Vec::new(),
    );
    caller.calls().begin(1, Taker::Queue, end);
    for _ in 0..4 {
        caller.flush();
        server.receive();
    }
    assert!(server.next_runnable().is_some());
    (caller, server)
}

fn answer(server: &mut ConnectionState<Script>) {
    let header = frame(Kind::Reply, 1, b"", &[]);
    server.answer(header, None, Head::Borrowed(b""), Vec::new());
    server.flush();
}

pub(super) fn stream(state: &ConnectionState<Script>) -> &Script {
    state.link.stream().expect("open")
}

#[test]
fn an_answer_that_came_before_a_failed_send_is_delivered() {
    let (mut caller, mut server) = running();
    answer(&mut server);
    server.flush(); // every other step would block
    stream(&caller).cut.set(Some(Errno::PIPE));
    stream(&caller).blocked[1].set(true);
    caller.tell(Header::control(Kind::Ping, 0));
    let outcome = caller.calls().take_finished().pop_front();
    assert!(
        matches!(outcome, Some((1, Outcome::Reply(_)))),
        "{outcome:?}"
    );
}

#[test]
fn a_server_that_reads_nothing_more_may_still_answer_what_it_has_read() {
    let (mut caller, mut server) = running();
    stream(&caller).cut.set(Some(Errno::PIPE));
    caller.calls().begin(2, Taker::Queue, u64::MAX);
    caller.tell(Header::control(Kind::Call, 2));
    assert!(caller.is_refused() && caller.link.fault().is_none());
    assert!(caller.wants_read());
    let unsent = caller.calls().take_finished().pop_front();
    assert!(
        matches!(unsent, Some((2, Outcome::Broken { sent: false, .. }))),
        "{unsent:?}"
    );
    answer(&mut server);
    for _ in 0..4 {
        server.flush();
        caller.receive();
    }
    let outcome = caller.calls().take_finished().pop_front();
    assert!(
        matches!(outcome, Some((1, Outcome::Reply(_)))),
        "{outcome:?}"
    );
    stream(&caller).closed.set(true);
    for _ in 0..4 {
        caller.receive();
    }
    let fault = Fault::Broken(Cause::EndOfFile);
    assert_eq!(caller.link.fault(), Some(&fault));
}

#[test]
fn a_server_whose_answer_is_not_taken_ends_and_cancels_what_runs() {
    let (_caller, mut server) = running();
    assert!(server.attach_driver() && !server.attach_driver());
    stream(&server).cut.set(Some(Errno::PIPE));
    server.tell(Header::control(Kind::Ping, 0));
    assert!(server.link.life().has_ended() && server.link.fault().is_none());
    assert!(server.link.outbox().is_empty() && !server.wants_read());
    assert_eq!(server.take_cancelled(), [1]);
}

#[test]
fn an_end_of_file_ends_a_server_and_breaks_a_caller_with_or_without_a_goodbye() {
    for goodbye in [false, true] {
        let (mut caller, mut server) = running();
        if goodbye {
            server.tell(Header::control(Kind::Goodbye, 0));
        }
        for state in [&mut caller, &mut server] {
            stream(state).closed.set(true);
            for _ in 0..4 {
                state.flush();
                state.receive();
            }
        }
        assert_eq!(caller.is_refused(), goodbye);
        let fault = Fault::Broken(Cause::EndOfFile);
        assert_eq!(caller.link.fault(), Some(&fault));
        assert!(server.link.life().has_ended() && !server.inbox().is_cancelled(1));
        assert!(!server.caller_gone(), "it waits for its answer");
        answer(&mut server);
        assert!(server.link.life().is_open() && server.link.fault().is_none());
        stream(&server).cut.set(Some(Errno::PIPE));
        assert!(!server.caller_gone() && server.link.is_hung_up());
    }
}
