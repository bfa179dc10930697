//! When the stream of a connection may be taken away, and what is left of the connection.

use super::{End, Own, incoming, open_ends, outgoing, pair, share, state};
use crate::error::Fault;
use crate::limit::DIRECT_BYTES_MIN;
use crate::link::admission::Admission;
use crate::messages::state::State;

#[test]
fn a_stream_is_taken_between_two_messages_and_closes_the_state() {
    let (mut one, mut other, _) = open_ends();
    let budget = share(usize::MAX, [&mut one, &mut other]);
    assert_eq!(budget.counters().connections, 2);
    assert!(one.take_stream().is_some());
    assert_eq!(
        (one.fault(), one.stream().is_none()),
        (Some(&Fault::Closed), true)
    );
    assert_eq!(
        budget.counters().connections,
        1,
        "it is closed, not dropped"
    );
    assert!(one.take_stream().is_none(), "once");
    drop(one);
    assert_eq!(budget.counters().connections, 1, "counted off once");
}

/// Nothing is taken, and nothing changes.
fn stays(state: &mut State<End>, why: &str) {
    let fault = state.fault().cloned();
    assert!(state.take_stream().is_none(), "{why}");
    assert_eq!(state.fault().cloned(), fault, "{why}");
    assert!(state.stream().is_some(), "{why}");
}

#[test]
fn a_stream_on_which_something_is_under_way_is_not_taken() {
    stays(
        &mut state(pair().0, Admission::Anybody, None),
        "the handshake is under way",
    );
    let (mut one, mut other, own) = open_ends();
    own.borrow_mut().unsent = 1;
    stays(&mut one, "the stream holds bytes that the kernel has not");
    own.borrow_mut().unsent = 0;
    own.borrow_mut().wants_write = true;
    stays(&mut one, "the stream has bytes of its own");
    *own.borrow_mut() = Own::default();
    outgoing(&one).borrow_mut().room.extend([0, 0]);
    one.send(&mut vec![b"later".to_vec()]);
    stays(&mut one, "a message is queued");
    one.flush();
    outgoing(&one).borrow_mut().room.clear();
    one.flush();
    incoming(&other).borrow_mut().room.push_back(3);
    other.receive();
    stays(&mut other, "a message has come in part");
    other.receive();
    stays(&mut other, "a message waits");
    assert!(other.take().is_some());
    assert!(one.take_stream().is_some() && other.take_stream().is_some());
}

#[test]
fn a_stream_that_ended_or_broke_or_waits_for_memory_is_not_taken() {
    let (mut one, mut other, _) = open_ends();
    other.request_memory();
    one.send(&mut vec![vec![0; DIRECT_BYTES_MIN]]);
    other.receive();
    stays(&mut other, "memory is wanted");
    one.link.end();
    stays(&mut one, "the peer sends nothing more");
    one.break_with(Fault::Closed);
    stays(&mut one, "it is broken");
}
