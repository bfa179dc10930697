//! Whatever the split of the stream, the decoder finds the same frames; no input makes it panic.
#![allow(clippy::incompatible_msrv)] // tests run on the repository's toolchain

use forebay_transport::Violation;
use forebay_transport::limit::Limits;
use forebay_transport::wire::{Decoder, Event, Header, Kind, Preface, Role};
use proptest::prelude::*;

type Plain = (u64, Vec<u8>, Vec<Vec<u8>>);

fn encode(frames: &[Plain]) -> Vec<u8> {
    let mut wire = Preface::new(Role::Caller, &Limits::default(), 0)
        .encode()
        .to_vec();
    for (id, head, segments) in frames {
        let header = Header {
            head_bytes: u32::try_from(head.len()).expect("short"),
            segments: u16::try_from(segments.len()).expect("few"),
            ..Header::control(Kind::Call, *id)
        };
        wire.extend_from_slice(&header.encode());
        for segment in segments {
            wire.extend_from_slice(&(segment.len() as u64).to_le_bytes());
        }
        wire.extend_from_slice(head);
        wire.extend(segments.iter().flatten());
    }
    wire
}

fn take_event(event: Option<Event>, found: &mut Vec<Plain>) {
    if let Some(Event::Frame(frame)) = event {
        let segments = frame
            .segments
            .iter()
            .map(|segment| segment.as_slice().to_vec())
            .collect();
        found.push((frame.header.id, frame.head.as_slice().to_vec(), segments));
    }
}

/// Feed `wire` in pieces, as a driver does: straight into the frame where the decoder asks.
fn decode(wire: &[u8], pieces: &[usize], trusted: bool) -> Result<Vec<Plain>, Violation> {
    let mut decoder = Decoder::new(&Limits::default(), trusted);
    let (mut found, mut rest) = (Vec::new(), wire);
    for &piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let piece = piece.clamp(1, rest.len());
        if decoder.wants_direct() {
            let (count, event) = decoder
                .receive_with(|spare| {
                    let count = piece.min(spare.len());
                    Ok::<_, ()>(spare[..count].write_copy_of_slice(&rest[..count]))
                })
                .expect("the closure does not fail")?;
            assert!(
                count > 0,
                "room for nothing would look like the end of the stream"
            );
            rest = &rest[count..];
            take_event(event, &mut found);
        } else {
            let (count, event) = decoder.feed(&rest[..piece])?;
            rest = &rest[count..];
            take_event(event, &mut found);
        }
    }
    assert_eq!(decoder.offset(), (wire.len() - rest.len()) as u64);
    assert!(decoder.at_boundary());
    Ok(found)
}

fn frames() -> impl Strategy<Value = Vec<Plain>> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let segments = proptest::collection::vec(bytes(), 0..4);
    proptest::collection::vec((any::<u64>(), bytes(), segments), 0..6)
}

proptest! {
    #[test]
    fn any_split_gives_the_same_frames(
        frames in frames(),
        pieces in proptest::collection::vec(1usize..80, 1..40),
        trusted in any::<bool>(),
    ) {
        let wire = encode(&frames);
        prop_assert_eq!(decode(&wire, &pieces, trusted).expect("well-formed"), frames);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), flips in 0usize..3) {
        let mut wire = encode(&[(1, vec![1; 30], vec![vec![2; 20]])]);
        for (at, byte) in bytes.iter().take(flips).enumerate() {
            let place = (usize::from(*byte) * 7 + at) % wire.len();
            wire[place] ^= *byte;
        }
        wire.extend_from_slice(&bytes);
        let mut decoder = Decoder::new(&Limits { frame_bytes_max: 1 << 16, ..Limits::default() }, true);
        let mut rest = &wire[..];
        while !rest.is_empty() {
            match decoder.feed(rest) {
                Ok((count, _)) => rest = &rest[count..],
                Err(_) => break,
            }
        }
    }
}

#[test]
fn large_segments_arrive_whole_from_trusted_and_untrusted_peers() {
    let segment: Vec<u8> = (0..5_000_000u32)
        .map(|at| u8::try_from(at % 251).expect("small"))
        .collect();
    let frames = vec![(7, b"head".to_vec(), vec![segment.clone(), vec![], segment])];
    let wire = encode(&frames);
    for trusted in [true, false] {
        for piece in [999, 200_000, usize::MAX] {
            assert!(decode(&wire, &[piece], trusted).expect("well-formed") == frames);
        }
    }
}

fn refusal(header: &[u8], lengths: &[u64]) -> Violation {
    let mut wire = encode(&[]);
    wire.extend_from_slice(header);
    for length in lengths {
        wire.extend_from_slice(&length.to_le_bytes());
    }
    decode(&wire, &[usize::MAX], true).expect_err("refused")
}

#[test]
fn a_length_bomb_is_refused_before_memory_is_obtained() {
    let one = Header {
        segments: 1,
        ..Header::control(Kind::Call, 1)
    }
    .encode();
    let limit = Limits::default().frame_bytes_max;
    for value in [limit + 1, 1 << 60, u64::MAX] {
        assert_eq!(
            refusal(&one, &[value]),
            Violation::FrameBytes { limit, value }
        );
    }
    let two = Header {
        segments: 2,
        ..Header::control(Kind::Call, 1)
    }
    .encode();
    let sum = Violation::FrameBytes {
        limit,
        value: u64::MAX,
    };
    assert_eq!(refusal(&two, &[limit, u64::MAX]), sum);
    let head = Header {
        head_bytes: u32::MAX,
        ..Header::control(Kind::Call, 1)
    }
    .encode();
    assert_eq!(
        refusal(&head, &[]),
        Violation::FrameBytes {
            limit,
            value: u32::MAX.into()
        }
    );
    let many = Header {
        segments: 1025,
        ..Header::control(Kind::Call, 1)
    }
    .encode();
    assert_eq!(
        refusal(&many, &[]),
        Violation::Segments {
            limit: 1024,
            value: 1025
        }
    );
}
