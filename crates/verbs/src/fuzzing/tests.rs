//! Mutations of each corpus, for as long as the environment says.

#[path = "../../../transport/tests/random/mod.rs"]
mod random;

use random::mutation::{keep_seeds, try_mutated};

use crate::wire::fuzzing::{seeds, verbs};

#[test]
fn mutated_words_of_verbs_are_refused_or_mean_what_they_say() {
    try_mutated("verbs", verbs);
}

#[test]
fn the_seeds_are_what_the_encoders_write() {
    keep_seeds("verbs", &seeds());
    assert!(seeds().iter().all(|seed| !verbs(seed)));
}
