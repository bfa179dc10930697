//! Either end of a connection of calls with arbitrary input.

use std::time::Instant;

use super::Speaker;
use crate::calls::Next;
use crate::calls::StreamReadiness;
use crate::calls::call::Taker;
use crate::calls::state::ConnectionState;
use crate::error::Fault;
use crate::limit::{LEND_BYTES_MIN, Limits};
use crate::link::admission::{Admission, Handshake};
use crate::link::outbox::Head;
use crate::wire::frame::{Codec, Header, Kind};
use crate::wire::preface::{LENDS, Preface, STREAMS};
use crate::wire::role::Role;

/// What an input's first byte says: the end that hears it, and how much it trusts its peer.
pub const SERVES: u8 = 1;
pub const TRUSTS: u8 = 2;
pub const ASKS_TOKEN: u8 = 4;
/// Set for [`lending`] alone.
const BORROWS: u8 = 8;
/// The token that is asked for.
pub const TOKEN: &[u8] = b"open sesame";

/// Calls that wait for an answer, and streams, before the peer says anything.
const CALLS: u64 = 2;
const CREDIT: u32 = 4;

/// An end of calls receives any bytes; it serves calls, and takes the outcomes of its own.
///
/// The first byte says which end, the second how much it hears at once.
///
/// # Panics
/// Where it goes on after it has refused something.
pub fn calls(input: &[u8]) -> bool {
    hear(input, 0)
}

/// The same, where the peer has lent a long segment before, so that this end borrows: chunks, names, boards.
///
/// # Panics
/// As [`calls`].
pub fn lending(input: &[u8]) -> bool {
    hear(input, BORROWS)
}

fn hear(input: &[u8], lent: u8) -> bool {
    let (&[how, step], bytes) = input.split_first_chunk().unwrap_or((&[0, 0], &[]));
    let how = how & !BORROWS | lent;
    let serves = how & SERVES != 0;
    let mut said = Vec::new();
    if how & BORROWS != 0 {
        lend_before(&mut said, serves);
    }
    said.extend_from_slice(bytes);
    let (before, length) = (said.len() - bytes.len(), said.len());
    let step = if before > 0 {
        usize::MAX
    } else {
        1 << (step % 16)
    };
    let trusts = how & (TRUSTS | BORROWS) != 0;
    let role = if serves { Role::Server } else { Role::Caller };
    let limits = Limits {
        frame_bytes_max: 256 << 10,
        ..Limits::default()
    };
    let admission = match how & ASKS_TOKEN {
        0 => Admission::Anybody,
        _ => Admission::Token(TOKEN.to_vec()),
    };
    let handshake = Handshake {
        admission,
        ..Handshake::default()
    };
    let mut state = ConnectionState::new(role, limits, 0, handshake);
    state.attach_driver();
    state.connect(Speaker::new(said, step, trusts), trusts);
    if !serves {
        ask(&mut state);
    }
    for _ in 0..=length {
        if !state.wants_read() {
            break;
        }
        state.receive();
        act(&mut state);
        state.flush();
    }
    let refused = matches!(state.link().fault(), Some(Fault::Protocol { .. }));
    if refused {
        assert!(!state.wants_read() && state.link().outbox().bytes() == 0);
    }
    refused
}

/// A preface of one who lends, and a long segment; a server has it in a call, a caller in the answer to one.
fn lend_before(said: &mut Vec<u8>, serves: bool) {
    let role = if serves { Role::Caller } else { Role::Server };
    let mut preface = Preface::new(role, &Limits::default(), 0);
    preface.features |= LENDS | STREAMS;
    said.extend_from_slice(&preface.encode());
    let kind = if serves { Kind::Call } else { Kind::Reply };
    let header = Header {
        segments: 1,
        ..Header::control(kind, 1)
    };
    said.extend_from_slice(&header.encode());
    said.extend_from_slice(&(LEND_BYTES_MIN as u64).to_le_bytes());
    said.resize(said.len() + LEND_BYTES_MIN, 0);
}

/// Calls and a stream, of which the peer knows the ids.
fn ask(state: &mut ConnectionState<Speaker>) {
    for _ in 0..CALLS {
        let id = state.calls().next_id();
        let end = state.send(
            Header::control(Kind::Call, id),
            Head::Borrowed(&[]),
            Vec::new(),
        );
        state.calls().begin(id, Taker::Queue, end);
    }
    let id = state.calls().next_id();
    let header = Header {
        stream: true,
        ..Header::control(Kind::Call, id)
    };
    state.begin_stream(
        header,
        Head::Borrowed(&[]),
        Vec::new(),
        Taker::Queue,
        CREDIT,
    );
}

/// Serve the calls, and take the outcomes.
fn act(state: &mut ConnectionState<Speaker>) {
    if state.link().life().is_broken() {
        return;
    }
    while let Some(next) = state.inbox().next(Instant::now()) {
        match next {
            Ok(call) if call.stream => {}
            Ok(call) => state.answer(
                Header::control(Kind::Reply, call.id),
                None,
                Head::Borrowed(&[]),
                Vec::new(),
            ),
            Err(Some(refusal)) => state.refuse(refusal),
            Err(None) => {}
        }
    }
    let streams: Vec<u64> = state.credits().ids().take(8).collect();
    for id in streams {
        if state.readiness(id, Instant::now()) == StreamReadiness::Ready {
            let none = Vec::new();
            let header = Header {
                codec: Codec::Msgpack,
                ..Header::control(Kind::Item, id)
            };
            state.send_item(header, Head::Borrowed(&[]), none, Vec::new(), false);
        }
    }
    drop((state.take_cancelled(), state.take_granted()));
    drop(state.calls().take_finished());
    state.give_credit(CALLS + 1);
    if let Next::Items(items) = state.items().take(CALLS + 1) {
        assert!(items.len() <= CREDIT as usize);
    }
}
