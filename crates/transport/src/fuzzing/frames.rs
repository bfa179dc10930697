//! The decoders below connections: frames, prefaces, tables of names.

use crate::error::Violation;
use crate::limit::Limits;
use crate::messages::named as table;
use crate::sys::buffer::{Buffer, SEGMENT_ALIGN};
use crate::wire::decoder::{Decoder, Event};
use crate::wire::preface::{PREFACE_BYTES, Preface};

pub const FRAME_BYTES_MAX: u64 = 1 << 20;

/// What was found: text and bytes, and how it ended.
type Found = (Vec<(String, Vec<Vec<u8>>)>, Option<Violation>);

/// Frames of either role, behind a preface: they mean the same in any split, and to one who provides the memory.
///
/// The last byte of the input says how it is split.
///
/// # Panics
/// Where they do not.
pub fn frames(input: &[u8]) -> bool {
    let step = input.last().map_or(1, |&last| 1 + usize::from(last));
    let whole = decode(input, usize::MAX, false);
    let split = decode(input, step, step % 2 == 1);
    assert_eq!(whole, split, "split into {step}");
    whole.1.is_some()
}

fn decode(bytes: &[u8], step: usize, ask: bool) -> Found {
    let limits = Limits {
        frame_bytes_max: FRAME_BYTES_MAX,
        ..Limits::default()
    };
    let mut decoder = Decoder::new(&limits, false);
    if ask {
        decoder.request_memory();
    }
    let mut found = Vec::new();
    for piece in bytes.chunks(step) {
        let mut rest = piece;
        while !rest.is_empty() {
            let (count, event) = match decoder.feed(rest) {
                Ok(progress) => progress,
                Err(violation) => return (found, Some(violation)),
            };
            assert!(count > 0, "no progress");
            rest = &rest[count..];
            match event {
                Some(Event::Preface(preface)) => {
                    found.push((format!("{preface:?}"), Vec::new()));
                }
                Some(Event::Frame(frame)) => {
                    assert!(frame.bytes() as u64 <= FRAME_BYTES_MAX);
                    let segments = frame.segments.iter().chain([&frame.head]);
                    let bytes = segments.map(|each| each.as_slice().to_vec()).collect();
                    found.push((format!("{:?}", frame.header), bytes));
                }
                Some(Event::Wanted) => {
                    let wanted = decoder.wanted().expect("memory is wanted");
                    assert!(ask && wanted.iter().any(|&bytes| bytes > 0));
                    decoder.provide(wanted.iter().map(|_| None).collect());
                }
                None => {}
            }
        }
    }
    (found, None)
}

/// A preface: what can be read means the same once it was written again.
///
/// # Panics
/// Where it does not.
pub fn preface(input: &[u8]) -> bool {
    let begins = Preface::begins_with(input);
    let Some(bytes) = input.first_chunk::<PREFACE_BYTES>() else {
        return true;
    };
    match Preface::decode(bytes) {
        Ok(preface) => {
            assert_eq!(begins, Ok(()));
            assert_eq!(Preface::decode(&preface.encode()), Ok(preface));
            false
        }
        Err(_) => true,
    }
}

/// The table of a message of which some frames lie in shared memory, and what follows it: the first byte says how long
/// the table is, the second how long each frame is.
///
/// # Panics
/// Where a message is longer than its limits.
pub fn named(input: &[u8]) -> bool {
    let (&[length, each], bytes) = input.split_first_chunk().unwrap_or((&[0, 0], &[]));
    let (first, rest) = bytes.split_at(usize::from(length).min(bytes.len()));
    let frames = rest.chunks(usize::from(each).max(1));
    let mut segments = std::iter::once(first).chain(frames).map(buffer).collect();
    let limits = Limits {
        frame_bytes_max: 1 << 10,
        segments_max: 16,
        ..Limits::of_messages()
    };
    let opened = table::open(&mut segments, &limits, |name| {
        Ok(buffer(&name[..usize::from(name[0] % 32)]))
    });
    if let Ok(message) = &opened {
        let bytes: usize = message.iter().map(Buffer::len).sum();
        assert!(bytes <= 1 << 10 && (1..=16).contains(&message.len()));
    }
    opened.is_err()
}

fn buffer(bytes: &[u8]) -> Buffer {
    let mut made = Buffer::with_capacity(bytes.len(), SEGMENT_ALIGN).expect("memory");
    made.append(bytes);
    made
}
