//! Any bytes as what a client, a server or either's first message says of tensors: they are carried out or refused,
//! memory beside what was lent stays as it was, and all that was lent comes back.
#![no_main]

#[path = "../../crates/tensor/tests/mutation/drive/mod.rs"]
mod drive;
#[path = "../../crates/tensor/tests/sys/mod.rs"]
#[allow(dead_code)] // of what tests alone use
mod sys;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let step = bytes.last().map_or(1, |&last| 1 + usize::from(last));
    let split = drive::drive(bytes, step);
    assert!(
        split == drive::drive(bytes, usize::MAX),
        "it depends on the split"
    );
});
