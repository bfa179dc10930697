//! Memory that the caller gives to receive into.

use super::{frames_of, open_ends};
use crate::error::Fault;
use crate::limit::{DIRECT_BYTES_MIN, WANTED_BYTES};

#[test]
fn memory_is_wanted_for_long_frames_and_what_came_behind_them_is_kept() {
    let (mut one, mut other, _) = open_ends();
    other.request_memory();
    let long = vec![3; DIRECT_BYTES_MIN];
    one.send(&mut vec![b"short".to_vec(), long.clone()]);
    one.send(&mut vec![b"behind".to_vec()]);
    other.receive();
    assert_eq!(other.wanted(), Some(vec![0, long.len()]));
    assert!(!other.wants_read() && other.take().is_none());
    other.provide(vec![None, None]);
    assert_eq!(other.wanted(), None);
    for _ in 0..8 {
        other.receive();
    }
    assert_eq!(
        frames_of(&mut other),
        Some(vec![b"short".to_vec(), long.clone()])
    );
    assert_eq!(frames_of(&mut other), Some(vec![b"behind".to_vec()]));
    one.send(&mut vec![long]);
    other.receive();
    other.break_with(Fault::Closed);
    assert_eq!(other.wanted(), None, "nothing of it will come");
}

#[test]
fn memory_is_wanted_for_a_part_of_a_long_message_at_a_time() {
    let (mut one, mut other, _) = open_ends();
    other.request_memory();
    let lengths = [DIRECT_BYTES_MIN, 7, WANTED_BYTES, 0, 5, DIRECT_BYTES_MIN, 3];
    let frames: Vec<_> = (1..)
        .zip(lengths)
        .map(|(byte, length)| vec![byte; length])
        .collect();
    one.send(&mut frames.clone());
    let mut wanted = Vec::new();
    for _ in 0..100 {
        one.flush();
        other.begin_turn();
        other.receive();
        if let Some(lengths) = other.wanted() {
            assert!(!other.wants_read() && other.take().is_none());
            other.provide(lengths.iter().map(|_| None).collect());
            wanted.push(lengths);
        }
    }
    assert_eq!(
        wanted,
        [
            vec![DIRECT_BYTES_MIN, 0, WANTED_BYTES],
            vec![0, 0, DIRECT_BYTES_MIN, 0],
        ]
    );
    assert_eq!(frames_of(&mut other), Some(frames));
    one.send(&mut vec![b"next".to_vec()]);
    other.receive();
    assert_eq!(frames_of(&mut other), Some(vec![b"next".to_vec()]));
}
