//! Any bytes to a native listener's services.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    forebay_fuzz::native(input);
});
