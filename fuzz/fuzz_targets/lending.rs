//! Any bytes about segments of calls that lie in shared memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::lending(input);
});
