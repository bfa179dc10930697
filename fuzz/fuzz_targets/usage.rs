//! Any bytes as figures that a worker reports.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::usage(input);
});
