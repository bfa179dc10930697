//! Mutates the corpus of every decoder, one after another: `mutate [NAME ...]`, ten million inputs each.
//!
//! `FOREBAY_MUTATIONS`, `FOREBAY_MUTATION_S` and `FOREBAY_SEED` as in `random/mutation.rs`.

#[path = "../../crates/transport/tests/random/mod.rs"]
mod random;

use std::path::Path;
use std::time::Duration;

use forebay_fuzz::DECODERS;
use random::mutation::{Effort, corpus_in, mutated, number};

const INPUTS: u64 = 10_000_000;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let known = |name: &String| DECODERS.iter().any(|(decoder, _)| decoder == name);
    if let Some(name) = wanted.iter().find(|name| !known(name)) {
        let names: Vec<_> = DECODERS.iter().map(|(name, _)| *name).collect();
        panic!("{name} is no decoder; choose of {}", names.join(", "));
    }
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let effort = Effort {
        inputs: number("FOREBAY_MUTATIONS").unwrap_or(INPUTS),
        time: Duration::from_secs(number("FOREBAY_MUTATION_S").unwrap_or(0)),
    };
    for (name, decode) in DECODERS {
        if wanted.is_empty() || wanted.iter().any(|each| each == name) {
            mutated(name, &corpus_in(&corpora, name), effort, decode);
        }
    }
}
