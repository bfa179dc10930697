//! The state over a scripted stream.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::rc::Rc;

use proptest::prelude::*;
use rustix::io::Errno;

use super::budget::{Budget, Share};
use super::state::State;
use crate::admission::Admission;
use crate::counted;
use crate::error::{Cause, Fault, Violation};
use crate::limit::{BUDGET_STEP, COPY_BYTES_MAX, Limits, MESSAGE_BYTES_MIN};
use crate::stream::{Stream, StreamFault};

/// One direction: bytes, and how many of them each call may move.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    room: VecDeque<usize>,
    closed: bool,
}

#[derive(Clone)]
struct End {
    incoming: Rc<RefCell<Pipe>>,
    outgoing: Rc<RefCell<Pipe>>,
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
    };
    let second = End {
        incoming: other,
        outgoing: one,
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
        self.incoming.borrow().closed
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
        let moved = one.stream.as_ref().is_none_or(End::is_quiet);
        if moved && one.outbox.is_empty() && other.outbox.is_empty() {
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
        assert_eq!((other.received, one.sent), (got as u64, got as u64));
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
        prop_assert!(one.is_met() && other.is_met());
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
    assert!(held && end > one.outbox.sent());
    assert!(
        one.outbox.take_retired().is_empty(),
        "the stream still needs them"
    );
    one.outbox.own();
    assert_eq!(one.outbox.take_retired().len(), 2);
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
        state.share = Share::new(budget);
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
    assert!(!other.wants_read() && budget.tally().held_back == 1);
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
    let held = budget.tally().held_bytes;
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
    assert_eq!(budget.tally().held_bytes, 0);
}

#[test]
fn a_wrong_or_missing_token_lets_nothing_in() {
    let asks = || Admission::Token(b"secret".to_vec());
    for (token, violation) in [
        (None, Violation::Uninvited),
        (Some(&b"guess"[..]), Violation::Token),
    ] {
        let (left, right) = pair();
        let mut one = state(left, Admission::Anybody, token);
        let mut other = state(right, asks(), None);
        one.send(&mut vec![b"x".to_vec()]);
        settle(&mut one, &mut other);
        assert!(!other.is_met() && other.take().is_none());
        assert!(
            matches!(&other.fault, Some(Fault::Protocol { violation: found, .. }) if *found == violation)
        );
    }
    let (left, right) = pair();
    let mut one = state(left, Admission::Anybody, Some(b"secret"));
    let mut other = state(right, asks(), None);
    one.send(&mut vec![b"x".to_vec()]);
    settle(&mut one, &mut other);
    assert_eq!(frames_of(&mut other), Some(vec![b"x".to_vec()]));
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
