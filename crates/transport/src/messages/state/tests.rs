//! The state over a scripted stream.

mod memory;
mod taking;
mod tokens;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::rc::Rc;

use proptest::prelude::*;
use rustix::io::Errno;

use super::State;
use crate::counted;
use crate::error::{Cause, Fault, Violation};
use crate::limit::{BUDGET_STEP, COPY_BYTES_MAX, Limits, MESSAGE_BYTES_MIN, TURN_BYTES};
use crate::link::admission::Admission;
use crate::messages::budget::Budget;
use crate::stream::{Stream, StreamFault};
use crate::wire::frame::{Header, Kind};
use crate::wire::preface::Preface;
use crate::wire::role::Role;

/// One direction: bytes, and how many of them each call may move.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    room: VecDeque<usize>,
    closed: bool,
}

/// What a stream with a queue of its own says of it.
#[derive(Clone, Default)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own, not a mode
struct Own {
    wants_write: bool,
    /// A handshake waits for the peer.
    is_busy: bool,
    unsent: usize,
    holds_received: bool,
    signals_room_as_input: bool,
    copied: u64,
    lent: usize,
    fault: Option<StreamFault>,
    /// What the next receive fails with.
    receive_fault: Option<StreamFault>,
    receives: usize,
    hung_up: bool,
}

#[derive(Clone)]
struct End {
    incoming: Rc<RefCell<Pipe>>,
    outgoing: Rc<RefCell<Pipe>>,
    own: Rc<RefCell<Own>>,
}

impl End {
    /// Whether nothing is under way in either direction.
    fn is_quiet(&self) -> bool {
        self.incoming.borrow().bytes.is_empty() && self.outgoing.borrow().bytes.is_empty()
    }
}

fn pair() -> (End, End) {
    let (one, other) = (Rc::default(), Rc::default());
    let first = End {
        incoming: Rc::clone(&one),
        outgoing: Rc::clone(&other),
        own: Rc::default(),
    };
    let second = End {
        incoming: other,
        outgoing: one,
        own: Rc::default(),
    };
    (first, second)
}

impl Stream for End {
    fn send(&mut self, pieces: &[IoSlice<'_>]) -> Result<usize, StreamFault> {
        let mut pipe = self.outgoing.borrow_mut();
        if pipe.closed {
            return Err(Errno::PIPE.into());
        }
        let mut room = pipe.room.pop_front().unwrap_or(usize::MAX);
        if room == 0 {
            return Err(Errno::AGAIN.into());
        }
        let mut sent = 0;
        for piece in pieces {
            let count = piece.len().min(room);
            pipe.bytes.extend(&piece[..count]);
            sent += count;
            room -= count;
        }
        Ok(sent)
    }

    fn receive<'a>(
        &mut self,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Result<&'a mut [u8], StreamFault> {
        self.own.borrow_mut().receives += 1;
        if let Some(fault) = self.own.borrow_mut().receive_fault.take() {
            return Err(fault);
        }
        let mut pipe = self.incoming.borrow_mut();
        let room = pipe.room.pop_front().unwrap_or(usize::MAX);
        let count = pipe.bytes.len().min(into.len()).min(room);
        if count == 0 && !pipe.closed {
            return Err(Errno::AGAIN.into());
        }
        let taken: Vec<u8> = pipe.bytes.drain(..count).collect();
        Ok(into[..count].write_copy_of_slice(&taken))
    }

    fn hung_up(&self) -> bool {
        self.incoming.borrow().closed || self.own.borrow().hung_up
    }

    fn wants_write(&self) -> bool {
        self.own.borrow().wants_write
    }

    fn takes(&self) -> bool {
        !self.own.borrow().is_busy
    }

    fn unsent(&self) -> usize {
        self.own.borrow().unsent
    }

    fn holds_received(&self) -> bool {
        self.own.borrow().holds_received
    }

    fn signals_room_as_input(&self) -> bool {
        self.own.borrow().signals_room_as_input
    }

    fn woken(&mut self) -> Result<(), StreamFault> {
        self.own.borrow_mut().fault.take().map_or(Ok(()), Err)
    }

    fn copied(&self) -> u64 {
        self.own.borrow().copied
    }

    fn lent(&mut self) -> usize {
        self.own.borrow().lent
    }
}

fn state(end: End, admission: Admission, token: Option<&[u8]>) -> State<End> {
    State::new(end, Limits::of_messages(), admission, token)
}

