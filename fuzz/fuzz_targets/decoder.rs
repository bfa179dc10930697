//! Any bytes, in any split: the decoder neither panics nor obtains memory that the input did not pay for.
#![no_main]

use forebay_transport::decoder::Decoder;
use forebay_transport::limit::Limits;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (step, bytes) = input;
    let limits = Limits { frame_bytes_max: 1 << 20, ..Limits::default() };
    let mut decoder = Decoder::new(&limits, false);
    for piece in bytes.chunks(usize::from(step).max(1)) {
        let mut rest = piece;
        while !rest.is_empty() {
            match decoder.feed(rest) {
                Ok((count, _)) => rest = &rest[count..],
                Err(_) => return,
            }
        }
    }
});
