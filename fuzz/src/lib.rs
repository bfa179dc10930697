//! Every decoder that strangers reach, by the name of its fuzz target and of its corpus.

#[path = "../../crates/tensor/tests/mutation/drive/mod.rs"]
#[allow(dead_code)] // of what tests alone use
mod drive;
#[path = "../../crates/tensor/tests/sys/mod.rs"]
#[allow(dead_code)] // of what tests alone use
mod sys;
mod tensor;

pub use forebay_executor::fuzzing::{arguments, manifest, requests, side, usage};
pub use forebay_pool::fuzzing::{control, lender};
pub use forebay_transport::fuzzing::{
    calls, frames, lending, messages, named, native, preface, shared,
};
pub use forebay_verbs::fuzzing::verbs;
pub use tensor::tensor;

/// Has one decoder read an input; whether it refused it.
pub type Decode = fn(&[u8]) -> bool;

/// All of them.
pub const DECODERS: [(&str, Decode); 17] = [
    ("frames", frames),
    ("preface", preface),
    ("named", named),
    ("calls", calls),
    ("lending", lending),
    ("messages", messages),
    ("native", native),
    ("shared", shared),
    ("tensor", tensor),
    ("verbs", verbs),
    ("control", control),
    ("lender", lender),
    ("requests", requests),
    ("arguments", arguments),
    ("manifest", manifest),
    ("side", side),
    ("usage", usage),
];
