//! Any bytes as what client, keeper and template tell each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::control(input);
});