fn settle(one: &mut State<End>, other: &mut State<End>) {
    for _ in 0..10_000 {
        one.flush();
        other.flush();
        one.receive();
        other.receive();
        let moved = one.stream().is_none_or(End::is_quiet);
        if moved && one.outbox().is_empty() && other.outbox().is_empty() {
            break;
        }
    }
}

fn frames_of(state: &mut State<End>) -> Option<Vec<Vec<u8>>> {
    let message = state.take()?;
    Some(
        message
            .iter()
            .map(|frame| frame.as_slice().to_vec())
            .collect(),
    )
}

/// What one end of a connection of messages does.
#[derive(Clone, Debug)]
enum Act {
    Send(Vec<usize>),
    Take,
    Move,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let frames = prop::collection::vec(0usize..400, 1..4);
    let act = prop_oneof![
        3 => frames.prop_map(Act::Send),
        3 => Just(Act::Take),
        2 => Just(Act::Move),
    ];
    prop::collection::vec(act, 1..120)
}

proptest! {
    #[test]
    fn what_waits_is_bounded_and_whoever_takes_it_gets_the_rest(
        acts in acts(),
        limit in 1usize..3_000,
        cuts in prop::collection::vec(0usize..900, 0..60),
    ) {
        let _watch = counted::Watch;
        let (left, right) = pair();
        left.outgoing.borrow_mut().room.extend(cuts);
        let limits = Limits { inbox_bytes_max: limit, ..Limits::of_messages() };
        let mut one = state(left, Admission::Anybody, None);
        let mut other = State::new(right, limits, Admission::Anybody, None);
        let (mut sent, mut got) = (VecDeque::new(), 0);
        let mut paused = false;
        for act in acts {
            counted::step();
            match act {
                Act::Send(sizes) => {
                    let frames = sizes.iter().map(|&size| vec![sent.len().to_le_bytes()[0]; size]);
                    let message: Vec<Vec<u8>> = frames.collect();
                    one.send(&mut message.clone());
                    sent.push_back(message);
                }
                Act::Take => {
                    let message = frames_of(&mut other);
                    assert!(message.is_none() || message.as_ref() == sent.get(got), "out of order");
                    got += usize::from(message.is_some());
                }
                Act::Move => {
                    one.flush();
                    other.receive();
                }
            }
            let (count, bytes) = other.waiting();
            assert!(got + count <= sent.len(), "a message came twice");
            let held: usize = sent.range(got..got + count).map(|message| weight(message)).sum();
            assert_eq!(bytes, held, "bytes that wait are counted wrongly");
            paused = bytes >= limit || paused && bytes > limit / 2;
            assert_eq!(other.wants_read(), !paused, "reading at {bytes} of {limit} bytes");
        }
        for _ in 0..10_000 {
            one.flush();
            other.receive();
            while let Some(message) = frames_of(&mut other) {
                assert_eq!(Some(&message), sent.get(got), "out of order");
                got += 1;
            }
            if got == sent.len() {
                break;
            }
        }
        assert_eq!(got, sent.len(), "messages are lost");
        assert_eq!((other.received(), one.sent), (got as u64, got as u64));
    }
}

/// What a message of these frames counts for.
fn weight(message: &[Vec<u8>]) -> usize {
    message
        .iter()
        .map(|frame| frame.len() + MESSAGE_BYTES_MIN)
        .sum()
}

proptest! {
    #[test]
    fn messages_arrive_whole_and_in_order_however_the_stream_is_cut(
        sizes in prop::collection::vec(prop::collection::vec(0usize..200_000, 1..5), 1..6),
        cuts in prop::collection::vec(0usize..70_000, 0..60),
    ) {
        let (left, right) = pair();
        left.outgoing.borrow_mut().room.extend(cuts.iter().copied());
        let mut one = state(left, Admission::Anybody, None);
        let mut other = state(right, Admission::Anybody, None);
        let mut sent = Vec::new();
        for (number, sizes) in sizes.iter().enumerate() {
            let message: Vec<Vec<u8>> = sizes
                .iter()
                .map(|&size| (0..size).map(|at| (at + number).to_le_bytes()[0]).collect())
                .collect();
            sent.push(message.clone());
            one.send(&mut message.clone());
        }
        settle(&mut one, &mut other);
        let mut got = Vec::new();
        while let Some(message) = frames_of(&mut other) {
            got.push(message);
            other.receive();
        }
        prop_assert!(got == sent, "{} of {} messages arrived", got.len(), sent.len());
        prop_assert!(one.has_opened() && other.has_opened());
    }
}

