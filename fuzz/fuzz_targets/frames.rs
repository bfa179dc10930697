//! Any bytes as frames, in any split.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::frames(input);
});
