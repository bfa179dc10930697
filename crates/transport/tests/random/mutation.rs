//! Mutates inputs of one decoder, from a seed that is printed and differs from run to run.
//!
//! `FOREBAY_MUTATIONS` sets how many inputs are tried at least, `FOREBAY_MUTATION_S` for how many seconds at least
//! (by default 1,000 inputs and a second), `FOREBAY_SEED` the seed of an earlier run.
#![allow(clippy::print_stdout)] // what a run tried is told where it is run

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Random, seed};

/// Where the corpora of the fuzz targets are.
const CORPORA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
/// Bytes that decoders give a meaning: limits of integers, and marks of msgpack and pickle.
const MARKS: [u8; 16] = [
    0, 1, 2, 0x7f, 0x80, 0x90, 0xc0, 0xc1, 0xc6, 0xc9, 0xdb, 0xdd, 0xdf, 0xfe, 0xff, 0x2e,
];
/// No input grows beyond the longest of its corpus by more.
const GROWTH_BYTES_MAX: usize = 4096;
/// Of an input, in a message about it.
const SHOWN_BYTES_MAX: usize = 16 << 10;

/// What was tried.
pub struct Tried {
    pub seed: u64,
    pub inputs: u64,
    pub refused: u64,
    pub seconds: f64,
}

/// How long a decoder is tried.
#[derive(Clone, Copy)]
pub struct Effort {
    pub inputs: u64,
    pub time: Duration,
}

impl Effort {
    /// As the environment says.
    pub fn of_environment() -> Self {
        let inputs = number("FOREBAY_MUTATIONS");
        let seconds = number("FOREBAY_MUTATION_S").unwrap_or(u64::from(inputs.is_none()));
        Self {
            inputs: if cfg!(miri) {
                20
            } else {
                inputs.unwrap_or(1000)
            },
            time: Duration::from_secs(if cfg!(miri) { 0 } else { seconds }),
        }
    }
}

/// What an environment variable says.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The files of a target's corpus, in the order of their names.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    corpus_in(Path::new(CORPORA), target)
}

/// The same, of a folder of corpora.
pub fn corpus_in(corpora: &Path, target: &str) -> Vec<Vec<u8>> {
    let folder = corpora.join(target);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let read = |file: &_| std::fs::read(file).expect("a file of the corpus");
    files.iter().map(read).collect()
}

/// Hold the files `seed_*` of a target's corpus to what encoders write; with `FOREBAY_SEEDS` set, write them.
pub fn keep_seeds(target: &str, seeds: &[Vec<u8>]) {
    let folder = Path::new(CORPORA).join(target);
    for (at, seed) in seeds.iter().enumerate() {
        let file = folder.join(format!("seed_{at:02}"));
        if std::env::var_os("FOREBAY_SEEDS").is_some() {
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(&file, seed).expect("the seed is written");
        }
        let there = std::fs::read(&file).ok();
        assert!(
            there.as_ref() == Some(seed),
            "{}: not what the encoder writes; write it anew by FOREBAY_SEEDS=1 cargo test seeds",
            file.display()
        );
    }
}

/// Names the input at hand where the decoder panics.
struct AtHand<'a> {
    target: &'a str,
    seed: u64,
    count: u64,
    input: Vec<u8>,
}

impl Drop for AtHand<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self {
                target,
                seed,
                count,
                input,
            } = self;
            let shown = &input[..input.len().min(SHOWN_BYTES_MAX)];
            let hex: Vec<String> = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            let hex = hex.concat();
            println!(
                "mutated {target}: input {count} of seed {seed:#x}, {} bytes: {hex}\n\
                 repeat it with FOREBAY_SEED={seed:#x} FOREBAY_MUTATIONS={count}; \
                 as a file of fuzz/corpus/{target} it is tried first in every run",
                input.len()
            );
        }
    }
}