#[test]
fn long_frames_are_lent_until_they_are_gone_or_owned() {
    let (left, right) = pair();
    left.outgoing.borrow_mut().room.extend([1000, 2000, 0, 0]);
    let mut one = state(left, Admission::Anybody, None);
    let mut other = state(right, Admission::Anybody, None);
    one.flush();
    let long = vec![7u8; 3 * COPY_BYTES_MAX];
    let (held, end) = one.send(&mut vec![long.clone(), long.clone()]);
    assert!(held && end > one.outbox().sent());
    assert!(one.take_sent().is_empty(), "the stream still needs them");
    one.own();
    assert_eq!(one.take_sent().len(), 2);
    settle(&mut one, &mut other);
    assert!(frames_of(&mut other) == Some(vec![long.clone(), long]));
}

#[test]
fn reading_stops_at_the_limit_and_goes_on_at_half() {
    let (left, right) = pair();
    let mut one = state(left, Admission::Anybody, None);
    let limits = Limits {
        inbox_bytes_max: 1000,
        ..Limits::of_messages()
    };
    let mut other = State::new(right, limits, Admission::Anybody, None);
    for _ in 0..4 {
        one.send(&mut vec![vec![0; 500]]);
    }
    settle(&mut one, &mut other);
    assert!(!other.wants_read());
    while other.waiting().1 > 500 {
        assert!(!other.wants_read());
        other.take();
    }
    assert!(other.wants_read());
}

/// The budget of a test, with both states charged to it.
fn share(bytes_max: usize, states: [&mut State<End>; 2]) -> &'static Budget {
    let budget: &'static Budget = Box::leak(Box::new(Budget::new(bytes_max, 2)));
    for state in states {
        state.arrivals.charge(budget);
    }
    budget
}

#[test]
fn above_the_limit_of_the_process_one_step_of_messages_is_read() {
    let (left, right) = pair();
    let mut one = state(left, Admission::Anybody, None);
    let mut other = state(right, Admission::Anybody, None);
    let budget = share(0, [&mut one, &mut other]);
    for _ in 0..20 {
        one.send(&mut vec![vec![0; BUDGET_STEP / 4]]);
        settle(&mut one, &mut other);
    }
    let (messages, bytes) = other.waiting();
    assert_eq!((messages, bytes >= BUDGET_STEP), (4, true));
    assert!(!other.wants_read() && budget.counters().held_back == 1);
    other.take();
    assert!(
        other.wants_read(),
        "less than a step is always read on from"
    );
}

#[test]
fn a_message_that_was_begun_is_finished_above_the_limit() {
    let (left, right) = pair();
    left.outgoing.borrow_mut().room.extend([7 * BUDGET_STEP]);
    let mut one = state(left, Admission::Anybody, None);
    let mut other = state(right, Admission::Anybody, None);
    let budget = share(0, [&mut one, &mut other]);
    one.send(&mut vec![vec![7; 20 * BUDGET_STEP]]);
    other.receive();
    let held = budget.counters().held_bytes;
    assert!(
        held >= 17 * BUDGET_STEP,
        "what is under way counts on both sides: {held}"
    );
    assert!(budget.is_over() && other.wants_read());
    settle(&mut one, &mut other);
    assert_eq!(other.waiting().0, 1);
    assert!(!other.wants_read());
    other.take();
    assert!(other.wants_read());
    assert_eq!(budget.counters().held_bytes, 0);
}

#[test]
fn what_came_before_the_end_is_delivered() {
    let (left, right) = pair();
    let closing = left.outgoing.clone();
    let mut one = state(left, Admission::Anybody, None);
    let mut other = state(right, Admission::Anybody, None);
    one.send(&mut vec![b"last".to_vec()]);
    closing.borrow_mut().closed = true;
    other.receive();
    other.receive();
    assert_eq!(frames_of(&mut other), Some(vec![b"last".to_vec()]));
    assert_eq!(other.end(), Some(Fault::Broken(Cause::EndOfFile)));
    assert!(other.is_over());
}

/// Two ends that know each other, and what the first one's stream says of itself.
fn open_ends() -> (State<End>, State<End>, Rc<RefCell<Own>>) {
    open_ends_with(Limits::of_messages())
}

/// The other one has these limits.
fn open_ends_with(limits: Limits) -> (State<End>, State<End>, Rc<RefCell<Own>>) {
    let (left, right) = pair();
    let own = Rc::clone(&left.own);
    let mut one = state(left, Admission::Anybody, None);
    let mut other = State::new(right, limits, Admission::Anybody, None);
    settle(&mut one, &mut other);
    assert!(one.has_opened() && other.has_opened());
    (one, other, own)
}

