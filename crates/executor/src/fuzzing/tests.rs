//! Mutations of each corpus, for as long as the environment says.

#[path = "../../../transport/tests/random/mod.rs"]
mod random;

use random::mutation::{keep_seeds, try_mutated};

use super::seeds;

#[test]
fn mutated_requests_and_replies_are_errors_and_never_more() {
    try_mutated("requests", super::requests);
}

#[test]
fn mutated_arguments_are_held_to_their_schema() {
    try_mutated("arguments", super::arguments);
}

#[test]
fn mutated_manifests_are_read_or_refused() {
    try_mutated("manifest", super::manifest);
}

#[test]
fn mutated_records_of_side_sockets_are_read_or_refused() {
    try_mutated("side", super::side);
}

#[test]
fn mutated_figures_of_workers_are_summed_or_refused() {
    try_mutated("usage", super::usage);
}

#[test]
fn the_seeds_are_what_the_encoders_write() {
    for (target, seeds, decode) in [
        (
            "requests",
            seeds::requests(),
            super::requests as fn(&[u8]) -> bool,
        ),
        ("arguments", seeds::arguments(), super::arguments),
        ("manifest", seeds::manifest(), super::manifest),
        ("side", seeds::side(), super::side),
        ("usage", seeds::usage(), super::usage),
    ] {
        keep_seeds(target, &seeds);
        for seed in &seeds {
            assert!(!decode(seed), "{target}: {seed:02x?}");
        }
    }
}
