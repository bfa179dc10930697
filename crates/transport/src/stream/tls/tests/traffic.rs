//! Bytes after the handshake.

use std::io::IoSlice;

use super::authority::{Authority, both};
use super::pipe::{Pipe, connected, receive};
use crate::limit::{RECORD_BYTES, SEAL_BYTES};
use crate::stream::tls::Tls;
use crate::stream::{Stream, StreamFault};

/// Move `pieces` from one end to the other, in receives of `room`.
fn transfer(from: &mut Tls<Pipe>, to: &mut Tls<Pipe>, pieces: &[&[u8]], room: usize) -> Vec<u8> {
    let all = pieces.concat();
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < all.len() {
        let before = (sent, got.len());
        let mut skip = sent;
        let rest: Vec<IoSlice<'_>> = pieces
            .iter()
            .map(|piece| {
                let from = skip.min(piece.len());
                skip -= from;
                IoSlice::new(&piece[from..])
            })
            .collect();
        match from.send(&rest) {
            Ok(count) => sent += count,
            Err(fault) => assert!(fault.is_transient(), "{fault}"),
        }
        from.flush().expect("alive");
        while let Some(bytes) = receive(to, room).expect("alive") {
            got.extend_from_slice(&bytes);
        }
        let moved = (sent, got.len()) != before || !to.inner().into.borrow().bytes.is_empty();
        assert!(moved || from.wants_write(), "stuck at {before:?}");
    }
    assert_eq!(sent, all.len());
    assert!(got == all);
    got
}

#[test]
fn any_step_and_any_room_give_the_same_bytes() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    let long: Vec<u8> = (0..100_003u32).map(|i| (i % 251) as u8).collect();
    for step in [61, 4096, 16_405, usize::MAX] {
        let (mut one, mut other) = connected(&server, &client, step, 40_000);
        for room in [30, RECORD_BYTES, 1 << 20] {
            let pieces = [
                &b"header"[..],
                &long[..40 * room.min(500)],
                b"",
                b"x",
                &long[..777],
            ];
            transfer(&mut one, &mut other, &pieces, room);
            transfer(&mut other, &mut one, &pieces, room);
        }
    }
}

#[test]
fn megabytes_arrive_in_order() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    let long: Vec<u8> = (0..3_000_001u32).map(|i| (i % 253) as u8).collect();
    let (mut one, mut other) = connected(&server, &client, usize::MAX, 300_000);
    transfer(&mut one, &mut other, &[b"head", &long, &long], 256 << 10);
}

#[test]
fn a_peer_that_does_not_read_stops_the_sender() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    let (mut one, mut other) = connected(&server, &client, usize::MAX, 50_000);
    let long = vec![1u8; 10 << 20];
    let taken = one.send(&[IoSlice::new(&long)]).expect("some");
    assert!(taken <= SEAL_BYTES, "{taken}");
    assert!(one.wants_write() && one.takes());
    let again = one.send(&[IoSlice::new(&long)]);
    assert!(again.is_err_and(|fault| fault.is_transient()));
    let mut got = 0;
    while let Some(bytes) = receive(&mut other, 1 << 20).expect("alive") {
        got += bytes.len();
        one.flush().expect("alive");
    }
    assert_eq!((got, one.wants_write()), (taken, false));
}

#[test]
fn one_call_seals_a_turn_of_bytes_at_most() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    let (mut one, _other) = connected(&server, &client, usize::MAX, usize::MAX);
    let long = vec![1u8; 10 << 20];
    assert_eq!(one.send(&[IoSlice::new(&long)]), Ok(1 << 20));
    assert!(!one.wants_write());
}

#[test]
fn an_end_is_an_end_only_after_close_notify() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    let (mut one, mut other) = connected(&server, &client, usize::MAX, 1 << 20);
    one.send(&[IoSlice::new(b"last words")]).expect("sent");
    one.finish();
    one.flush().expect("sent");
    assert_eq!(receive(&mut other, 4), Ok(Some(b"last".to_vec())));
    assert!(other.holds_received());
    assert_eq!(receive(&mut other, 100), Ok(Some(b" words".to_vec())));
    assert_eq!(receive(&mut other, 100), Ok(Some(Vec::new())));
    assert!(
        other.send(&[IoSlice::new(b"answer")]).is_ok(),
        "the other way is open"
    );
    assert_eq!(receive(&mut one, 100), Ok(Some(b"answer".to_vec())));
    assert!(one.send(&[IoSlice::new(b"more")]).is_err());
}

#[test]
fn a_cut_stream_is_an_error_at_any_byte() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    for left in [0, 1, 5, 21, 30, 31, 32, 40] {
        let (mut one, mut other) = connected(&server, &client, usize::MAX, 1 << 20);
        one.send(&[IoSlice::new(b"ten bytes.")]).expect("sent");
        {
            let mut way = one.inner().out.borrow_mut();
            way.bytes.truncate(left);
            way.closed = true;
        }
        if left >= 32 {
            assert_eq!(receive(&mut other, 100), Ok(Some(b"ten bytes.".to_vec())));
        }
        let end = std::iter::repeat_with(|| receive(&mut other, 100)).find(|end| *end != Ok(None));
        assert_eq!(end, Some(Err(StreamFault::Truncated)), "{left}");
    }
}

#[test]
fn an_idle_connection_keeps_no_buffer() {
    let ca = Authority::new();
    let (server, client) = both(&ca);
    let (mut one, mut other) = connected(&server, &client, usize::MAX, 300_000);
    let long = vec![1u8; 1_000_000];
    transfer(&mut one, &mut other, &[&long], 256 << 10);
    for end in [&one, &other] {
        assert!(end.kept_bytes() <= 2 * RECORD_BYTES, "{}", end.kept_bytes());
    }
}
