//! Any words in shared memory, and records beside it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::shared(input);
});
