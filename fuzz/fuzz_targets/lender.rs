//! Any bytes as what programs and the lender of a pool tell each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::lender(input);
});
