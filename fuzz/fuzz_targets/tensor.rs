//! Any bytes to a shard or its client, or as a greeting.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::tensor(input);
});
