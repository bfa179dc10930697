//! Mutates what both machines say to each other, from a seed that is printed: see `random/mutation.rs`.
//!
//! `FOREBAY_SEEDS` writes what is mutated to `fuzz/corpus/tensor` for cargo-fuzz.
#![cfg(not(loom))]

mod drive;
#[path = "../../../transport/tests/random/mod.rs"]
mod random;
mod sys;

use std::sync::Mutex;
use std::time::Duration;

use drive::{Client, Role, Seen, Server, drive};
use forebay_tensor::{Class, Error, Hello, Welcome};
use random::mutation::{Effort, keep_seeds, mutated};
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
        shared_index: None,
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

/// What one test has of the heap is not to be counted as another's.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn what_the_machines_say_is_refused_by_neither() {
    let _alone = ALONE.lock();
    let seeds = seeds();
    keep_seeds("tensor", &seeds);
    for (at, seed) in seeds.iter().enumerate() {
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
    let tried = mutated("tensor", &seeds, Effort::of_environment(), |input| {
        let step = 1 + usize::from(input.last().copied().unwrap_or(0) % 60);
        let (whole, peak): (Seen, usize) = peak_of(|| drive(input, usize::MAX));
        assert!(
            peak <= PEAK_BYTES + 4 * whole.said.len(),
            "{peak} bytes for an input of {}",
            input.len()
        );
        assert!(whole == drive(input, step), "split into {step}");
        whole.refused.is_some()
    });
    assert!(
        tried.refused > tried.inputs / 10,
        "the mutations reach the checks"
    );
}