/// Have `decode` read every input of the corpus, and then mutations of them. It returns whether it refused the input.
pub fn mutated(
    target: &str,
    corpus: &[Vec<u8>],
    effort: Effort,
    mut decode: impl FnMut(&[u8]) -> bool,
) -> Tried {
    assert!(!corpus.is_empty(), "no corpus for {target}");
    let (seed, began) = (seed(), Instant::now());
    let mut random = Random(seed);
    let mut hand = AtHand {
        target,
        seed,
        count: 0,
        input: Vec::new(),
    };
    for input in corpus {
        hand.input.clone_from(input);
        decode(input);
    }
    let mut refused = 0;
    while hand.count < effort.inputs || began.elapsed() < effort.time {
        for _ in 0..effort.inputs.clamp(1, 64) {
            hand.count += 1;
            mutate(corpus, &mut random, &mut hand.input);
            refused += u64::from(decode(&hand.input));
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "mutated {target}: {} inputs in {seconds:.1} s, {refused} refused, seed {seed:#x}",
        hand.count
    );
    Tried {
        seed,
        inputs: hand.count,
        refused,
        seconds,
    }
}

/// [`mutated`] as a test: the corpus of the target, and mutations that reach the checks without breaking everything.
pub fn try_mutated(target: &str, decode: impl FnMut(&[u8]) -> bool) {
    let tried = mutated(target, &corpus(target), Effort::of_environment(), decode);
    assert!(
        cfg!(miri) || tried.refused > tried.inputs / 100,
        "{target}: {} of {} refused; the mutations do not reach the checks",
        tried.refused,
        tried.inputs
    );
}

/// Change an input of the corpus in a few places.
fn mutate(corpus: &[Vec<u8>], random: &mut Random, bytes: &mut Vec<u8>) {
    bytes.clone_from(&corpus[random.below(corpus.len())]);
    let most = bytes.len() + GROWTH_BYTES_MAX;
    for _ in 0..=random.below(4) {
        // Mostly early bytes, where headers are.
        let until = [16, 64, 600, bytes.len()][random.below(4)].min(bytes.len());
        let at = random.below(until);
        let mark = MARKS[random.below(MARKS.len())];
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] = mark,
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 if at < bytes.len() => write_number(&mut bytes[at..], random),
            3 => bytes.truncate(random.below(bytes.len() + 1)),
            4 => drop(bytes.drain(at..(at + 1 + random.below(8)).min(bytes.len()))),
            5 => {
                let piece = piece_of(&bytes[at..], random).to_vec();
                bytes.extend_from_slice(&piece);
            }
            6 => {
                let other = &corpus[random.below(corpus.len())];
                let piece = piece_of(&other[random.below(other.len())..], random);
                bytes.truncate(at);
                bytes.extend_from_slice(piece);
            }
            _ => bytes.insert(at, mark),
        }
        bytes.truncate(most);
    }
}

/// A number as lengths and counts are: near a limit, of one, two, four or eight bytes.
fn write_number(bytes: &mut [u8], random: &mut Random) {
    let limits = [
        0,
        1,
        0x7fff,
        0xffff,
        0x1_0000,
        0x7fff_ffff,
        0xffff_ffff,
        u64::MAX,
    ];
    let near = limits[random.below(limits.len())].wrapping_sub(random.below(3) as u64);
    let number = if random.below(2) == 0 {
        near
    } else {
        random.below(1 << 12) as u64
    };
    let width = [1, 2, 4, 8][random.below(4)].min(bytes.len());
    let (little, big) = (number.to_le_bytes(), number.to_be_bytes());
    let text = if random.below(4) == 0 {
        &big[8 - width..]
    } else {
        &little[..width]
    };
    bytes[..width].copy_from_slice(text);
}

fn piece_of<'a>(bytes: &'a [u8], random: &mut Random) -> &'a [u8] {
    let most = [8, 64, 4096][random.below(3)].min(bytes.len());
    &bytes[..random.below(most + 1)]
}