fn incoming(one: &State<End>) -> Rc<RefCell<Pipe>> {
    Rc::clone(&one.stream().expect("open").incoming)
}

fn outgoing(one: &State<End>) -> Rc<RefCell<Pipe>> {
    Rc::clone(&one.stream().expect("open").outgoing)
}

fn violation_of(state: &State<End>) -> Option<Violation> {
    match state.fault() {
        Some(Fault::Protocol { violation, .. }) => Some(violation.clone()),
        _ => None,
    }
}

#[test]
fn what_the_kernel_has_is_what_neither_we_nor_the_stream_hold() {
    let (mut one, mut other, own) = open_ends();
    let before = one.kernel_offset();
    assert_eq!((before, one.sending()), (one.outbox().end(), None));
    own.borrow_mut().unsent = 7;
    assert_eq!(one.kernel_offset(), before - 7);
    assert_eq!(one.sending(), Some((before - 7, before)));
    own.borrow_mut().unsent = 0;
    outgoing(&one).borrow_mut().room.extend([3, 0, 0]);
    one.send(&mut vec![b"later".to_vec()]);
    assert_eq!(one.sending(), Some((before + 3, one.outbox().end())));
    settle(&mut one, &mut other);
    assert_eq!(one.sending(), None);
    outgoing(&one).borrow_mut().room.extend([0, 0]);
    one.send(&mut vec![b"never".to_vec()]);
    one.break_with(Fault::Closed);
    assert_eq!(one.sending(), None, "nothing waits for this peer");
}

#[test]
fn room_is_watched_for_where_something_waits_for_it() {
    let (mut one, _other, own) = open_ends();
    assert!(!one.wants_write(), "nothing is to be sent");
    own.borrow_mut().wants_write = true;
    assert!(one.wants_write(), "the stream has bytes of its own");
    own.borrow_mut().signals_room_as_input = true;
    assert!(!one.wants_write(), "it is told as input");
    *own.borrow_mut() = Own::default();
    outgoing(&one).borrow_mut().room.extend([0; 8]);
    one.send(&mut vec![b"waits".to_vec()]);
    assert!(one.wants_write());
    own.borrow_mut().is_busy = true;
    assert!(!one.wants_write(), "a handshake waits for the peer");
    own.borrow_mut().is_busy = false;
    one.break_with(Fault::Closed);
    own.borrow_mut().wants_write = true;
    assert!(!one.wants_write(), "it is broken");
}

#[test]
fn a_handshake_that_ends_with_a_receive_lets_the_queue_out() {
    let (mut one, mut other, own) = open_ends();
    outgoing(&one).borrow_mut().room.extend([0]);
    one.send(&mut vec![b"waits".to_vec()]);
    one.receive();
    assert!(!one.outbox().is_empty(), "nothing has changed");
    own.borrow_mut().is_busy = true;
    one.receive();
    assert!(one.outbox().is_empty());
    other.receive();
    assert_eq!(frames_of(&mut other), Some(vec![b"waits".to_vec()]));
}

#[test]
fn bytes_that_lie_in_the_stream_are_asked_for_again() {
    let (mut one, _other, own) = open_ends();
    assert!(!one.holds_received() && !one.may_have_more());
    own.borrow_mut().holds_received = true;
    assert!(one.holds_received() && one.may_have_more());
    one.link.end();
    assert!(!one.may_have_more(), "nothing more is read");
    one.break_with(Fault::Closed);
    assert!(!one.holds_received());
}

#[test]
fn a_receive_that_was_filled_may_have_left_something() {
    let (mut one, mut other, _) = open_ends();
    for _ in 0..8 {
        one.send(&mut vec![vec![1; 60_000]; 10]);
    }
    other.begin_turn();
    let began = other.offset();
    other.receive();
    let turn = other.offset() - began;
    assert!(
        (TURN_BYTES as u64..2 * TURN_BYTES as u64).contains(&turn),
        "{turn}"
    );
    assert!(other.may_have_more(), "the turn was over first");
    while other.take().is_some() {}
    other.receive_between_turns();
    let more = other.offset() - began;
    assert!(more > turn, "a task reads on between turns");
    while other.take().is_some() {}
    other.receive_between_turns();
    assert_eq!(other.offset() - began, more, "twice a turn at most");
    other.begin_turn();
    other.receive_between_turns();
    other.receive();
    assert!(other.offset() - began > more);
    while other.take().is_some() {
        other.receive();
    }
    assert!(!other.may_have_more(), "the last receive was not filled");
    let all = other.offset();
    other.begin_turn();
    other.receive_between_turns();
    one.send(&mut vec![b"new".to_vec()]);
    other.receive_between_turns();
    assert_eq!(other.offset(), all, "nothing says that more is there");
    other.receive();
    assert_eq!(frames_of(&mut other), Some(vec![b"new".to_vec()]));
    assert!(!other.may_have_more(), "a short receive found all");
}

