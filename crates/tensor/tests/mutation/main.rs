//! Mutates what both machines say to each other on a stable toolchain, with a fixed seed.
//!
//! `FOREBAY_MUTATIONS` sets how many inputs are tried at least (default 5,000, some seconds), and `FOREBAY_MUTATION_S`
//! for how many seconds at least. `FOREBAY_SEEDS` names a folder that the inputs are written to which are mutated:
//! `fuzz/corpus/tensor` has them for cargo-fuzz.
#![cfg(not(loom))]

mod drive;
#[path = "../../../transport/tests/random/mod.rs"]
mod random;
mod sys;

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use drive::{Client, Role, Seen, Server, drive};
use forebay_tensor::{Class, Error, Hello, Welcome};
use random::Random;
use sys::{Metered, peak_of};

#[global_allocator]
static HEAP: Metered = Metered;

/// What one input may take beside what is kept of it: both machines with their tensors, and the longest answers.
const PEAK_BYTES: usize = 3 << 20;
/// How much is heard before something is said: 32 bytes, 256, all.
const BURSTS: [u8; 3] = [0, 3, 15];

fn seed(role: Role, burst: u8, bytes: &[u8]) -> Vec<u8> {
    [&[role as u8, burst], bytes].concat()
}

/// Both machines with each other; what each heard.
fn talk(rounds: u32) -> (Vec<u8>, Vec<u8>) {
    let (mut server, mut client) = (Server::new(), Client::new());
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut asked = client.say();
        if round == 1 {
            client.cancel(1);
            client
                .wait(Duration::from_secs(3))
                .expect("not yet given up");
            asked.extend(client.say());
        }
        server
            .hear(&asked, usize::MAX)
            .expect("it keeps to the protocol");
        let answered = server.say();
        client
            .hear(&answered, usize::MAX)
            .expect("it keeps to the protocol");
        up.extend(asked);
        down.extend(answered);
    }
    client.say();
    assert!(
        client.ended >= 3 * rounds,
        "only {} went well",
        client.ended
    );
    (up, down)
}

fn greetings() -> [Vec<u8>; 3] {
    let hello = Hello {
        slots: 16,
        fabrics: 3,
    };
    let welcome = Welcome {
        slots: 16,
        grant_bytes: 1 << 24,
        incarnation: 7,
        announced: None,
        note: b"{}".to_vec(),
        verbs: Vec::new(),
    };
    let why = Error::Broken { why: "so".into() };
    [hello.encode(), welcome.encode(), Welcome::refusal(&why)]
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<_> = greetings()
        .iter()
        .map(|bytes| seed(Role::Greeting, 0, bytes))
        .collect();
    for (burst, rounds) in BURSTS.into_iter().zip([2, 3, 1]) {
        let (up, down) = talk(rounds);
        seeds.push(seed(Role::Server, burst, &up));
        seeds.push(seed(Role::Client, burst, &down));
    }
    seeds
}

/// Change a few bytes: mostly early ones, where headers and entries are.
fn mutate(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let until = [64, 600, bytes.len()][random.below(3)].min(bytes.len());
        let at = 2 + random.below(until.saturating_sub(2));
        if at >= bytes.len() {
            break;
        }
        let interesting = [0, 1, 0x7f, 0x80, 0xff][random.below(5)];
        match random.below(5) {
            0 => bytes[at] = interesting,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at.max(20)),
            3 => bytes.insert(at, interesting),
            _ => {
                let piece = bytes[at..].to_vec();
                bytes.extend_from_slice(&piece[..piece.len().min(4096)]);
            }
        }
    }
    bytes
}

/// What an environment variable says.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// What one test has of the heap is not to be counted as another's.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn what_the_machines_say_is_refused_by_neither() {
    let _alone = ALONE.lock();
    let seeds = seeds();
    for (at, seed) in seeds.iter().enumerate() {
        if let Some(folder) = std::env::var_os("FOREBAY_SEEDS") {
            let file = Path::new(&folder).join(format!("seed_{at}"));
            std::fs::write(file, seed).expect("the folder is there");
        }
        // The first three are messages, which no machine hears.
        assert_eq!(drive(seed, usize::MAX).said.is_empty(), at < 3);
    }
    for round in &seeds[7..] {
        assert_eq!(drive(round, usize::MAX).refused, None);
    }
    let refusal = Welcome::decode(&seeds[2][2..]).expect_err("it is one");
    assert_eq!(refusal.class(), Class::Broken);
}

#[test]
fn mutated_streams_never_panic_never_grow_and_never_depend_on_their_split() {
    let _alone = ALONE.lock();
    let seeds = seeds();
    let least = number("FOREBAY_MUTATIONS").unwrap_or(5_000);
    let until = Instant::now() + Duration::from_secs(number("FOREBAY_MUTATION_S").unwrap_or(0));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut count, mut refused) = (0, 0);
    while count < least || Instant::now() < until {
        count += 1;
        let bytes = mutate(&seeds[random.below(seeds.len())], &mut random);
        let step = 1 + random.below(60);
        let (whole, peak): (Seen, usize) = peak_of(|| drive(&bytes, usize::MAX));
        assert!(
            peak <= PEAK_BYTES + 4 * whole.said.len(),
            "{peak} bytes for an input of {}",
            bytes.len()
        );
        assert!(
            whole == drive(&bytes, step),
            "split into {step}: {bytes:02x?}"
        );
        refused += u64::from(whole.refused.is_some());
    }
    assert!(refused > count / 10, "the mutations reach the checks");
}
