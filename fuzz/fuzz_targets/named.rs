//! Any bytes as a table of frames that lie in shared memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::named(input);
});