#[test]
fn the_middle_of_a_message_has_a_place() {
    let (mut one, mut other, _) = open_ends();
    assert!(!other.is_within() && other.receiving().is_none());
    outgoing(&one).borrow_mut().room.extend([20]);
    let began = other.offset();
    one.send(&mut vec![vec![1; 100]]);
    other.receive();
    let place = other.receiving().expect("in the middle");
    assert_eq!((place.moved, place.target), (began + 20, began));
    assert!(other.is_within() && other.front().is_none());
    settle(&mut one, &mut other);
    assert!(other.receiving().is_none());
    assert_eq!(other.front().map(Vec::len), Some(1));
    assert_eq!(other.waiting().0, 1, "it stays");
    let other_offset = other.offset();
    outgoing(&one).borrow_mut().room.extend([20]);
    one.send(&mut vec![vec![1; 100]]);
    other.receive();
    assert_eq!(
        other.receiving().map(|place| place.target),
        Some(other_offset)
    );
    other.link.end();
    assert!(other.receiving().is_none(), "it is not read");
    let fresh = state(pair().0, Admission::Anybody, None);
    assert!(fresh.is_within(), "the handshake is under way");
}

fn ping(state: &mut State<End>, id: u64) {
    let ping = Header::control(Kind::Ping, id).encode();
    state.link.outbox_mut().push_copy(&ping);
    state.flush();
}

#[test]
fn a_ping_is_answered_unless_too_much_waits() {
    let limits = Limits {
        outbox_bytes_high: 50,
        ..Limits::of_messages()
    };
    let (mut one, mut other, _) = open_ends_with(limits);
    ping(&mut one, 5);
    other.receive();
    let answered = one.offset();
    one.receive();
    assert!(one.offset() > answered, "a pong has come");
    assert_eq!((one.fault(), other.fault()), (None, None));
    outgoing(&other).borrow_mut().room.extend([0; 8]);
    other.send(&mut vec![vec![0; 100]]);
    let queued = other.outbox().bytes();
    assert!(queued > 50);
    ping(&mut one, 6);
    other.receive();
    assert_eq!(
        other.outbox().bytes(),
        queued,
        "it does not take what is sent"
    );
    outgoing(&other).borrow_mut().room = [queued - 50, 0, 0].into();
    other.flush();
    assert_eq!(other.outbox().bytes(), 50);
    ping(&mut one, 7);
    other.receive();
    assert!(other.outbox().bytes() > 50);
}

#[test]
fn frames_that_are_no_messages_break_the_protocol() {
    let call = Header::control(Kind::Call, 1);
    let empty = Header::control(Kind::Message, 0);
    let shared = Header {
        segments: 1,
        ..Header::control(Kind::Shared, 0)
    };
    for (header, body, violation) in [
        (call, 0, Violation::Kind(Kind::Call as u8)),
        (empty, 0, Violation::Empty),
    ] {
        let (one, mut other, _) = open_ends();
        let mut bytes = header.encode().to_vec();
        bytes.extend(vec![0; body]);
        outgoing(&one).borrow_mut().bytes.extend(bytes);
        other.receive();
        assert_eq!(violation_of(&other), Some(violation));
        assert!(other.is_over() && !other.wants_read());
    }
    let (one, mut other, _) = open_ends();
    let both = Header {
        segments: 2,
        ..shared
    };
    let mut bytes = both.encode().to_vec();
    bytes.extend([1_u64, 3].iter().flat_map(|length| length.to_le_bytes()));
    bytes.extend(b"\0abc");
    outgoing(&one).borrow_mut().bytes.extend(bytes);
    other.receive();
    assert_eq!(
        frames_of(&mut other),
        Some(vec![b"abc".to_vec()]),
        "none is named"
    );
    let (one, mut other, _) = open_ends();
    let mut bytes = shared.encode().to_vec();
    bytes.extend(8_u64.to_le_bytes());
    bytes.extend([0; 8]);
    outgoing(&one).borrow_mut().bytes.extend(bytes);
    other.receive();
    assert!(violation_of(&other).is_some(), "nothing can be shared here");
    assert!(other.take().is_none());
}

