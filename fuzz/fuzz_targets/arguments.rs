//! Any bytes as the arguments of a request.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::arguments(input);
});
