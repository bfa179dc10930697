//! Mutations of each corpus, for as long as the environment says.

#[path = "../../../transport/tests/random/mod.rs"]
mod random;

use random::mutation::{keep_seeds, try_mutated};

use super::seeds;

#[test]
fn mutated_control_messages_are_refused_or_mean_what_they_say() {
    try_mutated("control", super::control);
}

#[test]
fn mutated_messages_of_the_lender_are_refused_or_mean_what_they_say() {
    try_mutated("lender", super::lender);
}

#[test]
fn the_seeds_are_what_the_encoders_write() {
    keep_seeds("control", &seeds::control());
    keep_seeds("lender", &seeds::lender());
    let (control, lender) = (seeds::control(), seeds::lender());
    assert!(control.iter().all(|seed| !super::control(seed)));
    assert!(lender.iter().all(|seed| !super::lender(seed)));
}