#[test]
fn a_peer_for_calls_is_no_peer_for_messages() {
    let (left, right) = pair();
    let mut other = state(right, Admission::Anybody, None);
    let preface = Preface::new(Role::Caller, &Limits::default(), 0).encode();
    left.outgoing.borrow_mut().bytes.extend(preface);
    other.receive();
    assert_eq!(violation_of(&other), Some(Violation::Purpose(Role::Caller)));
    assert!(!other.has_opened());
}

#[test]
fn a_stream_that_fails_breaks_the_connection_and_one_that_waits_does_not() {
    let (mut one, _other, own) = open_ends();
    for fault in [Errno::AGAIN, Errno::INTR] {
        own.borrow_mut().fault = Some(fault.into());
        one.woken();
        assert_eq!(one.fault(), None);
    }
    own.borrow_mut().fault = Some(Errno::CONNRESET.into());
    one.woken();
    assert!(
        matches!(one.fault(), Some(Fault::Broken(_))),
        "{:?}",
        one.fault()
    );
    let (mut one, _other, own) = open_ends();
    own.borrow_mut().fault = Some(Violation::Empty.into());
    one.woken();
    assert_eq!(violation_of(&one), Some(Violation::Empty));
}

#[test]
fn a_receive_that_finds_nothing_is_not_repeated_and_one_that_fails_breaks() {
    let (mut one, mut other, own) = open_ends();
    own.borrow_mut().receives = 0;
    one.receive();
    assert_eq!(own.borrow().receives, 1, "nothing is there");
    own.borrow_mut().receive_fault = Some(Errno::INTR.into());
    one.receive();
    assert_eq!((own.borrow().receives, one.fault()), (2, None));
    other.send(&mut vec![b"there".to_vec()]);
    one.receive();
    assert_eq!(own.borrow().receives, 3, "a short receive found all");
    own.borrow_mut().receive_fault = Some(Errno::CONNRESET.into());
    one.receive();
    assert!(
        matches!(one.fault(), Some(Fault::Broken(_))),
        "{:?}",
        one.fault()
    );
    one.receive();
    assert_eq!(own.borrow().receives, 4, "it is broken");
    assert_eq!(frames_of(&mut one), Some(vec![b"there".to_vec()]));
}

#[test]
fn what_the_stream_copied_and_lent_counts() {
    let (mut one, mut other, own) = open_ends();
    let before = one.copied();
    *own.borrow_mut() = Own {
        copied: 1000,
        lent: 3,
        ..Own::default()
    };
    assert_eq!((one.copied(), one.lent()), (before + 1000, 3));
    other.send(&mut vec![vec![0; 500]]);
    one.receive();
    assert_eq!(one.copied(), before + 1500);
    outgoing(&one).borrow_mut().room.extend([0; 4]);
    one.send(&mut vec![vec![0; 500]]);
    assert!(one.copied() >= before + 2000, "into the outbox");
}

#[test]
fn a_peer_that_is_gone_is_noticed_also_where_it_is_not_read() {
    let limits = Limits {
        inbox_bytes_max: 10,
        ..Limits::of_messages()
    };
    let (mut one, mut other, _) = open_ends_with(limits);
    one.send(&mut vec![vec![0; 100]]);
    other.receive();
    assert!(!other.is_over() && !other.wants_read());
    let own = Rc::clone(&other.stream().expect("open").own);
    own.borrow_mut().hung_up = true;
    assert!(other.is_over(), "it is not read, so it is looked at");
    other.take();
    assert!(
        other.wants_read() && !other.is_over(),
        "what it sent is read first"
    );
    other.drop_stream();
    assert!(other.is_over() && !other.wants_read());
}

#[test]
fn a_stream_that_ends_in_the_middle_was_cut() {
    let (mut one, mut other, _) = open_ends();
    outgoing(&one).borrow_mut().room.extend([20]);
    one.send(&mut vec![vec![1; 100]]);
    incoming(&other).borrow_mut().closed = true;
    other.receive();
    other.receive();
    assert_eq!(other.end(), Some(Fault::Broken(Cause::Truncated)));
    assert_eq!(other.waiting(), (0, 0));
    other.break_with(Fault::Closed);
    assert_eq!(
        other.end(),
        Some(Fault::Broken(Cause::Truncated)),
        "the first stays"
    );
}
