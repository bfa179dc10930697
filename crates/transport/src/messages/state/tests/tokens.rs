//! What an end that requires a token takes from a peer before and after it was shown.

use super::{frames_of, pair, settle, state, violation_of};
use crate::error::Violation;
use crate::limit::HANDSHAKE_BYTES_MAX;
use crate::link::admission::Admission;

#[test]
fn a_long_message_is_refused_before_the_token_and_asks_for_memory_after_it() {
    let bytes = usize::try_from(HANDSHAKE_BYTES_MAX).expect("short") + 1;
    let refusal = Violation::FrameBytes {
        limit: HANDSHAKE_BYTES_MAX,
        value: HANDSHAKE_BYTES_MAX + 1,
    };
    for (token, wanted, violation) in [
        (None, None, Some(refusal)),
        (Some(&b"secret"[..]), Some(vec![bytes]), None),
    ] {
        let (left, right) = pair();
        let mut one = state(left, Admission::Anybody, token);
        let mut other = state(right, Admission::Token(b"secret".to_vec()), None);
        other.request_memory();
        one.send(&mut vec![vec![0; bytes]]);
        other.receive();
        assert_eq!((other.wanted(), violation_of(&other)), (wanted, violation));
    }
}

#[test]
fn a_wrong_or_missing_token_lets_nothing_in() {
    let asks = || Admission::Token(b"secret".to_vec());
    for (token, violation) in [
        (None, Violation::Uninvited),
        (Some(&b"guess"[..]), Violation::Token),
    ] {
        let (left, right) = pair();
        let mut one = state(left, Admission::Anybody, token);
        let mut other = state(right, asks(), None);
        one.send(&mut vec![b"x".to_vec()]);
        settle(&mut one, &mut other);
        assert!(!other.has_opened() && other.take().is_none());
        assert_eq!(violation_of(&other), Some(violation));
    }
    let (left, right) = pair();
    let mut one = state(left, Admission::Anybody, Some(b"secret"));
    let mut other = state(right, asks(), None);
    one.send(&mut vec![b"x".to_vec()]);
    settle(&mut one, &mut other);
    assert_eq!(frames_of(&mut other), Some(vec![b"x".to_vec()]));
}
