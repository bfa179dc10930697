//! What the tests of `forebay-tensor` drive its two machines by.

use crate::drive::drive;

/// A client, a shard or a greeting hears any bytes: they are carried out or refused in any split, memory beside what
/// was lent stays as it was, and all that was lent comes back.
///
/// # Panics
/// Where one of these does not hold.
pub fn tensor(input: &[u8]) -> bool {
    let step = 1 + usize::from(input.last().copied().unwrap_or(0) % 60);
    let whole = drive(input, usize::MAX);
    assert!(whole == drive(input, step), "split into {step}");
    whole.refused.is_some()
}
