//! Any bytes to a connection of messages.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::messages(input);
});
