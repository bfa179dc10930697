//! Any bytes as what ends of a connection over verbs tell each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::verbs(input);
});
