//! Mutates the corpus of the fuzz target on a stable toolchain, with a fixed seed.
//!
//! `FOREBAY_MUTATIONS` sets how many inputs are tried at least (default 20,000, under two seconds), and
//! `FOREBAY_MUTATION_S` for how many seconds at least.

mod random;

use std::path::Path;
use std::time::{Duration, Instant};

use forebay_transport::Violation;
use forebay_transport::decoder::{Decoder, Event};
use forebay_transport::frame::HEADER_BYTES;
use forebay_transport::limit::Limits;
use forebay_transport::preface::PREFACE_BYTES;
use random::Random;

const FRAME_BYTES_MAX: u64 = 1 << 20;

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/decoder");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the corpus")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| std::fs::read(file).expect("a file"))
        .collect()
}

fn mutate(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        let interesting = [0, 1, 0x7f, 0x80, 0xff][random.below(5)];
        match random.below(5) {
            0 if !bytes.is_empty() => bytes[at] = interesting,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at.min(bytes.len()), interesting),
            _ => {
                let piece = bytes[at.min(bytes.len())..].to_vec();
                bytes.extend_from_slice(&piece);
            }
        }
    }
    bytes
}

/// Decode in pieces of `step`; what was found, as comparable text, and how it ended.
fn decode(bytes: &[u8], step: usize, ask: bool) -> (Vec<String>, Option<Violation>) {
    let limits = Limits {
        frame_bytes_max: FRAME_BYTES_MAX,
        ..Limits::default()
    };
    let mut decoder = Decoder::new(&limits, false);
    if ask {
        decoder.ask();
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
                Some(Event::Preface(preface)) => found.push(format!("{preface:?}")),
                Some(Event::Frame(frame)) => {
                    let bytes = frame.bytes();
                    assert!(bytes as u64 <= FRAME_BYTES_MAX);
                    let segments: Vec<_> = frame
                        .segments
                        .iter()
                        .map(|s| s.as_slice().to_vec())
                        .collect();
                    found.push(format!(
                        "{:?} {:?} {segments:?}",
                        frame.header,
                        frame.head.as_slice()
                    ));
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

/// What an environment variable says.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn mutated_streams_never_panic_and_never_depend_on_their_split() {
    let corpus = corpus();
    assert!(
        corpus
            .iter()
            .any(|seed| seed.len() > PREFACE_BYTES + HEADER_BYTES)
    );
    let least = number("FOREBAY_MUTATIONS").unwrap_or(20_000);
    let until = Instant::now() + Duration::from_secs(number("FOREBAY_MUTATION_S").unwrap_or(0));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut count, mut refused) = (0, 0);
    while count < least || Instant::now() < until {
        count += 1;
        let seed = &corpus[random.below(corpus.len())];
        let bytes = mutate(seed, &mut random);
        let whole = decode(&bytes, usize::MAX, false);
        let step = 1 + random.below(60);
        assert_eq!(
            whole,
            decode(&bytes, step, random.below(2) == 1),
            "split into {step}: {bytes:02x?}"
        );
        refused += u64::from(whole.1.is_some());
    }
    assert!(refused > count / 100, "the mutations reach the checks");
}
