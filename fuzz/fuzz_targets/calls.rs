//! Any bytes to either end of a connection of calls.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::calls(input);
});
