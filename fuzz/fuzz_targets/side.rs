//! Any bytes as a record of a worker's side socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::side(input);
});
