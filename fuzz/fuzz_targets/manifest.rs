//! Any bytes as what an application has.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::manifest(input);
});
