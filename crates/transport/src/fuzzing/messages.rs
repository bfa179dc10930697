//! A connection of messages with arbitrary input.

use super::Speaker;
use super::calls::TOKEN;
use crate::error::Fault;
use crate::limit::Limits;
use crate::link::admission::Admission;
use crate::messages::state::State;

/// What an input's first byte says: the peer is trusted, or has to show a token.
pub const TRUSTS: u8 = 1;
pub const ASKS_TOKEN: u8 = 2;
/// Who takes the messages provides the memory for them.
pub const PROVIDES: u8 = 4;

const MESSAGE_BYTES_MAX: u64 = 256 << 10;

/// A connection of messages hears any bytes: the messages that it takes are within its limits.
///
/// The first byte sets trust and admission, the second how much is received at once.
///
/// # Panics
/// Where a message is longer than its limits.
pub fn messages(input: &[u8]) -> bool {
    let (&[how, step], bytes) = input.split_first_chunk().unwrap_or((&[0, 0], &[]));
    let admission = match how & ASKS_TOKEN {
        0 => Admission::Anybody,
        _ => Admission::Token(TOKEN.to_vec()),
    };
    let limits = Limits {
        frame_bytes_max: MESSAGE_BYTES_MAX,
        ..Limits::of_messages()
    };
    let speaker = Speaker::new(bytes.to_vec(), 1 << (step % 16), false);
    let mut state = State::new(speaker, limits, admission, None);
    if how & TRUSTS != 0 {
        state.trust();
    }
    if how & PROVIDES != 0 {
        state.request_memory();
    }
    for _ in 0..=bytes.len() {
        if !state.wants_read() {
            break;
        }
        state.receive();
        if let Some(wanted) = state.wanted() {
            state.provide(wanted.iter().map(|_| None).collect());
        }
        while let Some(message) = state.take() {
            let bytes: usize = message.iter().map(|frame| frame.as_slice().len()).sum();
            assert!(!message.is_empty() && bytes as u64 <= MESSAGE_BYTES_MAX);
        }
        state.flush();
    }
    matches!(state.fault(), Some(Fault::Protocol { .. }))
}
