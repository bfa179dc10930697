//! Mutations of each corpus, for as long as the environment says.

#[path = "../../tests/random/mod.rs"]
mod random;

use random::mutation::{keep_seeds, try_mutated};

use super::seeds;

#[test]
fn mutated_frames_mean_the_same_in_any_split() {
    try_mutated("frames", super::frames);
}

#[test]
fn mutated_prefaces_are_refused_or_mean_what_they_say() {
    try_mutated("preface", super::preface);
}

#[test]
fn mutated_tables_of_names_open_nothing_beyond_a_limit() {
    try_mutated("named", super::named);
}

#[test]
fn mutated_calls_are_served_or_refused() {
    try_mutated("calls", super::calls);
}

#[test]
fn mutated_words_about_lent_segments_open_nothing_beyond_them() {
    try_mutated("lending", super::lending);
}

#[test]
fn mutated_messages_stay_within_their_limits() {
    try_mutated("messages", super::messages);
}

#[test]
fn mutated_messages_are_answered_by_native_services() {
    try_mutated("native", super::native);
}

#[test]
fn mutated_words_of_shared_memory_open_nothing_beyond_it() {
    try_mutated("shared", super::shared);
}

#[test]
fn the_seeds_are_what_the_encoders_write() {
    keep_seeds("preface", &seeds::preface());
    keep_seeds("named", &seeds::named());
    keep_seeds("calls", &seeds::calls());
    keep_seeds("lending", &seeds::lending());
    keep_seeds("messages", &seeds::messages());
    keep_seeds("native", &seeds::native());
    keep_seeds("shared", &seeds::shared());
}

#[test]
fn the_seeds_are_read_by_their_decoders() {
    for (decode, seeds) in [
        (super::preface as fn(&[u8]) -> bool, seeds::preface()),
        (super::named, seeds::named()),
        (super::calls, seeds::calls()),
        (super::lending, seeds::lending()),
        (super::messages, seeds::messages()),
        (super::native, seeds::native()),
        (super::shared, seeds::shared()),
    ] {
        for (at, seed) in seeds.iter().enumerate() {
            assert!(!decode(seed), "seed {at}: {seed:02x?}");
        }
    }
}
