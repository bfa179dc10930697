//! Any bytes as a call of a client, or an answer of a worker.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::requests(input);
});
